//! All that the fake knows: definitions, tasks, what was asked of it.

use crate::agent::Site;
use crate::definition::Families;
use crate::faults::Waiting;
use crate::machine::Machine;
use crate::refusal::Refusal;
use crate::settings::{Settings, ms};
use crate::task::{PartStatus, Stop, Task};
use crate::throttle::Buckets;
use serde::Serialize;
use serde_json::Value;
use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// A call that came, as it is told to tests.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Call {
    /// Such as `RunTask`.
    pub action: String,
    /// When it came, in milliseconds since the fake began.
    pub at_ms: u64,
    /// How it was answered: `ok`, an error's type, or `lost`.
    pub answer: String,
}

/// What a call left in AWS's hands, for whoever may describe things there.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Given {
    /// Such as `RunTask`.
    pub action: String,
    /// The whole body of the call.
    pub text: String,
}

/// What a client token has made.
#[derive(Debug)]
pub(crate) struct Made {
    pub(crate) request: Value,
    pub(crate) answer: Value,
    pub(crate) tasks: Vec<String>,
}

#[derive(Debug)]
pub(crate) struct State {
    pub(crate) settings: Settings,
    pub(crate) families: Families,
    pub(crate) tasks: BTreeMap<String, Task>,
    /// By cluster and token ("Ensuring idempotency").
    pub(crate) made: BTreeMap<(String, String), Made>,
    pub(crate) buckets: Buckets,
    pub(crate) faults: Waiting,
    pub(crate) calls: Vec<Call>,
    pub(crate) given: Vec<Given>,
    /// Until when a service's tasks are protected, by id.
    pub(crate) protected: BTreeMap<String, f64>,
}

/// A fake.
#[derive(Debug)]
pub(crate) struct Ecs {
    pub(crate) machine: Machine,
    started: Instant,
    state: Mutex<State>,
}

/// Where everything is.
pub(crate) const REGION: &str = "us-east-1";
/// Whose everything is: the account that AWS's examples have.
pub(crate) const ACCOUNT: &str = "123456789012";

/// The name of a thing of ECS's.
pub(crate) fn arn(kind: &str, name: &str) -> String {
    format!("arn:aws:ecs:{REGION}:{ACCOUNT}:{kind}/{name}")
}

impl Ecs {
    pub(crate) fn new(machine: Machine, settings: Settings) -> Self {
        let state = State {
            settings,
            families: Families::default(),
            tasks: BTreeMap::new(),
            made: BTreeMap::new(),
            buckets: Buckets::default(),
            faults: Waiting::default(),
            calls: Vec::new(),
            given: Vec::new(),
            protected: BTreeMap::new(),
        };
        Self { machine, started: Instant::now(), state: Mutex::new(state) }
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// How long the fake has been there.
    pub(crate) fn age(&self) -> Duration {
        self.started.elapsed()
    }

    pub(crate) fn settings(&self) -> Settings {
        self.lock().settings.clone()
    }

    /// Changes a task, wherever its life stands.
    pub(crate) fn with<T>(&self, id: &str, change: impl FnOnce(&mut Task) -> T) -> Option<T> {
        let mut state = self.lock();
        let task = state.tasks.get_mut(id)?;
        task.version += 1;
        Some(change(task))
    }
}

/// AWS's clock: seconds since 1970, with a fraction, as its JSON has instants.
#[expect(clippy::disallowed_methods, reason = "what AWS says of its tasks is by AWS's clock")]
pub(crate) fn now() -> f64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    (since.as_secs_f64() * 1000.0).round() / 1000.0
}

impl State {
    /// The name of the cluster that a request names, or the default one.
    pub(crate) fn cluster(&self, named: Option<&str>) -> Result<String, Refusal> {
        let name = named.unwrap_or("default");
        let name = name.rsplit_once(":cluster/").map_or(name, |(_, name)| name);
        let is_there = self.settings.clusters.iter().any(|cluster| cluster == name);
        is_there.then(|| name.to_owned()).ok_or_else(Refusal::cluster)
    }

    /// Whether a call at `age` knows of a task.
    fn sees(&self, task: &Task, age: Duration) -> bool {
        let is_known = age.saturating_sub(task.made_at) >= ms(self.settings.invisible_ms);
        let is_gone = task.ended_at.is_some_and(|ended| age.saturating_sub(ended) >= ms(self.settings.stopped_kept_ms));
        is_known && !is_gone
    }

    /// The id of the task of a cluster that an id or an ARN names, if a call at `age` knows of it.
    pub(crate) fn seen(&self, cluster: &str, named: &str, age: Duration) -> Option<String> {
        let id = named.rsplit('/').next().unwrap_or(named);
        let task = self.tasks.get(id)?;
        (task.cluster == cluster && self.sees(task, age)).then(|| id.to_owned())
    }

    /// All tasks of a cluster that a call at `age` knows of.
    pub(crate) fn all_seen<'a>(&'a self, cluster: &'a str, age: Duration) -> impl Iterator<Item = &'a Task> {
        self.tasks.values().filter(move |task| task.cluster == cluster && self.sees(task, age))
    }
}

/// For tests.
impl Ecs {
    /// The end of what a container has written until now.
    pub(crate) async fn output(&self, task: &str, container: &str) -> String {
        let id = task.rsplit('/').next().unwrap_or(task);
        let kept = self.lock().tasks.get(id).and_then(|task| {
            let place = task.definition.containers.iter().position(|it| it.name == container)?;
            let part = &task.parts[place];
            (part.status == PartStatus::Stopped).then(|| part.output.clone())
        });
        match kept {
            Some(kept) => kept,
            None => self.machine.output(&Site::named(id, container)).await,
        }
    }

    /// The states that a task was in.
    pub(crate) fn states(&self, task: &str) -> Vec<&'static str> {
        let state = self.lock();
        let found = state.tasks.get(task.rsplit('/').next().unwrap_or(task));
        found.map(|task| task.states.iter().map(|state| state.word()).collect()).unwrap_or_default()
    }

    /// Takes all tasks' machine away, and waits until nothing of them is there.
    pub(crate) async fn end_all(&self) {
        let ids: Vec<_> = self.lock().tasks.keys().cloned().collect();
        for id in &ids {
            let stop = Stop { is_lost: true, ..Stop::new("TerminationNotice", "The fake ends.") };
            self.with(id, |task| task.end(stop, now()));
        }
        while self.lock().tasks.values().any(|task| task.ended_at.is_none()) {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }
}
