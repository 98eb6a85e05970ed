//! What the first process of a container hears after its plan: a line asks all processes to end, and the stream's end ends them.
//!
//! So a container ends with its guard even if nobody can tell the daemon, and no process has to be started in it to end it.

use nix::sys::prctl::set_dumpable;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use std::io::{self, BufRead};

/// What asks for the end.
pub const ASKED: &[u8] = b"end\n";

/// Heeds what comes from `guard` from now on.
///
/// # Errors
///
/// If there can be no thread, or the stream can't be kept from the step, which might hold it open.
pub(super) fn heed(mut guard: impl BufRead + Send + 'static) -> io::Result<()> {
    set_dumpable(false)?;
    std::thread::Builder::new().spawn(move || {
        let mut line = String::new();
        while guard.read_line(&mut line).is_ok_and(|length| length > 0) {
            everybody(Signal::SIGTERM);
            line.clear();
        }
        std::process::exit(128 + Signal::SIGKILL as i32);
    })?;
    Ok(())
}

/// Signals all processes but this one, which is the first of its PID namespace.
fn everybody(signal: Signal) {
    if std::process::id() == 1 {
        kill(Pid::from_raw(-1), signal).ok();
    }
}
