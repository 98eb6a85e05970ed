//! SIGTERM from outside: ECS stops the task.
//!
//! A room depends on the runner, so that ECS asks rooms first, and the runner once the last of them has ended. But in which order things end is the
//! runner's to say. So a room does not end, whether anything runs in it or not; it tells the runner, which stops as if it had been asked itself.

use crate::said::{ToRunner, say};
use nix::sys::signal::{SigSet, Signal};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use std::io;
use std::os::unix::net::UnixStream;
use std::thread;

/// Tells the runner once this process is asked to end, also if that has been; the signal is blocked. What runs in the room asks in vain.
pub(crate) fn pass_on(mut control: UnixStream) -> io::Result<()> {
    let mut asked = SigSet::empty();
    asked.add(Signal::SIGTERM);
    let asked = SignalFd::with_flags(&asked, SfdFlags::SFD_CLOEXEC)?;
    thread::Builder::new().spawn(move || {
        while let Ok(Some(signal)) = asked.read_signal() {
            if is_from_outside(signal.ssi_pid) {
                say(&mut control, &ToRunner::AskedToEnd).ok();
                return;
            }
        }
    })?;
    Ok(())
}

/// Whoever is not in this namespace has no number in it.
fn is_from_outside(sender: u32) -> bool {
    sender == 0
}
