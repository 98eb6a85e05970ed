//! Exit codes that mean something; `callboard --help` lists them.

use localstack::client::Failed;
use protocol::Status;
use std::io;

/// What was asked can't be: a wrong option, file or value.
pub const USAGE: u8 = 2;
/// The board refused, or could not be asked.
pub const BOARD: u8 = 5;
/// Ended by Ctrl-C.
pub const INTERRUPTED: u8 = 130;
/// Nobody reads what is printed: what a shell calls SIGPIPE. Never 0, which would claim a success.
pub const UNREAD: u8 = 141;

/// The exit code of a build that was followed to its end.
#[must_use]
pub fn of_build(status: Status) -> u8 {
    match status {
        Status::Success => 0,
        Status::Failed | Status::Pending | Status::Running => 1,
        Status::Cancelled => 3,
        Status::TimedOut => 4,
    }
}

/// The exit code of a command that came to nothing.
#[must_use]
pub fn of(error: &anyhow::Error) -> u8 {
    let unread = |error: &io::Error| error.kind() == io::ErrorKind::BrokenPipe;
    if error.downcast_ref::<io::Error>().is_some_and(unread) {
        return UNREAD;
    }
    match error.downcast_ref::<Failed>() {
        Some(Failed::Refused(problem)) if matches!(problem.status, 400 | 404 | 413 | 422) => USAGE,
        Some(Failed::Refused(_) | Failed::Unreachable { .. } | Failed::Strange(_)) => BOARD,
        None => USAGE,
    }
}
