//! What is done again and again: the stand-in for the scheduled function's rule.

use std::time::Duration;
use tokio::task::JoinHandle;
use tokio::time::{Instant, MissedTickBehavior, interval_at, timeout};

/// How long one run may take. A longer one is given up, since the next waits for it.
const RUN_MAX: Duration = Duration::from_secs(300);

/// Runs `job` after each `period` until the handle is aborted, one run after the other. Of runs that were missed, by a machine that slept or
/// a process that was stopped, one is made up for. One that panics or takes more than five minutes is told in the log, and the next comes
/// in its time.
pub(crate) fn every<F>(period: Duration, job: impl Fn() -> F + Send + 'static) -> JoinHandle<()>
where
    F: Future<Output = ()> + Send + 'static,
{
    tokio::spawn(async move {
        let mut ticks = interval_at(Instant::now() + period, period);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            ticks.tick().await;
            match tokio::spawn(timeout(RUN_MAX, job())).await {
                Ok(Ok(())) => {}
                Ok(Err(_)) => tracing::error!("a scheduled run took more than {RUN_MAX:?} and was given up"),
                Err(error) => tracing::error!(%error, "a scheduled run broke off"),
            }
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU32, Ordering};
    use tokio::time::sleep;

    const PERIOD: Duration = Duration::from_millis(20);

    /// Waits until there were as many runs more.
    async fn more(runs: &AtomicU32, wanted: u32) {
        let from = runs.load(Ordering::SeqCst);
        timeout(Duration::from_secs(60), async {
            while runs.load(Ordering::SeqCst) < from + wanted {
                sleep(PERIOD / 4).await;
            }
        })
        .await
        .expect("it goes on");
    }

    #[tokio::test]
    async fn it_goes_on_after_the_process_stood_still_for_many_periods() {
        let runs = Arc::new(AtomicU32::new(0));
        let counted = Arc::clone(&runs);
        let task = every(PERIOD, move || {
            counted.fetch_add(1, Ordering::SeqCst);
            async {}
        });
        more(&runs, 1).await;
        // Nothing of this runtime goes on meanwhile, as if it were stopped.
        std::thread::sleep(PERIOD * 10);
        let before = runs.load(Ordering::SeqCst);
        tokio::task::yield_now().await;
        tokio::task::yield_now().await;
        assert!(runs.load(Ordering::SeqCst) <= before + 1, "missed runs are not run all at once");
        more(&runs, 3).await;
        task.abort();
    }

    #[tokio::test]
    async fn it_goes_on_after_a_run_that_panics() {
        let runs = Arc::new(AtomicU32::new(0));
        let counted = Arc::clone(&runs);
        let task = every(PERIOD, move || {
            let run = counted.fetch_add(1, Ordering::SeqCst);
            async move { assert_ne!(run, 0, "the first one breaks") }
        });
        more(&runs, 3).await;
        task.abort();
    }
}
