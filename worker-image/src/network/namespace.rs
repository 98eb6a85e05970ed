//! Makes the namespaces and what is set in them: loopback, routes that make every address local, and the rule that leads TCP to
//! the relay.

use crate::isolation::bubblewrap::find;
use nix::sched::{CloneFlags, unshare};
use nix::unistd::{getgid, getuid};
use std::fs;
use std::io::{self, Write as _};
use std::path::Path;
use std::process::{Command, Stdio};

/// The namespace's own address besides loopback's, the dummy address of RFC 7600: the C library looks up no names for a host
/// that has loopback alone.
const ADDRESS: &str = "192.0.0.8";

/// Enters a user namespace and a network namespace of this process's own, in which it may set up the network. This process must
/// have one thread.
///
/// # Errors
///
/// If the kernel refuses.
pub(super) fn enter() -> io::Result<()> {
    let (uid, gid) = (getuid(), getgid());
    unshare(CloneFlags::CLONE_NEWUSER | CloneFlags::CLONE_NEWNET)?;
    fs::write("/proc/self/setgroups", "deny")?;
    fs::write("/proc/self/uid_map", format!("0 {uid} 1"))?;
    fs::write("/proc/self/gid_map", format!("0 {gid} 1"))
}

/// Brings loopback up. Without it there is no network at all.
///
/// # Errors
///
/// What `ip` said, or that it isn't there.
pub(super) fn bring_up() -> io::Result<()> {
    tell("ip", &["-batch", "-"], "link set lo up\n")
}

/// Leads all TCP but loopback's own to `port`. Without IPv6 in the kernel, IPv4's only.
///
/// # Errors
///
/// What `ip` or `nft` said, or that it isn't there.
pub(super) fn redirect(port: u16) -> io::Result<()> {
    let v6 = Path::new("/proc/sys/net/ipv6").exists();
    tell("ip", &["-batch", "-"], &routes(v6))?;
    tell("nft", &["-f", "-"], &rules(port))
}

/// What makes every address local, as `ip` reads it.
fn routes(v6: bool) -> String {
    let v4 = format!("address add {ADDRESS}/32 dev lo\nroute add local default dev lo src {ADDRESS}\n");
    v4 + if v6 { "route add local ::/0 dev lo\n" } else { "" }
}

/// The rule, as `nft` reads it.
fn rules(port: u16) -> String {
    format!(
        "table inet callboard {{\n chain out {{\n  type nat hook output priority -100;\n  \
         ip daddr 127.0.0.0/8 accept\n  ip6 daddr ::1 accept\n  meta l4proto tcp redirect to :{port}\n }}\n}}\n"
    )
}

/// Calls a program of the host's that reads what it is to do.
fn tell(name: &str, args: &[&str], lines: &str) -> io::Result<()> {
    let program = find(name).ok_or_else(|| io::Error::other(format!("{name} is not installed")))?;
    let mut command = Command::new(program);
    command.args(args).env_clear().stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::piped());
    let mut process = command.spawn()?;
    process.stdin.take().ok_or(io::ErrorKind::BrokenPipe)?.write_all(lines.as_bytes())?;
    let output = process.wait_with_output()?;
    if output.status.success() {
        return Ok(());
    }
    let words = String::from_utf8_lossy(&output.stderr);
    Err(io::Error::other(format!("{name}: {}", words.lines().next().unwrap_or("failed").trim())))
}
