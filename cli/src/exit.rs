//! Exit codes that mean something; `callboard --help` lists them.

use localstack::GivenUp;
use localstack::client::Failed;
use protocol::Status;
use std::io;

/// What was asked can't be: a wrong option, file or value.
pub const USAGE: u8 = 2;
/// The board refused, or could not be asked.
pub const BOARD: u8 = 5;
/// `up` has no Postgres that would stay (EX_UNAVAILABLE).
pub const NO_DATABASE: u8 = 69;
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
    if error.downcast_ref::<GivenUp>().is_some() {
        return NO_DATABASE;
    }
    match error.downcast_ref::<Failed>() {
        Some(Failed::Refused(problem)) if matches!(problem.status, 400 | 404 | 413 | 422) => USAGE,
        Some(Failed::Refused(_) | Failed::Unreachable { .. } | Failed::Strange(_)) => BOARD,
        None => USAGE,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_board_whose_postgres_died_too_often_is_no_wrong_option() {
        let given_up = GivenUp { how: "Postgres ended (signal: 9)".into(), dir: "/var/lib/callboard".into() };
        let error = anyhow::Error::from(given_up);
        assert_eq!(of(&error), 69);
        assert!(error.to_string().contains("signal: 9") && error.to_string().contains("/var/lib/callboard"));
        assert_eq!(of(&anyhow::anyhow!("no such file")), 2);
    }
}
