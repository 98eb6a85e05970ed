//! How a build's course can fail, and what the board is told of it.

use crate::isolation::Exceeded;
use crate::stop::Why;
use protocol::{EndReason, Status};

/// The longest message, in bytes (SPEC.md, 1).
const MESSAGE_MAX_BYTES: usize = 1024;

/// Why a build did not succeed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fail {
    /// It was to stop.
    Stopped(Why),
    /// Its source could not be fetched.
    Clone(String),
    /// This worker has not got a step's image.
    Image(String),
    /// A task never came up: the worker's own trouble.
    NeverStarted(String),
    /// A step ended with a code other than 0.
    Step {
        /// Its name.
        name: String,
        /// Its exit code.
        code: i32,
    },
    /// A task ended with a code other than 0 after it had met a limit.
    Limit(Exceeded),
    /// The worker's own trouble.
    Internal(String),
    /// What ran it was taken away.
    HostLost(String),
    /// Why, as it was told to this worker; and the same for a person.
    Told(EndReason, String),
}

/// What the board is told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outcome {
    /// The build's status.
    pub status: Status,
    /// Why.
    pub reason: EndReason,
    /// The same for a person.
    pub message: String,
}

impl Fail {
    /// What the board is told; `None` if the build is not ours any more.
    #[must_use]
    pub fn outcome(&self) -> Option<Outcome> {
        let (status, reason) = match self {
            Self::Stopped(why) => why.ending()?,
            Self::Clone(_) => (Status::Failed, EndReason::CloneFailed),
            Self::Image(_) => (Status::Failed, EndReason::ImageFailed),
            Self::NeverStarted(_) => (Status::Failed, EndReason::NeverStarted),
            Self::Step { .. } => (Status::Failed, EndReason::StepFailed),
            Self::Limit(Exceeded::Memory) => (Status::Failed, EndReason::OutOfMemory),
            Self::Limit(Exceeded::Disk) => (Status::Failed, EndReason::DiskFull),
            Self::Internal(_) => (Status::Failed, EndReason::Internal),
            Self::HostLost(_) => (Status::Failed, EndReason::HostLost),
            Self::Told(reason, _) => (reason.status(), *reason),
        };
        Some(Outcome { status, reason, message: self.message() })
    }

    /// The same for a person, at most 1 KiB.
    #[must_use]
    pub fn message(&self) -> String {
        let message = match self {
            Self::Stopped(why) => why.message().to_owned(),
            Self::Clone(why) => format!("clone failed: {why}"),
            Self::Image(why) | Self::Internal(why) | Self::Told(_, why) => why.clone(),
            Self::HostLost(why) => format!("what ran the build was taken away: {why}"),
            Self::NeverStarted(why) => format!("the sandbox did not start: {why}"),
            Self::Step { name, code } => format!("step {name:?} ended with exit code {code}"),
            Self::Limit(Exceeded::Memory) => "the step used up its memory".to_owned(),
            Self::Limit(Exceeded::Disk) => "the build used up its disk space".to_owned(),
        };
        message[..message.floor_char_boundary(MESSAGE_MAX_BYTES)].to_owned()
    }

    /// Whether the worker or its host is at fault: three of those in a row and it claims no more.
    #[must_use]
    pub fn is_ours(&self) -> bool {
        match self {
            Self::NeverStarted(_) | Self::Internal(_) => true,
            Self::Stopped(_)
            | Self::Clone(_)
            | Self::Image(_)
            | Self::Step { .. }
            | Self::Limit(_)
            | Self::HostLost(_)
            | Self::Told(..) => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_message_is_cut_between_characters() {
        let message = Fail::Clone("ü".repeat(1000)).message();
        assert!(message.len() <= MESSAGE_MAX_BYTES && message.len() > MESSAGE_MAX_BYTES - 2);
    }

    #[test]
    fn a_lost_build_is_not_reported() {
        assert_eq!(Fail::Stopped(Why::Lost).outcome(), None);
    }
}
