//! How long to wait before the next try: longer each time, within a bound, and never the same for two workers.

use rand::Rng as _;
use std::time::Duration;

/// The waits of one series of failures, counted from the first.
#[derive(Debug)]
pub struct Backoff {
    first: Duration,
    longest: Duration,
    failures: u32,
}

impl Backoff {
    /// Waits that begin around `first` and double up to `longest`.
    #[must_use]
    pub fn new(first: Duration, longest: Duration) -> Self {
        Self { first, longest, failures: 0 }
    }

    /// The next wait; never shorter than what the answer asked for.
    pub fn next_wait(&mut self, asked_for: Option<Duration>) -> Duration {
        let wait = self.first.saturating_mul(1 << self.failures.min(16)).min(self.longest);
        self.failures = self.failures.saturating_add(1);
        jittered(wait).max(asked_for.unwrap_or_default())
    }

    /// Begins anew, after a success.
    pub fn reset(&mut self) {
        self.failures = 0;
    }
}

/// `wait`, give or take a quarter.
#[must_use]
pub fn jittered(wait: Duration) -> Duration {
    wait.mul_f64(rand::rng().random_range(0.75..1.25))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_double_up_to_the_longest() {
        let mut backoff = Backoff::new(Duration::from_secs(1), Duration::from_secs(4));
        for around in [1.0, 2.0, 4.0, 4.0, 4.0] {
            let wait = backoff.next_wait(None).as_secs_f64();
            assert!((around * 0.75..=around * 1.25).contains(&wait), "{wait} is not around {around}");
        }
    }

    #[test]
    fn an_answer_that_asks_for_more_gets_it() {
        let mut backoff = Backoff::new(Duration::from_millis(1), Duration::from_millis(2));
        assert_eq!(backoff.next_wait(Some(Duration::from_secs(9))), Duration::from_secs(9));
    }
}
