//! An ECS for tests that is told what to answer, and counts what it was asked.

use super::Ecs;
use super::calls::{Answer, Calls, Described, Ran, Seen, Trouble};
use super::definition::Definition;
use super::launch::{Home, Launch};
use super::lookout::Lookout;
use super::settings::Fit;
use futures::FutureExt as _;
use protocol::pipeline::{Network, Step};
use protocol::worker::{Job, LogLimits, Secret};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;
use tokio::sync::Notify;
use uuid::Uuid;

#[derive(Debug, Default)]
pub(in crate::isolation) struct Stub {
    state: Mutex<State>,
    task: Notify,
}

#[derive(Debug, Default)]
struct State {
    asked: Vec<&'static str>,
    /// What the next calls fail with.
    failures: BTreeMap<&'static str, VecDeque<Trouble>>,
    /// The next calls, or all of them, are carried out, but their answers are lost.
    lost: BTreeMap<&'static str, usize>,
    definitions: BTreeMap<String, String>,
    places: VecDeque<String>,
    tokens: BTreeMap<String, Ran>,
    tasks: BTreeMap<String, Seen>,
    sizes: Vec<usize>,
    ends_at_once: bool,
    never_ends: bool,
    forgets: bool,
}

impl Stub {
    pub(super) fn count(&self, call: &str) -> usize {
        self.state().asked.iter().filter(|asked| **asked == call).count()
    }

    /// The next call of this name fails.
    pub(super) fn fail(&self, call: &'static str, trouble: Trouble) {
        self.state().failures.entry(call).or_default().push_back(trouble);
    }

    pub(super) fn lose_answer(&self, call: &'static str) {
        self.state().lost.insert(call, 1);
    }

    pub(super) fn lose_answers(&self, call: &'static str) {
        self.state().lost.insert(call, usize::MAX);
    }

    /// The next task is not placed.
    pub(super) fn refuse_place(&self, why: &str) {
        self.state().places.push_back(why.into());
    }

    pub(super) fn ends_at_once(&self) {
        self.state().ends_at_once = true;
    }

    pub(super) fn never_ends(&self) {
        self.state().never_ends = true;
    }

    pub(super) fn forget_definitions(&self) {
        self.state().definitions.clear();
    }

    /// The definition of the next task is there no more.
    pub(super) fn forget_definition_at_run(&self) {
        self.state().forgets = true;
    }

    pub(super) fn put(&self, seen: Seen) {
        self.state().tasks.insert(seen.arn.clone(), seen);
    }

    pub(super) fn tasks(&self) -> usize {
        self.state().tasks.len()
    }

    pub(super) fn tokens(&self) -> BTreeSet<String> {
        self.state().tokens.keys().cloned().collect()
    }

    /// How many tasks each DescribeTasks asked for.
    pub(super) fn sizes(&self) -> Vec<usize> {
        self.state().sizes.clone()
    }

    pub(super) async fn until_task(&self) {
        while self.tasks() == 0 {
            self.task.notified().await;
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap()
    }

    fn answer<T>(
        &self,
        call: &'static str,
        answer: impl FnOnce(&mut State) -> Result<T, Trouble>,
    ) -> Result<T, Trouble> {
        let mut state = self.state();
        state.asked.push(call);
        if let Some(trouble) = state.failures.get_mut(call).and_then(VecDeque::pop_front) {
            return Err(trouble);
        }
        let answer = answer(&mut state);
        match state.lost.get_mut(call) {
            Some(left) if *left > 0 => {
                *left -= 1;
                Err(Trouble::Unanswered("the connection broke".into()))
            }
            _ => answer,
        }
    }
}

impl State {
    fn place(&mut self, launch: &Launch) -> Result<Ran, Trouble> {
        if let Some(ran) = self.tokens.get(&launch.client_token) {
            return Ok(ran.clone());
        }
        if std::mem::take(&mut self.forgets) {
            self.definitions.clear();
            return Err(Trouble::Refused("TaskDefinition is inactive".into()));
        }
        let ran = self.places.pop_front().map_or_else(|| self.make(launch), Ran::Failed);
        self.tokens.insert(launch.client_token.clone(), ran.clone());
        Ok(ran)
    }

