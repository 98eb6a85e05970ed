//! How a sandbox is ended: all its processes are asked, and after the grace its first one is killed, with which the
//! kernel kills the rest.

use crate::clock::Boot;
use crate::proc;
use nix::errno::Errno;
use nix::sys::signal::Signal;
use nix::sys::wait::{WaitPidFlag, waitpid};
use std::time::Duration;

/// An end that has begun.
#[derive(Clone, Copy, Debug)]
pub(super) struct Ending {
    /// When the grace is over.
    pub(super) kill_at: Boot,
    /// Whether the fence is the reason.
    pub(super) fenced: bool,
}

impl Ending {
    pub(super) fn begin(kill_grace: Duration, fenced: bool) -> Self {
        Self { kill_at: Boot::now().plus(kill_grace), fenced }
    }
}

/// Asks every process of the sandbox to end, but for its first, which takes no such signal and ends with its program.
pub(super) fn terminate(first: i32) {
    for pid in proc::descendants(&proc::all(), &[first]) {
        proc::signal(pid, Signal::SIGTERM);
    }
}

/// Ends what bubblewrap left behind, which is ours once it is gone: killed before it told of its sandbox's first process, it leaves
/// that one to wait for it for ever. Returns once there is nothing.
pub(super) fn kill_orphans() {
    // Mostly there is none, and a look at all processes of the host takes its time.
    let mut waited = waitpid(None, Some(WaitPidFlag::WNOHANG));
    while waited != Err(Errno::ECHILD) {
        let ours = i32::try_from(std::process::id()).unwrap_or(0);
        for pid in proc::descendants(&proc::all(), &[ours]) {
            proc::signal(pid, Signal::SIGKILL);
        }
        waited = waitpid(None, None);
    }
}

/// Kills the sandbox's first process, and bubblewrap, which is all there is before that one exists.
pub(super) fn kill(first: Option<i32>, bubblewrap: i32) {
    first.into_iter().for_each(|first| proc::signal(first, Signal::SIGKILL));
    proc::signal(bubblewrap, Signal::SIGKILL);
}
