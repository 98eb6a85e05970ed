//! What asks us to end: Ctrl-C, `kill`, and the terminal that is closed.

use std::io;
use tokio::signal::unix::{Signal, SignalKind, signal};

/// A signal that came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Caught {
    /// Its name.
    pub(crate) name: &'static str,
    /// The exit code that it stands for.
    pub(crate) code: u8,
}

/// Listens from when it is made.
#[derive(Debug)]
pub(crate) struct Signals {
    interrupt: Signal,
    terminate: Signal,
    hang_up: Option<Signal>,
}

impl Signals {
    /// Begins to listen. Whoever started us under `nohup` wants us to outlive the terminal.
    pub(crate) fn listen() -> io::Result<Self> {
        let hang_up = if is_ignored(1) { None } else { Some(signal(SignalKind::hangup())?) };
        let (interrupt, terminate) = (signal(SignalKind::interrupt())?, signal(SignalKind::terminate())?);
        Ok(Self { interrupt, terminate, hang_up })
    }

    /// Waits for the next one.
    pub(crate) async fn next(&mut self) -> Caught {
        let hang_up = async {
            match &mut self.hang_up {
                Some(signal) => signal.recv().await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            _ = self.interrupt.recv() => Caught { name: "SIGINT", code: 130 },
            _ = self.terminate.recv() => Caught { name: "SIGTERM", code: 143 },
            _ = hang_up => Caught { name: "SIGHUP", code: 129 },
        }
    }
}

/// Whether this process was started with a signal ignored.
fn is_ignored(number: u32) -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let mask = mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or(0);
    mask >> (number - 1) & 1 == 1
}
