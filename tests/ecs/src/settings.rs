//! How the fake behaves where AWS's own behaviour is a matter of luck and hours.

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::time::Duration;

/// The settings of a fake; [`Settings::default`] is quick, and a little inconsistent, as AWS is.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Settings {
    /// The clusters that exist.
    pub clusters: Vec<String>,
    /// For how long a new task is unknown to every call but the RunTask that made it, in milliseconds ("RunTask", on eventual consistency).
    pub invisible_ms: u64,
    /// How long a task is PROVISIONING: its network interface is made.
    pub provisioning_ms: u64,
    /// How long a task is PENDING before its first container is made: images are pulled. Fargate takes 20 to 60 s for both.
    pub pulling_ms: u64,
    /// How long a task is DEPROVISIONING once its containers have ended.
    pub deprovisioning_ms: u64,
    /// How long a stopped task can be described. AWS says: at least an hour ("DescribeTasks").
    pub stopped_kept_ms: u64,
    /// How many calls are taken, by action. An action that is not named is not throttled.
    pub throttles: BTreeMap<String, Throttle>,
    /// What the containers of a task reach.
    pub network: Network,
    /// In which order a task's containers are stopped.
    pub stopping: Stopping,
    /// An image with `/bin/busybox`, whose container holds a task's network.
    pub pause_image: String,
    /// Ids of tasks that exist and belong to a service, so that they can be protected; nothing runs for them.
    pub service_tasks: Vec<String>,
}

/// A token bucket ("Request throttling for the Amazon ECS API").
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Throttle {
    /// How many calls may come at once; at least 1.
    pub burst: f64,
    /// How many may come each second, on and on.
    pub per_second: f64,
}

/// What the containers of a task reach. AWS gives each task an interface in a VPC; here there is none.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Network {
    /// The host's own network, with all that listens there: an emergency exit that keeps nothing apart.
    Host,
    /// A network of the task's own with nothing in it but these ports of 127.0.0.1, behind each of which is the host's same port.
    Ports(Vec<u16>),
}

/// In which order a task's containers are stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Stopping {
    /// A container hears SIGTERM when all that depend on it have ended, as "ContainerDependency" says.
    Reversed,
    /// All at once.
    AtOnce,
}

impl Default for Settings {
    fn default() -> Self {
        // "AWS Fargate throttling quotas": RunTask 20 a second, burst and sustained.
        let run_task = Throttle { burst: 20.0, per_second: 20.0 };
        Self {
            clusters: vec!["default".into(), "callboard".into()],
            invisible_ms: 200,
            provisioning_ms: 50,
            pulling_ms: 50,
            deprovisioning_ms: 50,
            stopped_kept_ms: 3_600_000,
            throttles: [("RunTask".to_owned(), run_task)].into(),
            network: Network::Ports(Vec::new()),
            stopping: Stopping::Reversed,
            pause_image: "callboard-test:busybox".into(),
            service_tasks: Vec::new(),
        }
    }
}

/// A setting in milliseconds.
pub(crate) fn ms(number: u64) -> Duration {
    Duration::from_millis(number)
}
