//! The course of one build: clone, then the steps in order, until the first failure.

use crate::clock::{Boot, millis};
use crate::clone;
use crate::config::Grace;
use crate::isolation::bubblewrap::names::CERTIFICATES;
use crate::isolation::plan::{Env, PlanFile};
use crate::isolation::{Fetch, Isolation, Limits, Task};
use crate::lease::Lease;
use crate::logs::{Commands, Cue, Sink};
use crate::mask;
use crate::network::WayOut;
use crate::outcome::Fail;
use crate::script;
use crate::site::Site;
use crate::stop::{Stop, Why};
use crate::task::{Done, Performer, not_started};
use crate::workplace::has;
use protocol::build::{StepResult, StepStatus};
use protocol::pipeline::{Network, Step};
use protocol::worker::Job;
use std::sync::Arc;
use std::time::Duration;
use tracing::info;
use uuid::Uuid;

/// The script's name among a task's files.
const SCRIPT: &str = "script";

/// One build that is being run.
#[derive(Debug)]
pub struct Course<'a> {
    /// What to run.
    pub job: &'a Job,
    /// Where.
    pub site: &'a Site,
    /// The slot it is in.
    pub slot: u32,
    /// The back end.
    pub isolation: &'a dyn Isolation,
    /// The lease on it.
    pub lease: &'a Arc<Lease>,
    /// Whether it is to stop.
    pub stop: &'a Stop,
    /// The way into its network.
    pub way_out: &'a WayOut,
    /// What each of its tasks may take.
    pub limits: Limits,
    /// The durations within which things must have ended.
    pub grace: Grace,
    /// Where its output goes, by the step's name.
    pub sink: Sink,
}

/// How far a build came.
#[derive(Debug, Default)]
pub struct Covered {
    /// The commit that was fetched.
    pub commit: Option<String>,
    /// How the steps went.
    pub steps: Vec<StepResult>,
    /// When they had ended: what comes after them counts for nothing.
    pub ended_at: Option<Boot>,
}

