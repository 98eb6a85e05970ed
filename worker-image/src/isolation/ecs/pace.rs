//! How often ECS is asked, and how long it is left alone after it would not answer.

use super::calls::{Answer, Trouble};
use rand::Rng as _;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;
use tokio::time::{Instant, sleep, sleep_until};
use tracing::warn;

/// A call that is made no more often than so many times a second, whoever makes it: a bucket of one token.
#[derive(Debug)]
pub struct Pace {
    every: Duration,
    next: Mutex<Instant>,
}

impl Pace {
    /// So many a second, at least 1.
    #[must_use]
    pub fn per_second(calls: u32) -> Self {
        Self { every: Duration::from_secs(1) / calls.max(1), next: Mutex::new(Instant::now()) }
    }

    /// Waits until it is one's turn.
    pub async fn turn(&self) {
        let at = {
            let mut next = self.next.lock().unwrap_or_else(PoisonError::into_inner);
            let at = (*next).max(Instant::now());
            *next = at + self.every;
            at
        };
        sleep_until(at).await;
    }
}

/// The waits of one series of refusals: anything up to a bound that doubles. Workers that were refused together do not come back together.
#[derive(Debug)]
pub struct FullJitter {
    bound: Duration,
    longest: Duration,
}

impl FullJitter {
    /// Waits of up to `first`, then twice that, up to `longest`.
    #[must_use]
    pub fn new(first: Duration, longest: Duration) -> Self {
        Self { bound: first, longest }
    }

    /// The next wait.
    pub fn next_wait(&mut self) -> Duration {
        let wait = self.bound.mul_f64(rand::rng().random_range(0.0..=1.0));
        self.bound = self.bound.saturating_mul(2).min(self.longest);
        wait
    }
}

impl Default for FullJitter {
    fn default() -> Self {
        Self::new(Duration::from_secs(1), Duration::from_secs(20))
    }
}

/// Makes a call until ECS answers it.
///
/// # Errors
///
/// What ECS says if it refuses.
pub async fn answered<'a, T>(what: &str, call: impl Fn() -> Answer<'a, T> + Send) -> Result<T, String> {
    let mut waits = FullJitter::default();
    loop {
        match call().await {
            Ok(answer) => return Ok(answer),
            Err(Trouble::Refused(why)) => return Err(why),
            Err(Trouble::Throttled(why) | Trouble::Unanswered(why)) => {
                warn!(call = what, why, "no answer of ECS's");
                sleep(waits.next_wait()).await;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures::FutureExt as _;
    use std::future::ready;
    use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

    #[tokio::test]
    async fn a_thousand_at_once_have_a_thousand_turns() {
        let pace = Pace { every: Duration::from_millis(50), next: Mutex::new(Instant::now()) };
        let first = *pace.next.lock().unwrap();
        for _ in 0..1000 {
            // Whoever stops waiting has had a turn: nobody else comes sooner for it.
            tokio::select! { biased; () = pace.turn() => {}, () = std::future::ready(()) => {} }
        }
        let last = *pace.next.lock().unwrap();
        assert!(last - first >= Duration::from_millis(50) * 1000, "20 a second");
    }

    #[test]
    fn waits_are_of_any_length_below_a_bound_that_doubles() {
        let waits = || {
            let mut jitter = FullJitter::new(Duration::from_secs(1), Duration::from_secs(4));
            [1, 2, 4, 4, 4].map(|bound| (jitter.next_wait(), Duration::from_secs(bound)))
        };
        let series: Vec<_> = (0..200).flat_map(|_| waits()).collect();
        assert!(series.iter().all(|(wait, bound)| wait <= bound));
        assert!(series.iter().any(|(wait, bound)| *wait < *bound / 10), "full jitter begins at nothing");
    }

    #[tokio::test]
    async fn a_call_is_made_until_it_is_answered_and_a_refusal_is_an_answer() {
        let count = AtomicU32::new(0);
        let call = || {
            let answer = match count.fetch_add(1, Relaxed) {
                0 => Trouble::Throttled("slow down".into()),
                _ => Trouble::Refused("no such cluster".into()),
            };
            ready(Err(answer)).boxed()
        };
        assert_eq!(answered::<()>("RunTask", call).await, Err("no such cluster".into()));
        assert_eq!(count.load(Relaxed), 2);
    }
}
