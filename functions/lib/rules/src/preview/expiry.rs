//! When a preview's time is over, and how far it may be put off.

use super::State;
use crate::{Seconds, Timestamp, Timing};
use std::time::Duration;

/// What an extension comes to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Extension {
    /// It expires then.
    Until(Timestamp),
    /// It is neither starting nor running.
    Ended,
    /// Longer than the plan allows, from now on.
    TooLong(Seconds),
    /// The plan can't be read, so nobody knows how long it may live.
    NoPlan,
}

/// Decides until when a preview lives that is to live for `wanted` from now on: never shorter than it would anyway.
///
/// `longest` is the plan's; `None`: it can't be read. One that is past its expiry but not yet swept may still be extended.
#[must_use]
pub fn extend(
    state: State,
    expires_at: Timestamp,
    wanted: Seconds,
    longest: Option<Seconds>,
    now: Timestamp,
) -> Extension {
    match longest {
        _ if !state.is_live() => Extension::Ended,
        None => Extension::NoPlan,
        Some(longest) if wanted > longest => Extension::TooLong(longest),
        Some(_) => Extension::Until(expires_at.max(now.plus(Duration::from_millis(wanted.as_ms())))),
    }
}

/// What the clean-up makes of a preview, if anything; at the very instant of its expiry its time is over. The database's
/// sweep repeats it; a test holds the two equal.
#[must_use]
pub fn due(state: State, retain_failed: bool, expires_at: Timestamp, now: Timestamp) -> Option<State> {
    let is_over = now >= expires_at;
    match state {
        State::Running => is_over.then_some(State::Expired),
        State::Starting => is_over.then_some(State::Destroying),
        State::Failed => (is_over && !retain_failed).then_some(State::Destroying),
        State::Expired => Some(State::Destroying),
        State::Destroying | State::Destroyed => None,
    }
}

/// Whether a scheduled sweep is to clean up previews, given when one last did. Half the time between sweeps early counts as on
/// time, so that a sweep which comes a moment early does not put it off for a whole round. An interval of zero is never.
#[must_use]
pub fn is_cleanup_due(last: Option<Timestamp>, timing: &Timing, now: Timestamp) -> bool {
    if timing.preview_cleanup_every.is_zero() {
        return false;
    }
    let early = timing.preview_cleanup_every.saturating_sub(timing.reap_every / 2);
    last.is_none_or(|last| now >= last.plus(early))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use proptest::sample::select;

    const NOW: Timestamp = Timestamp(1_000_000);

    fn at(seconds: i64) -> Timestamp {
        Timestamp(NOW.0 + seconds * 1000)
    }

    #[test]
    fn an_extension_counts_from_now_and_never_shortens() {
        let check = |expires, wanted, expected| {
            assert_eq!(extend(State::Running, expires, Seconds(wanted), Some(Seconds(3600)), NOW), expected);
        };
        check(at(60), 120, Extension::Until(at(120)));
        check(at(300), 120, Extension::Until(at(300)));
        check(at(-5), 120, Extension::Until(at(120)));
        check(at(60), 3600, Extension::Until(at(3600)));
        check(at(60), 3601, Extension::TooLong(Seconds(3600)));
    }

    #[test]
    fn only_what_lives_is_extended_and_only_under_a_plan() {
        for state in State::ALL {
            let extended = extend(*state, at(60), Seconds(1), Some(Seconds(9)), NOW);
            assert_eq!(extended == Extension::Ended, !state.is_live(), "{state}");
        }
        assert_eq!(extend(State::Starting, at(60), Seconds(1), None, NOW), Extension::NoPlan);
    }

    #[test]
    fn time_is_over_at_the_instant_of_expiry() {
        for (state, retain, after) in [
            (State::Running, false, Some(State::Expired)),
            (State::Running, true, Some(State::Expired)),
            (State::Starting, true, Some(State::Destroying)),
            (State::Failed, false, Some(State::Destroying)),
            (State::Failed, true, None),
            (State::Destroying, false, None),
            (State::Destroyed, false, None),
        ] {
            assert_eq!(due(state, retain, NOW, NOW), after, "{state}");
            assert_eq!(due(state, retain, Timestamp(NOW.0 + 1), NOW), None, "{state}");
        }
        assert_eq!(due(State::Expired, true, at(60), NOW), Some(State::Destroying));
    }

    #[test]
    fn an_interval_of_zero_is_never_and_a_moment_early_is_on_time() {
        let timing = Timing { preview_cleanup_every: Duration::from_secs(60), ..Timing::default() };
        assert!(is_cleanup_due(None, &timing, NOW));
        assert!(is_cleanup_due(Some(at(-45)), &timing, NOW) && !is_cleanup_due(Some(at(-44)), &timing, NOW));
        let off = Timing { preview_cleanup_every: Duration::ZERO, ..timing };
        assert!(!is_cleanup_due(None, &off, NOW) && !is_cleanup_due(Some(at(-9999)), &off, NOW));
    }

    proptest! {
        #[test]
        fn what_is_due_is_the_schedulers_to_do(state in select(State::ALL), retain: bool, expires in -9_i64..9) {
            if let Some(to) = due(state, retain, at(expires), NOW) {
                prop_assert!(state.may_become(to, super::super::Actor::Scheduler));
            }
        }
    }
}
