//! A task, as it is described ("Task", "Container", "Amazon ECS task lifecycle").

use crate::definition::{Container, Definition};
use crate::ecs::arn;
use crate::overrides::Overrides;
use serde_json::{Map, Value, json};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;
use uuid::Uuid;

/// Where a task's life stands. ACTIVATING and DEACTIVATING are for services behind balancers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Status {
    Provisioning,
    Pending,
    Running,
    Stopping,
    Deprovisioning,
    Stopped,
}

impl Status {
    pub(crate) fn word(self) -> &'static str {
        match self {
            Self::Provisioning => "PROVISIONING",
            Self::Pending => "PENDING",
            Self::Running => "RUNNING",
            Self::Stopping => "STOPPING",
            Self::Deprovisioning => "DEPROVISIONING",
            Self::Stopped => "STOPPED",
        }
    }
}

/// Why a task is to stop ("Stopped tasks error codes").
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Stop {
    pub(crate) code: &'static str,
    pub(crate) reason: String,
    /// Its machine is gone: nobody is asked to end, and nobody knows how it ended.
    pub(crate) is_lost: bool,
}

impl Stop {
    pub(crate) fn new(code: &'static str, reason: impl Into<String>) -> Self {
        Self { code, reason: reason.into(), is_lost: false }
    }
}

/// A container of a task.
#[derive(Clone, Debug, Default)]
pub(crate) struct Part {
    /// The last part of its ARN.
    pub(crate) number: Uuid,
    pub(crate) runtime_id: Option<String>,
    pub(crate) status: PartStatus,
    pub(crate) exit_code: Option<i64>,
    pub(crate) reason: Option<String>,
    pub(crate) health: Health,
    /// What it wrote, at most so much of its end. AWS does not have this; tests do.
    pub(crate) output: String,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum PartStatus {
    #[default]
    Pending,
    Running,
    Stopped,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Health {
    #[default]
    Unknown,
    Healthy,
    Unhealthy,
}

impl Health {
    fn word(self) -> &'static str {
        match self {
            Self::Unknown => "UNKNOWN",
            Self::Healthy => "HEALTHY",
            Self::Unhealthy => "UNHEALTHY",
        }
    }
}

/// Instants as AWS tells them, in seconds since 1970.
#[derive(Clone, Debug, Default)]
pub(crate) struct Times {
    pub(crate) created: f64,
    pub(crate) pull_started: Option<f64>,
    pub(crate) pull_stopped: Option<f64>,
    pub(crate) started: Option<f64>,
    pub(crate) stopping: Option<f64>,
    pub(crate) execution_stopped: Option<f64>,
    pub(crate) stopped: Option<f64>,
}

#[derive(Debug)]
pub(crate) struct Task {
    pub(crate) id: String,
    pub(crate) cluster: String,
    pub(crate) definition: Arc<Definition>,
    pub(crate) definition_arn: String,
    pub(crate) overrides: Overrides,
    /// What the request says of where and as what it runs, in the words of a description.
    pub(crate) said: Map<String, Value>,
    pub(crate) started_by: Option<String>,
    pub(crate) tags: Value,
    /// The state it is in, behind all that it was in. AWS tells the last alone.
    pub(crate) states: Vec<Status>,
    pub(crate) stop: Option<Stop>,
    pub(crate) times: Times,
    pub(crate) parts: Vec<Part>,
    pub(crate) version: u64,
    /// When it was made, and when it was STOPPED, since the fake began.
    pub(crate) made_at: Duration,
    pub(crate) ended_at: Option<Duration>,
    /// Tells its life to end.
    pub(crate) orders: watch::Sender<Option<Stop>>,
}

impl Task {
    pub(crate) fn arn(&self) -> String {
        arn("task", &format!("{}/{}", self.cluster, self.id))
    }

    pub(crate) fn status(&self) -> Status {
        self.states.last().copied().unwrap_or(Status::Provisioning)
    }

    pub(crate) fn is_wanted(&self) -> bool {
        self.stop.is_none()
    }