impl Course<'_> {
    /// Runs all; `covered` says how far it came, also when it fails.
    ///
    /// # Errors
    ///
    /// Why the build did not succeed.
    pub async fn run(&self, covered: &mut Covered) -> Result<(), Fail> {
        covered.steps = none_yet(self.job);
        let sink = self.sink_of("clone");
        let clones = self.job.clone_secret.iter().map(|secret| ("of the clone", secret));
        let named = self.job.secrets.iter().chain(&self.job.registry_secrets);
        let secrets = named.map(|(name, secret)| (name.as_str(), secret)).chain(clones);
        secrets.filter_map(|(name, secret)| mask::unmasked(name, &secret.0)).for_each(|line| sink.say(&line));
        let images =
            self.job.steps.iter().chain(&self.job.on_cancel).try_for_each(|step| self.isolation.takes(&step.image));
        images.map_err(not_started).inspect_err(|fail| sink.say(&fail.message()))?;
        let commit = self.clone_source(&sink).await.inspect_err(|fail| sink.say(&fail.message()))?;
        covered.commit = Some(commit.clone());
        for (number, step) in (1..).zip(&self.job.steps) {
            let result = &mut covered.steps[number - 1];
            self.sink_of(&step.name).say(&format!("Step {number}/{}: {}", self.job.steps.len(), step.name));
            self.step((number, step), &commit, result).await?;
        }
        Ok(())
    }

    /// Runs what a cancelled build is to tidy up with, each step whatever became of the one before, until this is to stop.
    pub async fn tidy(&self, commit: &str) {
        for (number, step) in (self.job.steps.len() + 1..).zip(&self.job.on_cancel) {
            self.sink_of(&step.name).say(&format!("On cancel: {}", step.name));
            if let Err(Fail::Stopped(_)) = self.step((number, step), commit, &mut skipped(step)).await {
                return;
            }
        }
    }

    async fn clone_source(&self, sink: &Sink) -> Result<String, Fail> {
        let job = self.job;
        self.lease.enter("clone");
        if let Some(why) = clone::unfetchable(job) {
            return Err(Fail::Clone(why));
        }
        sink.say(&format!("Cloning {} at {}", job.repository, job.commit.as_deref().unwrap_or(&job.git_ref)));
        let inside = self.isolation.inside();
        let env = clone::env(job, inside, has(&self.site.path(CERTIFICATES)));
        let image = self.isolation.clone_image();
        self.fetch(image, Network::Isolated, sink).await?;
        let task = self.task((0, image), env, clone::script(job), Network::Isolated);
        let task = Task { files: [task.files, clone::files(job, inside)].concat(), ..task };
        let done = self.performer(sink, None).perform(task, None).await?;
        if let Some(why) = done.stopped {
            return Err(Fail::Stopped(why));
        }
        let commit = done.stdout.lines().last().unwrap_or("").trim();
        if let Some(exceeded) = done.exceeded.filter(|_| done.code != 0) {
            return Err(Fail::Limit(exceeded));
        }
        if done.code != 0 || !rules::runnable::is_commit(commit) {
            return Err(Fail::Clone(clone::complaint(&done.stderr)));
        }
        sink.say(&format!("Checked out {commit} after {}", seconds(done.took)));
        Ok(commit.to_owned())
    }

    async fn step(&self, (number, step): (usize, &Step), commit: &str, result: &mut StepResult) -> Result<(), Fail> {
        let sink = self.sink_of(&step.name);
        self.lease.enter(&step.name);
        info!(build.id = %self.job.build_id, step.name, "step started");
        let env = script::step_env(self.job, step, commit);
        let cue = Cue::new(Uuid::new_v4());
        let script = script::script(&step.commands, Some(&cue));
        let task = self.task((number, &step.image), env, script, step.network);
        let timeout = step.timeout_seconds.map(|seconds| Duration::from_secs(seconds.into()));
        let begun = Boot::now();
        self.site.reopen().map_err(|error| Fail::NeverStarted(format!("the workspace can't be opened: {error}")))?;
        let performed = match self.fetch(&step.image, step.network, &sink).await {
            Ok(()) => {
                let commands = Commands::new(cue, step.commands.clone(), sink.clone());
                self.performer(&sink, Some(commands)).perform(task, timeout).await
            }
            Err(fail) => Err(fail),
        };
        result.duration_ms = millis(Boot::now().since(begun));
        let ended = performed.and_then(|done| judge(step, &done, result, &sink));
        if let Err(fail) = &ended {
            result.status = status(fail);
            sink.say(&fail.message());
        }
        info!(build.id = %self.job.build_id, step.name, step.exit_code = result.exit_code, "step ended");
        ended
    }

    /// Makes an image ready, unless the build is to stop before.
    async fn fetch(&self, image: &str, network: Network, sink: &Sink) -> Result<(), Fail> {
        let (secrets, say) = (&self.job.registry_secrets, |line: &str| sink.say(line));
        let way_out = (network == Network::Isolated).then_some(self.way_out);
        tokio::select! {
            biased;
            why = self.stop.asked() => Err(Fail::Stopped(why)),
            fetched = self.isolation.fetch(Fetch { image, secrets, say: &say, way_out }) => fetched.map_err(not_started),
        }
    }

    fn task(&self, (number, image): (usize, &str), env: Env, script: String, network: Network) -> Task {
        Task {
            image: image.to_owned(),
            argv: ["/bin/sh", "-e", &format!("{}/{SCRIPT}", self.isolation.inside())].map(str::to_owned).into(),
            env,
            files: vec![PlanFile { name: SCRIPT.into(), mode: 0o600, content: script }],
            directory: self.site.directory.clone(),
            slot: self.slot,
            number,
            way_out: (network == Network::Isolated).then(|| self.way_out.clone()),
            limits: self.limits,
            fence_at: self.lease.fence_at(),
            kill_grace: self.grace.kill,
        }
    }

    /// With commands: of a step, whose output is shown.
    fn performer<'s>(&'s self, sink: &'s Sink, commands: Option<Commands>) -> Performer<'s> {
        let Self { isolation, lease, stop, grace, .. } = self;
        Performer {
            isolation: *isolation,
            lease,
            stop,
            grace: *grace,
            sink,
            shown: commands.is_some(),
            commands: commands.map(Arc::new),
        }
    }

    fn sink_of(&self, step: &str) -> Sink {
        Sink { step: step.into(), ..self.sink.clone() }
    }
}

/// How the steps of a build went of which none has begun.
pub(crate) fn none_yet(job: &Job) -> Vec<StepResult> {
    job.steps.iter().map(skipped).collect()
}

fn skipped(step: &Step) -> StepResult {
    StepResult { name: step.name.clone(), status: StepStatus::Skipped, exit_code: None, duration_ms: 0 }
}

fn judge(step: &Step, done: &Done, result: &mut StepResult, sink: &Sink) -> Result<(), Fail> {
    result.exit_code = Some(done.code);
    if let Some(why) = done.stopped {
        return Err(Fail::Stopped(why));
    }
    sink.say(&format!("exit code {} after {}", done.code, seconds(done.took)));
    if let Some(exceeded) = done.exceeded.filter(|_| done.code != 0) {
        return Err(Fail::Limit(exceeded));
    }
    if done.code != 0 {
        return Err(Fail::Step { name: step.name.clone(), code: done.code });
    }
    result.status = StepStatus::Success;
    Ok(())
}

fn status(fail: &Fail) -> StepStatus {
    match fail {
        Fail::Stopped(Why::Deadline | Why::StepTimeout | Why::Silent) => StepStatus::TimedOut,
        Fail::Stopped(Why::Cancel(_)) => StepStatus::Cancelled,
        Fail::Stopped(Why::Lost | Why::Fenced | Why::NetworkLost | Why::Shutdown)
        | Fail::Clone(_)
        | Fail::Image(_)
        | Fail::NeverStarted(_)
        | Fail::Step { .. }
        | Fail::Limit(_)
        | Fail::Internal(_)
        | Fail::HostLost(_)
        | Fail::Told(..) => StepStatus::Failed,
    }
}

fn seconds(took: Duration) -> String {
    format!("{:.1} s", took.as_secs_f64())
}
