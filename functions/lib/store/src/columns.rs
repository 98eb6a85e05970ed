//! What Postgres keeps as signed numbers and words, read as what it means. A CHECK has made sure of it; what can't be all
//! the same reads as the nearest that can.

use crate::Error;
use rules::{EndReason, Status};

/// A count or a number of seconds.
pub(crate) fn count(column: i32) -> u32 {
    u32::try_from(column).unwrap_or(0)
}

/// A `seq`, a number of bytes or of milliseconds.
pub(crate) fn unsigned(column: i64) -> u64 {
    u64::try_from(column).unwrap_or(0)
}

/// A count for a column.
pub(crate) fn signed(count: u32) -> i32 {
    i32::try_from(count).unwrap_or(i32::MAX)
}

/// A build's status.
pub(crate) fn status(word: String) -> Result<Status, Error> {
    Status::parse(&word).ok_or(Error::Unreadable(word))
}

/// Why a build ended. A word of a newer release is `internal`.
pub(crate) fn end_reason(word: String) -> EndReason {
    EndReason::parse(&word).unwrap_or(EndReason::Internal)
}
