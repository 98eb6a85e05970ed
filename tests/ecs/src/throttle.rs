//! Token buckets ("Request throttling for the Amazon ECS API").

use crate::settings::Throttle;
use std::collections::BTreeMap;
use std::time::Duration;

/// The buckets by action, each with when it was last counted.
#[derive(Debug, Default)]
pub(crate) struct Buckets(BTreeMap<String, (f64, Duration)>);

impl Buckets {
    /// Takes a token of `action`'s bucket; whether there was one. `now` is since any one instant.
    pub(crate) fn take(&mut self, action: &str, throttle: Throttle, now: Duration) -> bool {
        let (tokens, counted) = self.0.entry(action.to_owned()).or_insert((throttle.burst, now));
        let gained = now.saturating_sub(*counted).as_secs_f64() * throttle.per_second;
        *tokens = (*tokens + gained).min(throttle.burst);
        *counted = now;
        let is_there = *tokens >= 1.0;
        if is_there {
            *tokens -= 1.0;
        }
        is_there
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TWO: Throttle = Throttle { burst: 2.0, per_second: 4.0 };

    fn check(calls_ms: &[u64], taken: &[bool]) {
        let mut buckets = Buckets::default();
        let took: Vec<_> = calls_ms.iter().map(|at| buckets.take("RunTask", TWO, Duration::from_millis(*at))).collect();
        assert_eq!(took, taken, "{calls_ms:?}");
    }

    #[test]
    fn a_burst_is_taken_and_then_the_sustained_rate() {
        check(&[0, 0, 0, 249, 250, 251, 500], &[true, true, false, false, true, false, true]);
    }

    #[test]
    fn a_bucket_holds_no_more_than_a_burst() {
        check(&[0, 60_000, 60_000, 60_000], &[true, true, true, false]);
    }

    #[test]
    fn each_action_has_its_own() {
        let mut buckets = Buckets::default();
        let mut take = |action| buckets.take(action, Throttle { burst: 1.0, per_second: 0.0 }, Duration::ZERO);
        assert_eq!([take("RunTask"), take("RunTask"), take("StopTask")], [true, false, true]);
    }
}
