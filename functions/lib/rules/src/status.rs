//! The states of a build, why it ended, and which step from one to another is allowed (SPEC.md, 1).

use serde::{Deserialize, Deserializer};

macro_rules! words {
    ($(#[$doc:meta])* $name:ident { $($(#[$vdoc:meta])* $variant:ident = $word:literal,)+ }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, ::serde::Serialize)]
        pub enum $name { $($(#[$vdoc])* #[serde(rename = $word)] $variant,)+ }

        impl $name {
            /// Every value, in the order of SPEC.md.
            pub const ALL: &'static [Self] = &[$(Self::$variant,)+];

            /// The word on the wire and in the database.
            #[must_use]
            pub fn as_str(self) -> &'static str {
                match self { $(Self::$variant => $word,)+ }
            }

            /// The value that `word` names, if it is one of ours.
            #[must_use]
            pub fn parse(word: &str) -> Option<Self> {
                match word { $($word => Some(Self::$variant),)+ _ => None }
            }
        }

        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.pad(self.as_str())
            }
        }
    };
}

pub(crate) use words;

words! {
    /// The state of a build. The last four are final.
    Status {
        /// Admitted, waiting for a worker.
        Pending = "pending",
        /// Claimed by a worker that holds a lease.
        Running = "running",
        /// Every step ended with exit code 0.
        Success = "success",
        /// A step, the worker or the build itself was at fault; see the end reason.
        Failed = "failed",
        /// The worker ended it at its deadline.
        TimedOut = "timed_out",
        /// Somebody asked for its end.
        Cancelled = "cancelled",
    }
}

words! {
    /// Why a build ended, apart from its status. Retry rules hang on these values.
    EndReason {
        /// A step's exit code was not 0.
        StepFailed = "step_failed",
        /// A step ran longer than its own timeout.
        StepTimeout = "step_timeout",
        /// A step wrote nothing for longer than allowed.
        SilentTimeout = "silent_timeout",
        /// The repository or the ref could not be fetched.
        CloneFailed = "clone_failed",
        /// A step's image is not to be had on this worker.
        ImageFailed = "image_failed",
        /// The isolated task of a step never came up.
        NeverStarted = "never_started",
        /// A step used more memory than it may.
        OutOfMemory = "out_of_memory",
        /// A step filled its workspace.
        DiskFull = "disk_full",
        /// Reserved for pipelines that ask to fail at the log cap.
        LogLimit = "log_limit",
        /// The lease lapsed and was reaped.
        WorkerLost = "worker_lost",
        /// The host below the worker went away.
        HostLost = "host_lost",
        /// Still running past its deadline and the grace.
        Overdue = "overdue",
        /// The worker was shut down and could not wait.
        WorkerShutdown = "worker_shutdown",
        /// Left behind by an earlier process of the worker.
        Recovery = "recovery",
        /// Our fault.
        Internal = "internal",
        /// The build's deadline was reached.
        Deadline = "deadline",
        /// A person cancelled it.
        User = "user",
        /// A newer build took its place.
        Superseded = "superseded",
        /// Its pipeline no longer exists.
        NoPipeline = "no_pipeline",
        /// Its repository is not an https address without credentials.
        RepositoryNotHttps = "repository_not_https",
        /// Its ref is not one that git accepts.
        BadRef = "bad_ref",
        /// The workspace's month is spent.
        MinutesExhausted = "minutes_exhausted",
        /// It waited longer than a build may.
        QueueExpired = "queue_expired",
    }
}

words! {
    /// Why a running build is to stop, as a heartbeat's answer says it.
    CancelReason {
        /// A person asked.
        User = "user",
        /// A newer build takes its place.
        Superseded = "superseded",
    }
}

impl<'de> Deserialize<'de> for Status {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let word = String::deserialize(from)?;
        Self::parse(&word).ok_or_else(|| {
            serde::de::Error::custom("not a status: pending, running, success, failed, timed_out or cancelled")
        })
    }
}

/// An unknown reason reads as `internal`: workers and functions are upgraded apart.
impl<'de> Deserialize<'de> for EndReason {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        Ok(Self::parse(&String::deserialize(from)?).unwrap_or(Self::Internal))
    }
}

/// An unknown reason reads as `user`: workers and functions are upgraded apart.
impl<'de> Deserialize<'de> for CancelReason {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        Ok(Self::parse(&String::deserialize(from)?).unwrap_or(Self::User))
    }
}

impl From<CancelReason> for EndReason {
    fn from(reason: CancelReason) -> Self {
        match reason {
            CancelReason::User => Self::User,
            CancelReason::Superseded => Self::Superseded,
        }
    }
}

/// Who moves a build from one state to another.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Actor {
    /// A worker that asked for work.
    Claim,
    /// The worker that holds the build.
    Complete,
    /// The scheduled sweep.
    Reaper,
    /// Somebody who cancels.
    Cancel,
}

impl Status {
    /// Whether nothing may change it any more.
    #[must_use]
    pub fn is_final(self) -> bool {
        match self {
            Self::Pending | Self::Running => false,
            Self::Success | Self::Failed | Self::TimedOut | Self::Cancelled => true,
        }
    }

