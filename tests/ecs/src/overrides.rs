//! What a RunTask says otherwise than its definition ("TaskOverride", "ContainerOverride").

use crate::definition::{Container, Definition, Variable};
use crate::refusal::Refusal;
use serde::Deserialize;
use serde_json::{Value, json};
use std::collections::BTreeMap;

/// Characters of all overrides, with JSON's own ("RunTask", overrides).
const LENGTH_MAX: usize = 8192;

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct Overrides {
    #[serde(default, rename = "containerOverrides")]
    containers: Vec<Override>,
    pub(crate) cpu: Option<String>,
    pub(crate) memory: Option<String>,
    pub(crate) task_role_arn: Option<String>,
    #[serde(rename = "executionRoleArn")]
    _execution_role_arn: Option<String>,
    #[serde(rename = "ephemeralStorage")]
    _ephemeral_storage: Option<Value>,
    /// As it came.
    #[serde(skip)]
    whole: Value,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Override {
    name: String,
    command: Option<Vec<String>>,
    #[serde(default)]
    environment: Vec<Variable>,
    cpu: Option<u32>,
    memory: Option<u32>,
    memory_reservation: Option<u32>,
}

impl Overrides {
    /// Reads and checks those of a request.
    pub(crate) fn read(whole: Option<Value>, definition: &Definition) -> Result<Self, Refusal> {
        let Some(whole) = whole else { return Ok(Self::default()) };
        let length = whole.to_string().chars().count();
        if length > LENGTH_MAX {
            return Err(Refusal::parameter(format!("Overrides length must be at most {LENGTH_MAX}: it is {length}.")));
        }
        let mut read: Self =
            serde_json::from_value(whole.clone()).map_err(|error| Refusal::serialization(error.to_string()))?;
        for named in &read.containers {
            if !definition.containers.iter().any(|container| container.name == named.name) {
                let name = &named.name;
                let why = format!("Override for container named {name} is not a container in the TaskDefinition.");
                return Err(Refusal::parameter(why));
            }
        }
        read.whole = whole;
        Ok(read)
    }

    /// A container as this task has it: variables are added, and replace those of the same name.
    pub(crate) fn applied(&self, container: &Container) -> Container {
        let mut applied = container.clone();
        for it in self.containers.iter().filter(|it| it.name == container.name) {
            if let Some(command) = &it.command {
                applied.command.clone_from(command);
            }
            applied.cpu = it.cpu.unwrap_or(applied.cpu);
            applied.memory = it.memory.or(applied.memory);
            applied.memory_reservation = it.memory_reservation.or(applied.memory_reservation);
            let all = applied.environment.iter().chain(&it.environment);
            let last: BTreeMap<_, _> = all.map(|variable| (&variable.name, &variable.value)).collect();
            applied.environment =
                last.into_iter().map(|(name, value)| Variable { name: name.clone(), value: value.clone() }).collect();
        }
        applied
    }

    /// As a task shows them: with an entry for each container of the definition.
    pub(crate) fn described(&self, definition: &Definition) -> Value {
        let mut shown = if self.whole.is_null() { json!({}) } else { self.whole.clone() };
        let mut entries = shown["containerOverrides"].as_array().cloned().unwrap_or_default();
        let is_named = |name: &str| self.containers.iter().any(|it| it.name == name);
        let others = definition.containers.iter().filter(|container| !is_named(&container.name));
        entries.extend(others.map(|container| json!({ "name": container.name })));
        shown["containerOverrides"] = entries.into();
        shown
    }
}
