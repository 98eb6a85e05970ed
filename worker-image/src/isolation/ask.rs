//! What the first process of a container hears after its plan: until when it may go on, that all processes are asked to end, and
//! the stream's end, which ends them.
//!
//! So a container ends with its guard even if nobody can tell the daemon, and no process has to be started in it to end it. And it
//! ends in time if the stream stays open and nothing comes through: a daemon that hangs holds it open for a guard that is gone.

use crate::clock::Boot;
use nix::sys::prctl::set_dumpable;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use std::io::{self, BufRead};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::thread;
use std::time::Duration;

/// How often it is looked whether the time has come: a sleep stands still in a suspend, the clock does not.
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// What is said, a line each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Said {
    /// All processes are asked to end.
    End,
    /// They may go on until then, an instant of the guard's clock.
    Until(Boot),
}

impl Said {
    /// The line for it, at the instant `now`. It names a duration: a container's clock may be another one.
    #[must_use]
    pub fn line(self, now: Boot) -> String {
        match self {
            Self::End => "end\n".into(),
            Self::Until(at) => format!("until {}\n", at.0.saturating_sub(now.0)),
        }
    }

    /// What a line that came at `now` says; none if it is not one of ours.
    fn heard(line: &str, now: Boot) -> Option<Self> {
        match line.trim_end().split_once(' ') {
            None if line.trim_end() == "end" => Some(Self::End),
            Some(("until", left_ms)) => left_ms.parse().ok().map(|ms| Self::Until(now.plus(Duration::from_millis(ms)))),
            None | Some(_) => None,
        }
    }
}

/// Heeds what comes from `guard` from now on.
///
/// # Errors
///
/// If there can be no thread, or the stream can't be kept from the step, which might hold it open.
pub(crate) fn heed(mut guard: impl BufRead + Send + 'static) -> io::Result<()> {
    set_dumpable(false)?;
    let until = Arc::new(AtomicU64::new(u64::MAX));
    let heard = Arc::clone(&until);
    thread::Builder::new().spawn(move || {
        let mut line = String::new();
        while guard.read_line(&mut line).is_ok_and(|length| length > 0) {
            match Said::heard(&line, Boot::now()) {
                Some(Said::End) => everybody(Signal::SIGTERM),
                Some(Said::Until(at)) => heard.store(at.0, Relaxed),
                None => {}
            }
            line.clear();
        }
        end();
    })?;
    thread::Builder::new().spawn(move || {
        while !Boot(until.load(Relaxed)).has_come() {
            thread::sleep(LOOK_EVERY);
        }
        end();
    })?;
    Ok(())
}

/// With the first process the kernel ends all others.
fn end() -> ! {
    std::process::exit(128 + Signal::SIGKILL as i32)
}

/// Signals all processes but this one, which is the first of its PID namespace.
fn everybody(signal: Signal) {
    if std::process::id() == 1 {
        kill(Pid::from_raw(-1), signal).ok();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_said_is_heard_whatever_the_clock_of_whoever_hears_it() {
        let heard = |said: Said, now: Boot| Said::heard(&said.line(Boot(1_000)), now);
        assert_eq!(heard(Said::End, Boot(7)), Some(Said::End));
        assert_eq!(heard(Said::Until(Boot(1_500)), Boot(7)), Some(Said::Until(Boot(507))));
        assert_eq!(heard(Said::Until(Boot(900)), Boot(7)), Some(Said::Until(Boot(7))), "what has passed is now");
        assert_eq!(heard(Said::Until(Boot(u64::MAX)), Boot(2_000)), Some(Said::Until(Boot(u64::MAX))));
        assert_eq!(Said::heard("later\n", Boot(7)), None);
    }
}
