//! One build in a task of its own, from RunTask until all of the task's containers have ended.

use super::Ecs;
use super::calls::{Ran, Seen, Trouble};
use super::definition::{Definition, FAMILY};
use super::launch::Launch;
use super::lookout::CALL_MAX;
use super::pace::{FullJitter, answered};
use super::plain::plain;
use super::takes::{images, refuses};
use crate::clock::{Boot, sleep_until};
use crate::lease::Lease;
use crate::outcome::Fail;
use crate::stop::{Stop, Why};
use protocol::worker::Job;
use std::time::Duration;
use tokio::time::{sleep, timeout};
use tracing::{info, warn};
use uuid::Uuid;

/// How long a task may take to end once it is told to: what its containers have for it, and as long again for ECS to say so.
const END_PATIENCE: Duration = Duration::from_secs(240);
/// How long a build that has nothing to wait for still tries to stop what it may have started.
const STOP_PATIENCE: Duration = Duration::from_secs(30);

/// What became of a task.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Over {
    /// When RunTask, as it was answered, had first been sent.
    pub asked_at: Boot,
    /// How it ended; none if nobody knows.
    pub seen: Option<Seen>,
}

/// The tries to start one task.
struct Tries {
    /// How many were answered with no task, and one.
    attempt: u32,
    /// When this one was first sent.
    asked_at: Option<Boot>,
    /// Whether there may be a task of which no answer tells.
    unanswered: bool,
    /// Whether its definition was made anew.
    remade: bool,
    waits: FullJitter,
}

impl Ecs {
    /// Runs `job` in a task until that is over. Asks `stop` at the fence; heeds it whoever asks.
    ///
    /// # Errors
    ///
    /// Why there was no task.
    pub async fn run(&self, job: &Job, lease: &Lease, stop: &Stop) -> Result<Over, Fail> {
        refuses(job).map_or(Ok(()), Err)?;
        lease.enter("starting a task");
        let (task, asked_at) = self.start(job, stop).await?;
        info!(build.id = %job.build_id, ecs.task = task, "task started");
        let seen = self.until_over(&task, lease, stop).await;
        let told = seen.as_ref().map(|seen| (seen.stop_code.as_deref(), seen.stopped_reason.as_deref()));
        let (stop_code, reason) = told.unwrap_or_default();
        info!(build.id = %job.build_id, ecs.task = task, ecs.stop_code = stop_code, ecs.stopped_reason = reason, "task over");
        Ok(Over { asked_at, seen })
    }

    async fn start(&self, job: &Job, stop: &Stop) -> Result<(String, Boot), Fail> {
        let mut tries =
            Tries { attempt: 1, asked_at: None, unanswered: false, remade: false, waits: FullJitter::default() };
        let started = self.try_to_start(job, stop, &mut tries).await;
        if started.is_err() && tries.unanswered {
            let build = job.build_id.to_string();
            let ended = timeout(STOP_PATIENCE, self.end(&build, "the build has ended")).await;
            if !matches!(ended, Ok(Ok(_))) {
                warn!(build.id = %job.build_id, "there may be a task of a build that has ended; its runner gets no job");
            }
        }
        started
    }

    async fn try_to_start(&self, job: &Job, stop: &Stop, tries: &mut Tries) -> Result<(String, Boot), Fail> {
        let images = images(job);
        let definition = Definition::of(&self.fit, &images);
        loop {
            let arn = async {
                let arn = self.definitions.arn(self.calls.as_ref(), &definition).await;
                let arn = arn.map_err(|why| never_started("RegisterTaskDefinition", &why))?;
                self.pace.turn().await;
                Ok(arn)
            };
            let arn = tokio::select! { biased; why = stop.asked() => Err(Fail::Stopped(why)), arn = arn => arn }?;
            let launch = Launch::of(&self.fit, &self.home, job, images.len(), arn, tries.attempt);
            let asked_at = *tries.asked_at.get_or_insert_with(Boot::now);
            // Not to be given up in the middle: there would be a task, and nobody would know it.
            match self.calls.run(&launch).await {
                Ok(Ran::Task(task)) => return Ok((task, asked_at)),
                answer => tries.may_go_on(answer).inspect(|()| self.remake(&definition, tries))?,
            }
            let wait = tries.waits.next_wait();
            tokio::select! { biased; why = stop.asked() => return Err(Fail::Stopped(why)), () = sleep(wait) => {} }
        }
    }

    fn remake(&self, definition: &Definition, tries: &Tries) {
        if tries.remade {
            self.definitions.forget(&definition.family);
        }
    }