    /// Whether `actor` may move a build from `self` to `to`: the state table of SPEC.md, section 1.
    #[must_use]
    pub fn may_become(self, to: Self, actor: Actor) -> bool {
        match (self, to) {
            (Self::Pending, Self::Running) => actor == Actor::Claim,
            (Self::Pending, Self::Failed) => matches!(actor, Actor::Claim | Actor::Reaper),
            (Self::Pending, Self::Cancelled) => actor == Actor::Cancel,
            (Self::Running, Self::Success | Self::TimedOut | Self::Cancelled) => actor == Actor::Complete,
            (Self::Running, Self::Failed) => matches!(actor, Actor::Complete | Actor::Reaper),
            (Self::Pending | Self::Running, _)
            | (Self::Success | Self::Failed | Self::TimedOut | Self::Cancelled, _) => false,
        }
    }
}

impl EndReason {
    /// The status that this reason belongs to.
    #[must_use]
    pub fn status(self) -> Status {
        match self {
            Self::Deadline => Status::TimedOut,
            Self::User | Self::Superseded => Status::Cancelled,
            Self::StepFailed
            | Self::StepTimeout
            | Self::SilentTimeout
            | Self::CloneFailed
            | Self::ImageFailed
            | Self::NeverStarted
            | Self::OutOfMemory
            | Self::DiskFull
            | Self::LogLimit
            | Self::WorkerLost
            | Self::HostLost
            | Self::Overdue
            | Self::WorkerShutdown
            | Self::Recovery
            | Self::Internal
            | Self::NoPipeline
            | Self::RepositoryNotHttps
            | Self::BadRef
            | Self::MinutesExhausted
            | Self::QueueExpired => Status::Failed,
        }
    }

    /// Whether only builds that were never started end for it; nothing is charged for those.
    #[must_use]
    pub fn is_unstarted(self) -> bool {
        match self {
            Self::NoPipeline
            | Self::RepositoryNotHttps
            | Self::BadRef
            | Self::MinutesExhausted
            | Self::QueueExpired => true,
            Self::StepFailed
            | Self::StepTimeout
            | Self::SilentTimeout
            | Self::CloneFailed
            | Self::ImageFailed
            | Self::NeverStarted
            | Self::OutOfMemory
            | Self::DiskFull
            | Self::LogLimit
            | Self::WorkerLost
            | Self::HostLost
            | Self::Overdue
            | Self::WorkerShutdown
            | Self::Recovery
            | Self::Internal
            | Self::Deadline
            | Self::User
            | Self::Superseded => false,
        }
    }

    /// Whether a worker may report it in a complete.
    #[must_use]
    pub fn is_workers(self) -> bool {
        !self.is_unstarted() && !matches!(self, Self::WorkerLost | Self::Overdue)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use proptest::sample::select;

    #[test]
    fn nothing_leaves_a_final_status() {
        for from in Status::ALL.iter().filter(|status| status.is_final()) {
            for to in Status::ALL {
                for actor in [Actor::Claim, Actor::Complete, Actor::Reaper, Actor::Cancel] {
                    assert!(!from.may_become(*to, actor), "{from} to {to} by {actor:?}");
                }
            }
        }
    }

    #[test]
    fn the_state_table_of_the_contract() {
        let mut allowed = Vec::new();
        for (from, to) in Status::ALL.iter().flat_map(|from| Status::ALL.iter().map(move |to| (*from, *to))) {
            for actor in [Actor::Claim, Actor::Complete, Actor::Reaper, Actor::Cancel] {
                if from.may_become(to, actor) {
                    allowed.push((from, to, actor));
                }
            }
        }
        use Status::{Cancelled, Failed, Pending, Running, Success, TimedOut};
        assert_eq!(
            allowed,
            [
                (Pending, Running, Actor::Claim),
                (Pending, Failed, Actor::Claim),
                (Pending, Failed, Actor::Reaper),
                (Pending, Cancelled, Actor::Cancel),
                (Running, Success, Actor::Complete),
                (Running, Failed, Actor::Complete),
                (Running, Failed, Actor::Reaper),
                (Running, TimedOut, Actor::Complete),
                (Running, Cancelled, Actor::Complete),
            ]
        );
    }

    #[test]
    fn every_reason_belongs_to_a_final_status_other_than_success() {
        for reason in EndReason::ALL {
            assert!(reason.status().is_final() && reason.status() != Status::Success, "{reason}");
        }
    }

    proptest! {
        #[test]
        fn a_build_ends_after_at_most_two_moves(moves in prop::collection::vec((select(Status::ALL), 0_usize..4), 0..40)) {
            let actors = [Actor::Claim, Actor::Complete, Actor::Reaper, Actor::Cancel];
            let (mut status, mut taken) = (Status::Pending, 0);
            for (to, actor) in moves {
                if status.may_become(to, actors[actor]) {
                    status = to;
                    taken += 1;
                }
            }
            prop_assert!(taken <= 2);
        }

        #[test]
        fn words_are_read_back(at in 0..EndReason::ALL.len()) {
            let reason = EndReason::ALL[at];
            prop_assert_eq!(EndReason::parse(reason.as_str()), Some(reason));
        }
    }
}
