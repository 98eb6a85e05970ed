//! The tasks of builds that sweeps have ended. What runs steps away from a worker ends by its own fence when it is not acknowledged any more; this
//! stops what hangs, or was not begun yet.
//!
//! A build's row says nothing of it: whose tasks were stopped is noted beside, and who is not noted is asked about again, for an hour. Most
//! have none, since their worker has none; one question finds that out.

use edge::{Rejection, Shell};
use futures::stream::{self, StreamExt as _};
use protocol::admin::Swept;
use std::pin::pin;
use std::time::Duration;
use store::task_stops;
use tokio::time::{Instant, sleep_until};

/// For how long after a build's end its tasks are looked for. None outlives its own fence by as much.
const WITHIN: Duration = Duration::from_secs(3600);
/// How many builds a sweep asks about; what is left is the next sweep's. With two questions for each it stays below what ECS takes.
const BUILDS_MAX: i64 = 100;
/// How many questions are on their way at once.
const AT_ONCE: usize = 4;
/// After so many that failed a sweep begins no more: ECS does not answer, or wants to be left alone.
const FAILURES_MAX: u64 = 4;
/// The part of the time between sweeps for which one goes on beginning questions: a third, so 10 s of 30.
const ASKING_PART: u32 = 3;

/// What a stopped task shows as its reason.
const REASON: &str = "Callboard has ended its build: the worker was lost, or the deadline is over";

/// Stops the tasks of builds that this sweep or one before has ended, where builds have tasks. No transaction is open meanwhile.
///
/// # Errors
///
/// [`Rejection::Store`] if the database could not be asked which builds those are. A task that could not be stopped is counted in `errors`, and
/// the next sweep tries again.
pub(crate) async fn stop(shell: &Shell, swept: &mut Swept) -> Result<(), Rejection> {
    let Some(tasks) = &shell.tasks else { return Ok(()) };
    let until = Instant::now() + shell.config.timing.reap_every / ASKING_PART;
    let builds = task_stops::due(&shell.store, WITHIN, BUILDS_MAX).await?;
    let questions = stream::iter(builds)
        .take_until(sleep_until(until))
        .map(|build| async move { (build, tasks.stop(build, REASON).await) });
    let mut answers = pin!(questions.buffer_unordered(AT_ONCE));
    let (mut done, mut failures) = (Vec::new(), 0);
    while failures < FAILURES_MAX
        && let Some((build, answer)) = answers.next().await
    {
        match answer {
            Ok(stopped) => {
                if stopped > 0 {
                    tracing::warn!(build.id = %build, tasks = stopped, "tasks of a reaped build stopped");
                }
                done.push(build);
            }
            Err(error) => {
                failures += 1;
                tracing::error!(build.id = %build, %error, "tasks of a reaped build not stopped");
            }
        }
    }
    swept.errors += failures;
    Ok(task_stops::note(&shell.store, &done).await?)
}