    /// Waits until the task is over; none if nobody knows any more how it ended. Its steps end first if the build is to stop.
    async fn until_over(&self, task: &str, lease: &Lease, stop: &Stop) -> Option<Seen> {
        let mut watch = self.lookout.watch(task);
        let why = tokio::select! {
            over = watch.over(|| lease.enter("in its task")) => return over,
            why = stop.asked() => why,
            () = sleep_until(|| lease.fence_at()) => Why::Fenced,
        };
        stop.ask(why);
        let ending = async {
            self.stop(task, why.message()).await.inspect_err(|error| warn!(ecs.task = task, error, "not stopped")).ok();
            watch.over(|| {}).await
        };
        tokio::select! {
            over = timeout(END_PATIENCE, ending) => over.ok().flatten(),
            // The board knows its end: nobody waits for what the runner has to say, but it is told to stop.
            () = self.stop_lost(task, stop) => None,
        }
    }

    async fn stop_lost(&self, task: &str, stop: &Stop) {
        stop.is_lost().await;
        if let Ok(Err(error)) = timeout(STOP_PATIENCE, self.stop(task, Why::Lost.message())).await {
            warn!(ecs.task = task, error, "the task of a lost build is not stopped; its runner ends by itself");
        }
    }

    /// Tells a task to stop: its runner has the steps end, and ECS ends what is left.
    ///
    /// # Errors
    ///
    /// What ECS says if it refuses.
    pub async fn stop(&self, task: &str, reason: &str) -> Result<(), String> {
        answered("StopTask", || self.calls.stop(task, reason)).await
    }

    /// Stops all tasks of `build`; how many there were.
    ///
    /// # Errors
    ///
    /// What ECS says if it refuses.
    pub async fn end(&self, build: &str, reason: &str) -> Result<usize, String> {
        let tasks = answered("ListTasks", || self.calls.list(Some(build))).await?;
        for task in &tasks {
            self.stop(task, reason).await?;
        }
        Ok(tasks.len())
    }
}

impl Ecs {
    /// The tasks of this cluster that builds run in, whoever started them, each with its build.
    ///
    /// # Errors
    ///
    /// What ECS says if it refuses.
    pub async fn started(&self) -> Result<Vec<(String, Uuid)>, String> {
        let mut started = Vec::new();
        for some in answered("ListTasks", || self.calls.list(None)).await?.chunks(CALL_MAX) {
            let described = answered("DescribeTasks", || self.calls.describe(some)).await?;
            started.extend(described.tasks.into_iter().filter_map(build_of));
        }
        Ok(started)
    }
}

/// A task and its build, if it is one of a build's that goes on.
fn build_of(seen: Seen) -> Option<(String, Uuid)> {
    let is_ours = seen.definition.as_deref().is_some_and(|arn| arn.contains(&format!("/{FAMILY}")));
    let build = Uuid::try_parse(seen.started_by.as_deref()?).ok()?;
    (is_ours && !seen.is_over()).then_some((seen.arn, build))
}

impl Tries {
    /// Whether to try again after an answer without a task.
    fn may_go_on(&mut self, answer: Result<Ran, Trouble>) -> Result<(), Fail> {
        match answer {
            Ok(Ran::Task(_)) => Ok(()),
            Ok(Ran::Failed(why)) if is_passing(&why) => {
                warn!(why, "ECS has no room for a task; it is tried again");
                (self.attempt, self.asked_at) = (self.attempt + 1, None);
                Ok(())
            }
            Err(Trouble::Throttled(why)) => {
                warn!(why, "RunTask is throttled; it is tried again");
                Ok(())
            }
            Err(Trouble::Unanswered(why)) => {
                warn!(why, "no answer to RunTask; the same is asked again");
                self.unanswered = true;
                Ok(())
            }
            Err(Trouble::Refused(why)) if is_of_definition(&why) && !self.remade => {
                self.remade = true;
                Ok(())
            }
            Ok(Ran::Failed(why)) | Err(Trouble::Refused(why)) => Err(never_started("RunTask", &why)),
        }
    }
}

fn never_started(call: &str, why: &str) -> Fail {
    warn!(call, why, "ECS starts no task");
    Fail::NeverStarted(plain(why))
}

/// Whether what keeps a task from being placed may be otherwise in a while.
fn is_passing(failure: &str) -> bool {
    ["RESOURCE:", "AGENT", "Capacity is unavailable"].iter().any(|word| failure.contains(word))
}

/// Whether what is wrong is that the definition is there no more.
fn is_of_definition(refusal: &str) -> bool {
    refusal.contains("TaskDefinition")
}

#[cfg(test)]
#[path = "errand_tests.rs"]
mod tests;