    fn make(&mut self, launch: &Launch) -> Ran {
        let arn = format!("arn:task/{}", self.tasks.len() + 1);
        let status = if self.ends_at_once { "STOPPED" } else { "PENDING" };
        let seen = Seen {
            arn: arn.clone(),
            status: status.into(),
            started_by: Some(launch.started_by.clone()),
            definition: Some(launch.definition.clone()),
            ..Seen::default()
        };
        self.tasks.insert(arn.clone(), seen);
        Ran::Task(arn)
    }
}

impl Calls for Stub {
    fn definition<'a>(&'a self, family: &'a str) -> Answer<'a, Option<String>> {
        async { self.answer("DescribeTaskDefinition", |state| Ok(state.definitions.get(family).cloned())) }.boxed()
    }

    fn register<'a>(&'a self, definition: &'a Definition) -> Answer<'a, String> {
        async {
            self.answer("RegisterTaskDefinition", |state| {
                let arn = format!("arn:task-definition/{}:1", definition.family);
                state.definitions.insert(definition.family.clone(), arn.clone());
                Ok(arn)
            })
        }
        .boxed()
    }

    fn run<'a>(&'a self, launch: &'a Launch) -> Answer<'a, Ran> {
        async {
            let ran = self.answer("RunTask", |state| state.place(launch));
            self.task.notify_one();
            ran
        }
        .boxed()
    }

    fn describe<'a>(&'a self, tasks: &'a [String]) -> Answer<'a, Described> {
        async {
            self.answer("DescribeTasks", |state| {
                state.sizes.push(tasks.len());
                let (known, missing): (Vec<_>, Vec<_>) =
                    tasks.iter().cloned().partition(|arn| state.tasks.contains_key(arn));
                Ok(Described { tasks: known.iter().map(|arn| state.tasks[arn].clone()).collect(), missing })
            })
        }
        .boxed()
    }

    fn stop<'a>(&'a self, task: &'a str, _reason: &'a str) -> Answer<'a, ()> {
        async move {
            self.answer("StopTask", |state| {
                let never_ends = state.never_ends;
                let task = state.tasks.get_mut(task).filter(|_| !never_ends);
                task.into_iter().for_each(|task| task.status = "STOPPED".into());
                Ok(())
            })
        }
        .boxed()
    }

    fn list<'a>(&'a self, started_by: Option<&'a str>) -> Answer<'a, Vec<String>> {
        async move {
            self.answer("ListTasks", |state| {
                let is_theirs = |seen: &&Seen| started_by.is_none() || seen.started_by.as_deref() == started_by;
                Ok(state.tasks.values().filter(is_theirs).map(|seen| seen.arn.clone()).collect())
            })
        }
        .boxed()
    }
}

/// A back end over `stub`.
pub(super) fn ecs(stub: &Arc<Stub>) -> Ecs {
    let lookout = Lookout::every(Duration::from_millis(1), Arc::<Stub>::clone(stub));
    Ecs::over(Arc::<Stub>::clone(stub), Fit::example(), Home::example(), lookout)
}

pub(super) fn step(name: &str, image: &str) -> Step {
    Step {
        name: name.into(),
        image: image.into(),
        commands: vec!["true".into()],
        env: BTreeMap::new(),
        timeout_seconds: None,
        network: Network::Isolated,
        on_cancel: false,
    }
}

pub(super) fn job() -> Job {
    Job {
        build_id: Uuid::now_v7(),
        repository: "https://git.example.com/app.git".into(),
        git_ref: "main".into(),
        commit: None,
        submodules: false,
        steps: vec![step("test", "rust:1")],
        on_cancel: Vec::new(),
        env: BTreeMap::new(),
        secrets: BTreeMap::new(),
        clone_secret: None,
        registry_secrets: BTreeMap::new(),
        log_token: Secret("log-token".into()),
        lease_ttl_ms: 60_000,
        lease_grace_ms: 120_000,
        heartbeat_every_ms: 30_000,
        deadline_in_ms: 60_000,
        max_duration_seconds: 60,
        log: LogLimits { max_chunk_bytes: 16_384, max_batch_bytes: 262_144, interval_ms: 100, cap_bytes: 64 << 20 },
        traceparent: None,
        preview: None,
    }
}
