//! When a lease lapses, when a build is lost or overdue, and when a worker must fence itself (SPEC.md, 1).

use crate::{Timestamp, Timing};
use std::time::Duration;

/// What the reaper finds wrong with a running build.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Due {
    /// Its lease lapsed longer ago than the grace: `worker lost`.
    Lost,
    /// It still runs although its deadline passed longer ago than the grace.
    Overdue,
}

/// Decides whether a running build is to be ended by the reaper. A lapse of exactly the grace is not yet due; of two
/// reasons the lost lease is named, since it says more.
#[must_use]
pub fn due(lease_expires_at: Timestamp, deadline_at: Timestamp, timing: &Timing, now: Timestamp) -> Option<Due> {
    if now > lease_expires_at.plus(timing.lease_grace) {
        Some(Due::Lost)
    } else if now > deadline_at.plus(timing.deadline_grace) {
        Some(Due::Overdue)
    } else {
        None
    }
}

/// How long after it *sent* its last acknowledged renewal a worker must begin to end its steps, so that all are dead
/// with the margin to spare before the reaper may declare the build lost: lease + grace − kill grace − margin. Zero
/// where the settings leave no room.
#[must_use]
pub fn fence_after(lease: Duration, lease_grace: Duration, kill_grace: Duration, margin: Duration) -> Duration {
    (lease + lease_grace).saturating_sub(kill_grace + margin)
}

/// Whether the sweep that comes now is the first after an outage: none ran for longer than lease + grace. The very
/// first sweep of a new board has nobody to wait for.
#[must_use]
pub fn is_outage(last_sweep_at: Option<Timestamp>, timing: &Timing, now: Timestamp) -> bool {
    last_sweep_at.is_some_and(|last| now > last.plus(timing.lease + timing.lease_grace))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn lapsed_for(seconds: i64) -> Option<Due> {
        let lease_end = Timestamp(1_000_000);
        due(lease_end, Timestamp(i64::MAX / 2), &Timing::default(), Timestamp(1_000_000 + seconds * 1000))
    }

    #[test]
    fn a_lease_is_lost_after_the_grace_and_not_at_it() {
        assert_eq!([lapsed_for(0), lapsed_for(119), lapsed_for(120)], [None, None, None]);
        assert_eq!(lapsed_for(121), Some(Due::Lost));
    }

    #[test]
    fn a_build_is_overdue_after_the_grace_although_its_lease_holds() {
        let past = |seconds: i64| {
            let now = Timestamp(1_000_000 + seconds * 1000);
            due(now, Timestamp(1_000_000), &Timing::default(), now)
        };
        assert_eq!((past(120), past(121)), (None, Some(Due::Overdue)));
    }

    #[test]
    fn the_fence_of_the_contract_is_155_seconds_after_the_last_renewal() {
        let spec = Timing::default();
        let fence = fence_after(spec.lease, spec.lease_grace, spec.kill_grace, spec.fence_margin);
        assert_eq!(fence, Duration::from_secs(155));
    }

    #[test]
    fn an_outage_is_longer_than_lease_and_grace() {
        let at = |seconds: i64| is_outage(Some(Timestamp(0)), &Timing::default(), Timestamp(seconds * 1000));
        assert_eq!((at(180), at(181)), (false, true));
        assert!(!is_outage(None, &Timing::default(), Timestamp(i64::MAX)));
    }

    proptest! {
        #[test]
        fn what_is_fenced_is_dead_before_the_board_calls_it_lost(
            lease in 0_u64..600, grace in 0_u64..600, kill in 0_u64..60, margin in 0_u64..60, sent in 0_i64..1_000_000_000,
            answered_after in 0_u64..600,
        ) {
            let s = Duration::from_secs;
            let timing = Timing { lease: s(lease), lease_grace: s(grace), ..Timing::default() };
            let fence = fence_after(s(lease), s(grace), s(kill), s(margin));
            prop_assume!(fence > Duration::ZERO);
            let sent = Timestamp(sent);
            // The board counts from when it answered, which is after the worker sent.
            let lease_end = sent.plus(s(answered_after)).plus(s(lease));
            let dead = sent.plus(fence).plus(s(kill));
            let lost = due(lease_end, Timestamp(i64::MAX / 2), &timing, dead.plus(s(margin)));
            prop_assert_eq!(lost, None);
        }
    }
}
