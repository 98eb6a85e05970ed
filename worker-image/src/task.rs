//! Runs one isolated task to its end: reads its output, heeds the wish to stop and its own timeout.

use crate::clock::{Boot, sleep_until};
use crate::config::Grace;
use crate::isolation::{Control, Ended, Exceeded, Isolation, Running, StartError, Task};
use crate::lease::Lease;
use crate::logs::{Commands, Reading, Sink, read};
use crate::outcome::Fail;
use crate::stop::{Stop, Why};
use futures::future::BoxFuture;
use protocol::log::Stream;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::timeout;

/// How much longer than the grace an end may take before its guard is given up.
const PATIENCE: Duration = Duration::from_secs(5);

/// Runs tasks of one build.
#[derive(Debug)]
pub struct Performer<'a> {
    /// The back end.
    pub isolation: &'a dyn Isolation,
    /// The lease on the build.
    pub lease: &'a Arc<Lease>,
    /// Whether it is to stop.
    pub stop: &'a Stop,
    /// The durations within which things must have ended.
    pub grace: Grace,
    /// Where the output goes.
    pub sink: &'a Sink,
    /// Whether standard output goes there as well.
    pub shown: bool,
    /// The commands to be told, if any are.
    pub commands: Option<Arc<Commands>>,
}

/// A task that has ended.
#[derive(Debug)]
pub struct Done {
    /// Its exit code.
    pub code: i32,
    /// The limit that it met, if any.
    pub exceeded: Option<Exceeded>,
    /// How long it took.
    pub took: Duration,
    /// Why it was made to end, if it was.
    pub stopped: Option<Why>,
    /// The end of its standard output.
    pub stdout: String,
    /// The end of its standard error.
    pub stderr: String,
}

impl Performer<'_> {
    /// Runs `task`, for no longer than `limit`. None of its processes is left when this returns.
    ///
    /// # Errors
    ///
    /// Why it did not run, or nobody knows how it ended.
    pub async fn perform(&self, task: Task, limit: Option<Duration>) -> Result<Done, Fail> {
        if self.lease.fence_at().has_come() {
            self.stop.ask(Why::Fenced);
        }
        if let Some(why) = self.stop.why() {
            return Err(Fail::Stopped(why));
        }
        let begun = Boot::now();
        let Running { stdout, stderr, control, ended } = self.isolation.start(task).await.map_err(not_started)?;
        self.lease.hold(Arc::clone(&control));
        let stdout = read(stdout, self.sink.clone(), Stream::Stdout, self.commands.clone(), self.shown);
        let stderr = read(stderr, self.sink.clone(), Stream::Stderr, self.commands.clone(), true);
        let (ended, stopped) = self.until_ended(ended, control, begun, limit).await;
        self.lease.release();
        let took = Boot::now().since(begun);
        let (stdout, stderr) = self.output(stdout, stderr).await;
        match ended {
            Ended::Exited { code, exceeded } => Ok(Done { code, exceeded, took, stopped, stdout, stderr }),
            Ended::Fenced => {
                self.stop.ask(Why::Fenced);
                Err(Fail::Stopped(self.stop.why().unwrap_or(Why::Fenced)))
            }
            Ended::NeverStarted(_) | Ended::Broken(_) if stopped.is_some() => {
                Err(Fail::Stopped(stopped.unwrap_or(Why::Lost)))
            }
            Ended::NeverStarted(why) => Err(Fail::NeverStarted(format!("{why} {}", stderr.trim()).trim().to_owned())),
            Ended::Broken(why) => Err(Fail::Internal(why)),
        }
    }

    async fn output(&self, stdout: Reading, stderr: Reading) -> (String, String) {
        tokio::join!(stdout.end(self.grace.output), stderr.end(self.grace.output))
    }

    /// An end of its own counts as such if it came first.
    async fn until_ended(
        &self,
        mut ended: BoxFuture<'static, Ended>,
        control: Arc<dyn Control>,
        begun: Boot,
        limit: Option<Duration>,
    ) -> (Ended, Option<Why>) {
        let out_of_time = at(limit, || begun);
        // Of the clone, whose output is not shown, nobody expects any.
        let silent = self.grace.silent.filter(|_| self.shown);
        let too_silent = at(silent, || self.lease.last_output_at().map_or(begun, |last| last.max(begun)));
        tokio::select! {
            biased;
            ended = &mut ended => return (ended, None),
            _ = self.stop.asked() => {}
            () = out_of_time => self.stop.ask(Why::StepTimeout),
            () = too_silent => self.stop.ask(Why::Silent),
        }
        control.terminate();
        let ended = match timeout(self.grace.kill + PATIENCE, &mut ended).await {
            Ok(ended) => ended,
            // With `ended` the guard is dropped, and with the guard its sandbox.
            Err(_) => Ended::Broken("its guard did not end it".into()),
        };
        (ended, self.stop.why())
    }
}

/// Waits until `after` has passed since `from()`, which may move; for ever without it.
async fn at(after: Option<Duration>, from: impl Fn() -> Boot) {
    match after {
        Some(after) => sleep_until(|| from().plus(after)).await,
        None => std::future::pending().await,
    }
}

/// What a task that can't be started means for its build.
pub(crate) fn not_started(error: StartError) -> Fail {
    match error {
        StartError::Image(why) => Fail::Image(why),
        StartError::Trouble(why) => Fail::NeverStarted(why),
    }
}
