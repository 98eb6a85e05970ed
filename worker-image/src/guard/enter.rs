//! A step between a guard and its sandbox: goes into the sandbox's control group, becomes its user, enters its build's network,
//! and then becomes bubblewrap, which so is limited from its first instruction.

use crate::isolation::cgroup;
use nix::sched::{CloneFlags, setns};
use nix::unistd::{Gid, Uid, geteuid, setgid, setgroups, setuid};
use std::fs::File;
use std::io;
use std::os::unix::process::CommandExt as _;
use std::path::PathBuf;
use std::process::Command;

/// Where to go, and as whom.
#[derive(Debug)]
pub struct Entry {
    /// The files of control groups that take processes.
    pub groups: Vec<PathBuf>,
    /// The user and group to become.
    pub user: Option<u32>,
    /// The process whose user and network namespaces to enter.
    pub inside: Option<u32>,
}

/// Goes there and becomes `command`. Returns only if that fails. This process must have one thread.
#[must_use]
pub fn enter(entry: &Entry, command: &[String]) -> io::Error {
    let Some((program, args)) = command.split_first() else {
        return io::ErrorKind::InvalidInput.into();
    };
    match go(entry) {
        Ok(()) => Command::new(program).args(args).exec(),
        Err(error) => error,
    }
}

fn go(entry: &Entry) -> io::Result<()> {
    cgroup::join(&entry.groups)?;
    if let Some(id) = entry.user {
        become_user(id)?;
    }
    entry.inside.map_or(Ok(()), enter_network)
}

fn become_user(id: u32) -> io::Result<()> {
    if geteuid().is_root() {
        setgroups(&[])?;
    }
    setgid(Gid::from_raw(id))?;
    Ok(setuid(Uid::from_raw(id))?)
}

/// The user namespace first: its owner may do in it what the other one wants.
fn enter_network(process: u32) -> io::Result<()> {
    let open = |kind| File::open(format!("/proc/{process}/ns/{kind}"));
    let (user, net) = (open("user")?, open("net")?);
    setns(user, CloneFlags::CLONE_NEWUSER)?;
    Ok(setns(net, CloneFlags::CLONE_NEWNET)?)
}