    /// Says that the task is to stop; the first reason stands. A machine that is gone is gone also while its task is stopped.
    pub(crate) fn end(&mut self, stop: Stop, now: f64) {
        if stop.is_lost || self.stop.is_none() {
            self.orders.send_replace(Some(stop.clone()));
        }
        if self.stop.is_none() {
            self.stop = Some(stop);
            self.times.stopping = Some(now);
        }
    }

    /// As DescribeTasks and the others show it.
    pub(crate) fn described(&self) -> Value {
        let mut shown = self.said.clone();
        let (cpu, memory) = self.definition.sizes();
        let size = |asked: &Option<String>, own: Option<u32>| asked.clone().or(own.map(|number| number.to_string()));
        let mut say = |name: &str, value: Value| {
            if !value.is_null() {
                shown.insert(name.to_owned(), value);
            }
        };
        say("taskArn", json!(self.arn()));
        say("clusterArn", json!(arn("cluster", &self.cluster)));
        say("taskDefinitionArn", json!(self.definition_arn));
        say("lastStatus", json!(self.status().word()));
        say("desiredStatus", json!(if self.is_wanted() { "RUNNING" } else { "STOPPED" }));
        say("containers", self.parts.iter().zip(&self.definition.containers).map(|it| self.part(it)).collect());
        say("overrides", self.overrides.described(&self.definition));
        say("startedBy", json!(self.started_by));
        say("cpu", json!(size(&self.overrides.cpu, cpu)));
        say("memory", json!(size(&self.overrides.memory, memory)));
        say("version", json!(self.version));
        say("healthStatus", json!(self.health().word()));
        say("attributes", json!([{ "name": "ecs.cpu-architecture", "value": "x86_64" }]));
        let times = &self.times;
        say("createdAt", json!(times.created));
        say("pullStartedAt", json!(times.pull_started));
        say("pullStoppedAt", json!(times.pull_stopped));
        say("startedAt", json!(times.started));
        say("stoppingAt", json!(times.stopping));
        say("executionStoppedAt", json!(times.execution_stopped));
        say("stoppedAt", json!(times.stopped));
        say("stopCode", json!(self.stop.as_ref().map(|stop| stop.code)));
        say("stoppedReason", json!(self.stop.as_ref().map(|stop| &stop.reason)));
        Value::Object(shown)
    }

    fn part(&self, (part, container): (&Part, &Container)) -> Value {
        let status = match part.status {
            PartStatus::Pending => "PENDING",
            PartStatus::Running => "RUNNING",
            PartStatus::Stopped => "STOPPED",
        };
        let mut shown = json!({
            "containerArn": arn("container", &format!("{}/{}/{}", self.cluster, self.id, part.number)),
            "taskArn": self.arn(),
            "name": container.name,
            "image": container.image,
            "lastStatus": status,
            "networkInterfaces": [],
            "healthStatus": part.health.word(),
            "cpu": container.cpu.to_string(),
        });
        let optional = [
            ("runtimeId", json!(part.runtime_id)),
            ("exitCode", json!(part.exit_code)),
            ("reason", json!(part.reason)),
            ("memory", json!(container.memory.map(|mib| mib.to_string()))),
            ("memoryReservation", json!(container.memory_reservation.map(|mib| mib.to_string()))),
        ];
        for (name, value) in optional.into_iter().filter(|(_, value)| !value.is_null()) {
            shown[name] = value;
        }
        shown
    }

    /// A task is as healthy as its essential containers ("HealthCheck").
    fn health(&self) -> Health {
        let essential = self.parts.iter().zip(&self.definition.containers).filter(|(_, container)| container.essential);
        let healths: Vec<_> = essential.map(|(part, _)| part.health).collect();
        match () {
            () if healths.contains(&Health::Unhealthy) => Health::Unhealthy,
            () if healths.contains(&Health::Unknown) => Health::Unknown,
            () => Health::Healthy,
        }
    }
}
