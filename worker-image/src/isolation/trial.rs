//! What a sandbox is like from inside, and what happens to who takes too much there: tried by this program itself.

use nix::mount::{MsFlags, mount};
use nix::sched::{CloneFlags, unshare};
use nix::sys::resource::{UsageWho, getrusage};
use serde::{Deserialize, Serialize};
use std::fs;
use std::hint::black_box;
use std::io::{self, ErrorKind, Write};
use std::net::UdpSocket;
use std::thread;
use std::time::{Duration, Instant};

/// A file that [`Trial::Walls`] leaves, for others to see whose it is.
pub(super) const LEFT: &str = "/workspace/trial";
/// How many threads [`Trial::Walls`] wants.
pub(super) const THREADS: u32 = 96;
/// How much memory [`Trial::Walls`] wants, in MiB.
const MEMORY_MIB: usize = 160;
/// What [`Trial::Disk`] fills.
const FILLED: &str = "/workspace/filled";
/// How much disk [`Trial::Disk`] wants, in MiB, and how long it is content with that.
const DISK_MIB: usize = 24;
const CONTENT: Duration = Duration::from_secs(10);
/// How long [`Trial::Cpu`] computes.
const COMPUTES: Duration = Duration::from_millis(400);

/// What is tried.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Trial {
    /// What can be seen and done; then start threads, then take memory. What it found so far is written before the next begins, since the
    /// last may be its end.
    Walls,
    /// Compute.
    Cpu,
    /// Fill the workspace.
    Disk,
}

impl Trial {
    /// Its name on the command line.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Walls => "walls",
            Self::Cpu => "cpu",
            Self::Disk => "disk",
        }
    }
}

/// What [`Trial::Walls`] found.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Walls {
    /// All capabilities that it has, or may get.
    pub capabilities: u64,
    /// Whether it can gain no privileges.
    pub no_new_privileges: bool,
    /// 2 if a filter is there.
    pub seccomp: u32,
    /// How many processes can be seen.
    pub processes: usize,
    /// Directories of the system that can be written.
    pub writable: Vec<String>,
    /// Network interfaces besides the loopback.
    pub interfaces: Vec<String>,
    /// Whether there is no route to an address elsewhere.
    pub unreachable: bool,
    /// Whether a mount is refused.
    pub no_mount: bool,
    /// Whether a namespace of its own is refused.
    pub no_namespace: bool,
}

/// Tries it; writes what there is to say, a line for each thing that was tried.
///
/// # Errors
///
/// If the trial could not be made.
pub fn attempt(trial: Trial, to: &mut impl Write) -> io::Result<()> {
    match trial {
        Trial::Walls => {
            say(to, &serde_json::to_string(&walls()?)?)?;
            say(to, &threads().to_string())?;
            let taken: Vec<Vec<u8>> = (0..MEMORY_MIB).map(|_| black_box(vec![7; 1 << 20])).collect();
            say(to, &taken.len().to_string())
        }
        Trial::Cpu => say(to, &compute()?.to_string()),
        Trial::Disk => {
            fs::write(FILLED, vec![7; DISK_MIB << 20])?;
            thread::sleep(CONTENT);
            say(to, &DISK_MIB.to_string())
        }
    }
}

fn say(to: &mut impl Write, line: &str) -> io::Result<()> {
    writeln!(to, "{line}")?;
    to.flush()
}

fn walls() -> io::Result<Walls> {
    let status = fs::read_to_string("/proc/self/status")?;
    let field = |name: &str| status.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':')).map(str::trim);
    let hex = |name| field(name).and_then(|value| u64::from_str_radix(value, 16).ok()).unwrap_or(u64::MAX);
    let is_writable = |path: &&&str| fs::write(format!("{path}/.callboard-trial"), "").is_ok();
    let number = |name: &std::ffi::OsString| name.to_string_lossy().parse::<u32>().is_ok();
    fs::write(LEFT, "")?;
    Ok(Walls {
        capabilities: ["CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"]
            .map(hex)
            .into_iter()
            .fold(0, |all, set| all | set),
        no_new_privileges: field("NoNewPrivs") == Some("1"),
        seccomp: field("Seccomp").and_then(|mode| mode.parse().ok()).unwrap_or(0),
        processes: fs::read_dir("/proc")?.flatten().map(|entry| entry.file_name()).filter(number).count(),
        writable: ["/", "/usr", "/etc", "/var", "/dev"].iter().filter(is_writable).map(|path| (*path).into()).collect(),
        interfaces: interfaces(&fs::read_to_string("/proc/net/dev")?),
        unreachable: unreachable(),
        no_mount: mount(None::<&str>, "/", None::<&str>, MsFlags::MS_REMOUNT | MsFlags::MS_BIND, None::<&str>).is_err(),
        no_namespace: thread::spawn(|| unshare(CloneFlags::CLONE_NEWUSER).is_err()).join().unwrap_or(false),
    })
}

fn interfaces(table: &str) -> Vec<String> {
    let names = table.lines().filter_map(|line| line.split_once(':')).map(|(name, _)| name.trim().to_owned());
    names.filter(|name| name != "lo").collect()
}

/// Sends nothing: the kernel says at once whether it would know a way to an address of the documents.
fn unreachable() -> bool {
    let socket = UdpSocket::bind("0.0.0.0:0");
    socket.is_ok_and(|socket| {
        socket.connect("192.0.2.1:9").is_err_and(|error| error.kind() == ErrorKind::NetworkUnreachable)
    })
}

fn threads() -> usize {
    let sleep = || thread::Builder::new().stack_size(64 << 10).spawn(|| thread::sleep(Duration::from_millis(300)));
    let started: Vec<_> = (0..THREADS).map_while(|_| sleep().ok()).collect();
    started.len()
}

/// The CPU that it got, in thousandths of one.
fn compute() -> io::Result<u128> {
    let begun = Instant::now();
    while begun.elapsed() < COMPUTES {
        black_box((0..1000_u64).map(black_box).sum::<u64>());
    }
    let used = getrusage(UsageWho::RUSAGE_SELF)?;
    let used = used.user_time() + used.system_time();
    let used_us = u128::from(used.tv_sec().unsigned_abs()) * 1_000_000 + u128::from(used.tv_usec().unsigned_abs());
    Ok(used_us * 1000 / begun.elapsed().as_micros().max(1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn interfaces_are_read_from_the_kernels_table() {
        let table = "Inter-|   Receive\n face |bytes\n    lo: 0 0\n  eth0: 1 2\n";
        assert_eq!(interfaces(table), ["eth0"]);
    }

    #[test]
    fn a_trial_has_one_name() {
        use clap::ValueEnum as _;
        for trial in Trial::value_variants() {
            assert_eq!(trial.to_possible_value().unwrap().get_name(), trial.as_str());
        }
    }
}
