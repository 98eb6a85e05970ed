//! Makes the namespaces and what is set in them: loopback, routes that make every address local, and the rule that leads TCP to
//! the relay.

use super::netlink::{Message, attribute, tell};
use super::rule;
use nix::libc;
use nix::sched::{CloneFlags, unshare};
use nix::sys::socket::SockProtocol;
use nix::unistd::{getgid, getuid};
use std::fs;
use std::io;
use std::net::Ipv4Addr;
use std::path::Path;

/// The namespace's own address besides loopback's, the dummy address of RFC 7600: the C library looks up no names for a host
/// that has loopback alone.
const ADDRESS: Ipv4Addr = Ipv4Addr::new(192, 0, 0, 8);
/// The number of loopback, which is the first interface of every namespace.
const LOOPBACK: i32 = 1;
const V4: u8 = 2;
const V6: u8 = 10;

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
/// What the kernel said.
pub(super) fn bring_up() -> io::Result<()> {
    said("loopback", tell(SockProtocol::NetlinkRoute, &[up()]))
}

/// Leads all TCP but loopback's own to `port`. Without IPv6 in the kernel, or in the namespace, IPv4's only.
///
/// # Errors
///
/// What the kernel said.
pub(super) fn redirect(port: u16) -> io::Result<()> {
    let route = |message: Message| tell(SockProtocol::NetlinkRoute, &[message]);
    said("an address", route(address(ADDRESS)))?;
    said("a route", route(everywhere(V4, &source(ADDRESS))))?;
    said("a rule", tell(SockProtocol::NetlinkNetFilter, &rule::redirect(rule::V4, port)))?;
    if has_v6() {
        said("a route for IPv6", route(everywhere(V6, &[])))?;
        said("a rule for IPv6", tell(SockProtocol::NetlinkNetFilter, &rule::redirect(rule::V6, port)))?;
    }
    Ok(())
}

/// Whether there is IPv6, and it is not turned off: then nothing of it is reached, and nothing has to be led.
fn has_v6() -> bool {
    let off = Path::new("/proc/sys/net/ipv6/conf/lo/disable_ipv6");
    fs::read_to_string(off).is_ok_and(|off| off.trim() == "0")
}

fn said(what: &str, done: io::Result<()>) -> io::Result<()> {
    done.map_err(|error| io::Error::new(error.kind(), format!("the kernel takes no {what}: {error}")))
}

const ADDS: i32 = libc::NLM_F_ACK | libc::NLM_F_CREATE;

fn up() -> Message {
    let flags = libc::IFF_UP.to_ne_bytes();
    let body = [&[0; 4][..], &LOOPBACK.to_ne_bytes(), &flags, &flags].concat();
    Message { kind: libc::RTM_NEWLINK, flags: libc::NLM_F_ACK, body }
}

fn address(address: Ipv4Addr) -> Message {
    let octets = address.octets();
    let head = [&[V4, 32, 0, 0][..], &LOOPBACK.to_ne_bytes()].concat();
    let body = [head, attribute(libc::IFA_LOCAL, &octets), attribute(libc::IFA_ADDRESS, &octets)].concat();
    Message { kind: libc::RTM_NEWADDR, flags: ADDS, body }
}

/// A route that makes every address of a family local.
fn everywhere(family: u8, more: &[u8]) -> Message {
    let head = [
        &[family, 0, 0, 0, libc::RT_TABLE_LOCAL, libc::RTPROT_BOOT, libc::RT_SCOPE_HOST, libc::RTN_LOCAL][..],
        &[0; 4],
        &attribute(libc::RTA_OIF, &LOOPBACK.to_ne_bytes()),
        more,
    ];
    Message { kind: libc::RTM_NEWROUTE, flags: ADDS, body: head.concat() }
}

fn source(address: Ipv4Addr) -> Vec<u8> {
    attribute(libc::RTA_PREFSRC, &address.octets())
}
