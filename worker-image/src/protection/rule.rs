//! When a worker that is protected from scale-in steps aside, and for how long it asks to be protected.

use std::time::Duration;

/// The least that is asked for: if a renewal is refused, what is left is to last for the builds that there are.
const MINUTES_LEAST: u64 = 120;
/// The most that ECS gives.
const MINUTES_MOST: u64 = 2880;
/// In hand beyond the end of the last build: its last logs, its report, and renewals that are late.
const MINUTES_SPARE: u64 = 60;
/// After so many refused renewals in a row also a worker with builds steps aside: until then one without may have done it.
const RENEWALS_BUSY: u32 = 5;
/// The longest wait before stepping aside for idleness.
const PATIENCE_MOST: Duration = Duration::from_secs(3600);

/// How a worker stands that is protected, or would like to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Standing {
    /// How many builds it has.
    pub builds: usize,
    /// For how long it has had none.
    pub idle_for: Duration,
    /// For how long ECS has refused to renew the protection, since its service has more protected tasks than it wants.
    pub blocked_for: Option<Duration>,
}

/// Why a worker steps aside.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Because {
    /// ECS wants fewer workers than are protected, and this one has no build, or nobody else went.
    FewerWanted,
    /// It had nothing to do for so long that ECS may want to have it ended: a deployment is not told to a task that it waits for.
    Idle,
}

/// Whether a worker is to claim no more, and why.
#[must_use]
pub fn steps_aside(now: Standing, patience: Option<Duration>, renew_every: Duration) -> Option<Because> {
    let is_idle = now.builds == 0;
    match now.blocked_for {
        Some(blocked_for) if is_idle || blocked_for >= renew_every * RENEWALS_BUSY => Some(Because::FewerWanted),
        Some(_) | None => {
            (is_idle && patience.is_some_and(|patience| now.idle_for >= patience)).then_some(Because::Idle)
        }
    }
}

/// How long a worker waits without a build before it steps aside: twice as long after each time in a row that ECS did not end it, since
/// a build that comes just then has to wait.
#[must_use]
pub fn patience(idle: Option<Duration>, in_vain: u32) -> Option<Duration> {
    let longest = |idle: Duration| PATIENCE_MOST.max(idle);
    idle.map(|idle| idle.saturating_mul(1 << in_vain.min(16)).min(longest(idle)))
}

/// For how many minutes to be protected, if the last of the builds that there are ends within `busy_for`.
#[must_use]
pub fn minutes(busy_for: Duration) -> u32 {
    let minutes = busy_for.as_secs().div_ceil(60).saturating_add(MINUTES_SPARE).clamp(MINUTES_LEAST, MINUTES_MOST);
    u32::try_from(minutes).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    const EVERY: Duration = Duration::from_secs(60);
    const PATIENCE: Option<Duration> = Some(Duration::from_secs(300));

    fn check(builds: usize, idle_for: u64, blocked_for: Option<u64>, expected: Option<Because>) {
        let seconds = Duration::from_secs;
        let now = Standing { builds, idle_for: seconds(idle_for), blocked_for: blocked_for.map(seconds) };
        assert_eq!(steps_aside(now, PATIENCE, EVERY), expected, "{now:?}");
    }

    #[test]
    fn a_worker_without_builds_steps_aside_as_soon_as_fewer_are_wanted() {
        check(0, 0, Some(0), Some(Because::FewerWanted));
        check(0, 0, None, None);
    }

    #[test]
    fn a_worker_with_builds_leaves_it_to_others_for_five_renewals() {
        check(1, 0, Some(299), None);
        check(1, 0, Some(300), Some(Because::FewerWanted));
        check(8, 0, Some(3000), Some(Because::FewerWanted));
    }

    #[test]
    fn a_worker_steps_aside_once_it_was_idle_for_long_and_never_with_builds() {
        check(0, 299, None, None);
        check(0, 300, None, Some(Because::Idle));
        check(1, 300, None, None);
        let idle = Standing { builds: 0, idle_for: Duration::MAX, blocked_for: None };
        assert_eq!(steps_aside(idle, None, EVERY), None, "where that is not wanted, never");
    }

    #[test]
    fn patience_doubles_up_to_an_hour_or_to_what_was_set() {
        let seconds =
            |idle, in_vain| patience(Some(Duration::from_secs(idle)), in_vain).map(|patience| patience.as_secs());
        assert_eq!([0, 1, 2, 3, 4, 99].map(|times| seconds(300, times)), [300, 600, 1200, 2400, 3600, 3600].map(Some));
        assert_eq!(seconds(7200, 3), Some(7200));
        assert_eq!(patience(None, 3), None);
    }

    #[test]
    fn protection_lasts_for_the_longest_build_and_an_hour_and_no_longer_than_ecs_gives() {
        let check = |seconds, expected| assert_eq!(minutes(Duration::from_secs(seconds)), expected, "{seconds}");
        check(0, 120);
        check(3600, 120);
        check(3601, 121);
        check(86_400, 1500);
        check(u64::MAX, 2880);
    }
}
