//! Task definitions: what is registered ("RegisterTaskDefinition"), and how it is found again.

mod check;
mod fargate;
mod sizes;
#[cfg(test)]
mod tests;

use crate::refusal::Refusal;
use serde::Deserialize;
use serde_json::{Map, Value};
use std::collections::BTreeMap;

/// What RegisterTaskDefinition is given, as far as this fake does something with it.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Definition {
    pub(crate) family: String,
    pub(crate) network_mode: Option<String>,
    pub(crate) task_role_arn: Option<String>,
    #[serde(rename = "containerDefinitions")]
    pub(crate) containers: Vec<Container>,
    #[serde(default)]
    pub(crate) volumes: Vec<Volume>,
    #[serde(default)]
    pub(crate) requires_compatibilities: Vec<String>,
    pub(crate) cpu: Option<String>,
    pub(crate) memory: Option<String>,
    pub(crate) ephemeral_storage: Option<Storage>,
    #[serde(flatten)]
    rest: Map<String, Value>,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Container {
    pub(crate) name: String,
    pub(crate) image: String,
    #[serde(default)]
    pub(crate) cpu: u32,
    pub(crate) memory: Option<u32>,
    pub(crate) memory_reservation: Option<u32>,
    #[serde(default = "yes")]
    pub(crate) essential: bool,
    #[serde(default)]
    pub(crate) entry_point: Vec<String>,
    #[serde(default)]
    pub(crate) command: Vec<String>,
    #[serde(default)]
    pub(crate) environment: Vec<Variable>,
    #[serde(default)]
    pub(crate) mount_points: Vec<MountPoint>,
    #[serde(default)]
    pub(crate) depends_on: Vec<Dependency>,
    pub(crate) start_timeout: Option<u32>,
    pub(crate) stop_timeout: Option<u32>,
    pub(crate) user: Option<String>,
    pub(crate) working_directory: Option<String>,
    #[serde(default)]
    pub(crate) readonly_root_filesystem: bool,
    #[serde(default)]
    pub(crate) privileged: bool,
    #[serde(default)]
    pub(crate) docker_security_options: Vec<String>,
    #[serde(default)]
    pub(crate) linux_parameters: LinuxParameters,
    #[serde(default)]
    pub(crate) ulimits: Vec<Ulimit>,
    pub(crate) health_check: Option<HealthCheck>,
    #[serde(flatten)]
    rest: Map<String, Value>,
}

/// A variable of a container's environment.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct Variable {
    pub(crate) name: String,
    #[serde(default)]
    pub(crate) value: String,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct MountPoint {
    pub(crate) source_volume: String,
    pub(crate) container_path: String,
    #[serde(default)]
    pub(crate) read_only: bool,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Dependency {
    pub(crate) container_name: String,
    pub(crate) condition: Condition,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "UPPERCASE")]
pub(crate) enum Condition {
    Start,
    Complete,
    Success,
    Healthy,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct LinuxParameters {
    #[serde(default)]
    pub(crate) capabilities: Capabilities,
    #[serde(default)]
    pub(crate) init_process_enabled: bool,
    #[serde(default)]
    pub(crate) tmpfs: Vec<Value>,
    #[serde(default)]
    pub(crate) devices: Vec<Value>,
    pub(crate) shared_memory_size: Option<u32>,
    pub(crate) max_swap: Option<u32>,
    pub(crate) swappiness: Option<u32>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Capabilities {
    #[serde(default)]
    pub(crate) add: Vec<String>,
    #[serde(default)]
    pub(crate) drop: Vec<String>,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Ulimit {
    pub(crate) name: String,
    pub(crate) soft_limit: i64,
    pub(crate) hard_limit: i64,
}

/// Times are in seconds.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct HealthCheck {
    pub(crate) command: Vec<String>,
    pub(crate) interval: Option<u32>,
    pub(crate) timeout: Option<u32>,
    pub(crate) retries: Option<u32>,
    pub(crate) start_period: Option<u32>,
}

#[derive(Clone, Debug, Deserialize)]
pub(crate) struct Volume {
    pub(crate) name: String,
    host: Option<VolumeHost>,
    #[serde(flatten)]
    rest: Map<String, Value>,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct VolumeHost {
    source_path: Option<String>,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Storage {
    pub(crate) size_in_gi_b: u32,
}

fn yes() -> bool {
    true
}

impl Definition {
    /// Whether each task of it has a network of its own.
    pub(crate) fn is_awsvpc(&self) -> bool {
        self.network_mode.as_deref() == Some("awsvpc")
    }

    pub(crate) fn is_for_fargate(&self) -> bool {
        self.requires_compatibilities.iter().any(|name| name == "FARGATE")
    }

    /// The task's share of CPU and its memory in MiB, as far as they are given.
    pub(crate) fn sizes(&self) -> (Option<u32>, Option<u32>) {
        (self.cpu.as_deref().and_then(sizes::cpu_units), self.memory.as_deref().and_then(sizes::mib))
    }

    /// Reads and checks a request.
    pub(crate) fn read(body: &Value) -> Result<Self, Refusal> {
        let read: Self =
            serde_json::from_value(body.clone()).map_err(|error| Refusal::serialization(error.to_string()))?;
        check::check(&read)?;
        if read.is_for_fargate() {
            fargate::check(&read)?;
        }
        if let Some(name) = read.containers.iter().find_map(fargate::not_here) {
            return Err(Refusal::client(format!("The fake does not do {name}.")));
        }
        Ok(read)
    }
}

/// A revision of a family.
#[derive(Clone, Debug)]
pub(crate) struct Revision {
    pub(crate) arn: String,
    pub(crate) number: u32,
    pub(crate) is_active: bool,
    pub(crate) definition: std::sync::Arc<Definition>,
    /// As it is described, but for its status.
    pub(crate) described: Value,
}

/// All revisions by family.
#[derive(Debug, Default)]
pub(crate) struct Families(BTreeMap<String, Vec<Revision>>);

impl Families {
    /// The number that the next revision of a family has.
    pub(crate) fn next(&self, family: &str) -> usize {
        self.0.get(family).map_or(0, Vec::len) + 1
    }

    pub(crate) fn add(&mut self, revision: Revision) {
        self.0.entry(revision.definition.family.clone()).or_default().push(revision);
    }

    /// The revision that `family`, `family:revision` or an ARN names; a family alone stands for its latest active revision.
    pub(crate) fn find(&mut self, name: &str) -> Option<&mut Revision> {
        let name = name.rsplit_once(":task-definition/").map_or(name, |(_, name)| name);
        let Some((family, number)) = name.split_once(':') else {
            return self.0.get_mut(name)?.iter_mut().rev().find(|revision| revision.is_active);
        };
        let number: u32 = number.parse().ok()?;
        self.0.get_mut(family)?.iter_mut().find(|revision| revision.number == number)
    }
}
