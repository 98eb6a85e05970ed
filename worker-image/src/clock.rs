//! The clock that leases and deadlines are counted on: CLOCK_BOOTTIME, which also runs while the host is suspended.
//!
//! The board tells durations, never instants (SPEC.md, Time). Each is counted from the moment the request was sent.
//! All processes of one host see the same value, so that an instant may be handed from the worker to a guard.

use nix::time::{ClockId, clock_gettime};
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// How long a sleeper may oversleep after a suspend: timers stand still in one, this clock does not.
const SLICE: Duration = Duration::from_secs(1);

/// An instant of this host's CLOCK_BOOTTIME, in milliseconds since boot.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Boot(pub u64);

impl Boot {
    /// The present instant.
    ///
    /// # Panics
    ///
    /// If the kernel has no CLOCK_BOOTTIME (Linux before 2.6.39).
    #[must_use]
    pub fn now() -> Self {
        let now = clock_gettime(ClockId::CLOCK_BOOTTIME).expect("Linux has CLOCK_BOOTTIME");
        let seconds = u64::try_from(now.tv_sec()).unwrap_or(0);
        let millis = u64::try_from(now.tv_nsec() / 1_000_000).unwrap_or(0);
        Self(seconds * 1000 + millis)
    }

    /// This instant and `by` more.
    #[must_use]
    pub fn plus(self, by: Duration) -> Self {
        Self(self.0.saturating_add(millis(by)))
    }

    /// How long after `earlier` this instant is; zero if it is not.
    #[must_use]
    pub fn since(self, earlier: Self) -> Duration {
        Duration::from_millis(self.0.saturating_sub(earlier.0))
    }

    /// Whether this instant has come.
    #[must_use]
    pub fn has_come(self) -> bool {
        Self::now() >= self
    }
}

/// `duration` in whole milliseconds.
#[must_use]
pub fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

/// Sleeps until `at()` has come; asked again at least every second, since a deadline may move and a host may suspend.
pub async fn sleep_until(at: impl Fn() -> Boot) {
    loop {
        let left = at().since(Boot::now());
        if left.is_zero() {
            return;
        }
        tokio::time::sleep(left.min(SLICE)).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_instant_that_lies_ahead_is_not_negative_time_ago() {
        assert_eq!(Boot(5).since(Boot(7)), Duration::ZERO);
        assert_eq!(Boot(7).since(Boot(5)), Duration::from_millis(2));
    }

    #[test]
    fn the_clock_does_not_go_back() {
        let before = Boot::now();
        assert!(Boot::now() >= before);
        assert!(before.has_come());
    }
}
