//! Why a build is to stop before its steps are through, and which reason stands if several come at once.
//!
//! The first reason stands, with one exception: a build that is no longer ours is dropped without a report, whatever
//! else was the matter.

use protocol::{CancelReason, EndReason, Status};
use std::sync::Arc;
use tokio::sync::watch;

/// Why a build is to stop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Why {
    /// The board no longer lets us have it (401, 404 or `build_ended`): drop it, report nothing.
    Lost,
    /// The lease could not be renewed in time, so the guard ended the steps.
    Fenced,
    /// The network of its containers broke.
    NetworkLost,
    /// The build's deadline.
    Deadline,
    /// The running step's own timeout.
    StepTimeout,
    /// The running step wrote nothing for too long.
    Silent,
    /// Somebody asked for its end.
    Cancel(CancelReason),
    /// The worker shuts down and can't wait.
    Shutdown,
}

impl Why {
    /// How the build ends because of it; `None` if that is no longer ours to say.
    #[must_use]
    pub fn ending(self) -> Option<(Status, EndReason)> {
        match self {
            Self::Lost => None,
            Self::Fenced | Self::NetworkLost => Some((Status::Failed, EndReason::Internal)),
            Self::Deadline => Some((Status::TimedOut, EndReason::Deadline)),
            Self::StepTimeout => Some((Status::Failed, EndReason::StepTimeout)),
            Self::Silent => Some((Status::Failed, EndReason::SilentTimeout)),
            Self::Cancel(reason) => Some((Status::Cancelled, reason.into())),
            Self::Shutdown => Some((Status::Failed, EndReason::WorkerShutdown)),
        }
    }

    /// The same for a person.
    #[must_use]
    pub fn message(self) -> &'static str {
        match self {
            Self::Lost => "the board took the build away",
            Self::Fenced => "the lease could not be renewed in time, so the steps were ended",
            Self::NetworkLost => "the network of the build's containers broke, so the steps were ended",
            Self::Deadline => "the build reached its deadline",
            Self::StepTimeout => "the step reached its timeout",
            Self::Silent => "the step wrote nothing for as long as this worker allows",
            Self::Cancel(CancelReason::User) => "cancelled",
            Self::Cancel(CancelReason::Superseded) => "superseded by a newer build",
            Self::Shutdown => "the worker was shut down",
        }
    }
}

/// Which reason stands once `new` comes after `old`.
#[must_use]
pub fn standing(old: Option<Why>, new: Why) -> Why {
    match (old, new) {
        (None, new) | (Some(_), new @ Why::Lost) => new,
        (Some(old), _) => old,
    }
}

/// One build's wish to stop: anybody may utter it, from any thread; whoever runs the build heeds it.
#[derive(Clone, Debug)]
pub struct Stop {
    why: Arc<watch::Sender<Option<Why>>>,
}

impl Default for Stop {
    fn default() -> Self {
        Self { why: Arc::new(watch::Sender::new(None)) }
    }
}

impl Stop {
    /// Asks for the build's end.
    pub fn ask(&self, new: Why) {
        self.why.send_if_modified(|why| {
            let stands = Some(standing(*why, new));
            let changed = *why != stands;
            *why = stands;
            changed
        });
    }

    /// The reason that stands, if any.
    #[must_use]
    pub fn why(&self) -> Option<Why> {
        *self.why.borrow()
    }

    /// Waits until the build is no longer ours.
    pub async fn is_lost(&self) {
        let mut why = self.why.subscribe();
        if why.wait_for(|why| *why == Some(Why::Lost)).await.is_err() {
            std::future::pending::<()>().await;
        }
    }

    /// Waits until somebody asks.
    ///
    /// # Panics
    ///
    /// Never: the sender lives as long as `self`.
    pub async fn asked(&self) -> Why {
        let mut why = self.why.subscribe();
        let stands = *why.wait_for(Option::is_some).await.expect("the sender lives as long as self");
        stands.unwrap_or(Why::Lost)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALL: [Why; 8] = [
        Why::Lost,
        Why::Fenced,
        Why::NetworkLost,
        Why::Deadline,
        Why::StepTimeout,
        Why::Silent,
        Why::Cancel(CancelReason::User),
        Why::Shutdown,
    ];

    #[test]
    fn the_first_reason_stands() {
        assert_eq!(standing(Some(Why::Deadline), Why::Cancel(CancelReason::User)), Why::Deadline);
        assert_eq!(standing(Some(Why::Cancel(CancelReason::User)), Why::Deadline), Why::Cancel(CancelReason::User));
        assert_eq!(standing(Some(Why::Shutdown), Why::StepTimeout), Why::Shutdown);
    }

    #[test]
    fn a_lost_build_is_lost_whatever_came_before_or_after() {
        for why in ALL {
            assert_eq!(standing(Some(why), Why::Lost), Why::Lost);
            assert_eq!(standing(Some(Why::Lost), why), Why::Lost);
        }
    }

    #[test]
    fn every_ending_is_one_that_a_worker_may_report() {
        for (status, reason) in ALL.into_iter().filter_map(Why::ending) {
            assert_eq!(reason.status(), status);
            assert!(reason.is_workers());
        }
    }

    #[tokio::test]
    async fn who_waits_is_told_the_first_reason() {
        let stop = Stop::default();
        stop.ask(Why::Deadline);
        stop.ask(Why::Shutdown);
        assert_eq!(stop.asked().await, Why::Deadline);
    }
}
