//! "RegisterTaskDefinition", "DescribeTaskDefinition", "DeregisterTaskDefinition".

use super::read;
use crate::definition::{Definition, Revision};
use crate::ecs::{ACCOUNT, Ecs, arn, now};
use crate::refusal::Refusal;
use serde::Deserialize;
use serde_json::{Value, json};
use std::sync::Arc;

pub(super) fn register(ecs: &Ecs, body: Value) -> Result<Value, Refusal> {
    let definition = Definition::read(&body)?;
    let mut state = ecs.lock();
    let number = u32::try_from(state.families.next(&definition.family)).unwrap_or(u32::MAX);
    let arn = arn("task-definition", &format!("{}:{number}", definition.family));
    let mut described = body;
    let tags = described.as_object_mut().and_then(|body| body.remove("tags")).unwrap_or_else(|| json!([]));
    fill(&mut described, &definition);
    described["taskDefinitionArn"] = json!(arn);
    described["revision"] = json!(number);
    let revision = Revision { arn, number, is_active: true, definition: Arc::new(definition), described };
    let mut answer = shown(&revision);
    answer["tags"] = tags;
    state.families.add(revision);
    Ok(answer)
}

/// What a description has though it was not given.
fn fill(described: &mut Value, definition: &Definition) {
    let fields = [
        ("volumes", json!([])),
        ("placementConstraints", json!([])),
        ("requiresAttributes", json!([])),
        ("networkMode", json!("bridge")),
    ];
    absent(described, &fields);
    described["compatibilities"] = json!(if definition.is_awsvpc() { vec!["EC2", "FARGATE"] } else { vec!["EC2"] });
    described["registeredAt"] = json!(now());
    described["registeredBy"] = json!(format!("arn:aws:iam::{ACCOUNT}:root"));
    let fields = [
        ("cpu", json!(0)),
        ("essential", json!(true)),
        ("environment", json!([])),
        ("mountPoints", json!([])),
        ("portMappings", json!([])),
        ("systemControls", json!([])),
        ("volumesFrom", json!([])),
    ];
    for container in described["containerDefinitions"].as_array_mut().into_iter().flatten() {
        absent(container, &fields);
    }
}

fn absent(described: &mut Value, fields: &[(&str, Value)]) {
    for (name, value) in fields {
        if described.get(name).is_none() {
            described[*name] = value.clone();
        }
    }
}

fn shown(revision: &Revision) -> Value {
    let mut described = revision.described.clone();
    described["status"] = json!(if revision.is_active { "ACTIVE" } else { "INACTIVE" });
    json!({ "taskDefinition": described })
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Named {
    task_definition: String,
    #[serde(default, rename = "include")]
    _include: Vec<String>,
}

pub(super) fn describe(ecs: &Ecs, body: Value) -> Result<Value, Refusal> {
    let named: Named = read(body)?;
    let mut state = ecs.lock();
    let revision = state.families.find(&named.task_definition);
    let mut answer = shown(revision.ok_or_else(|| Refusal::client("Unable to describe task definition."))?);
    answer["tags"] = json!([]);
    Ok(answer)
}

/// From then on it runs no new tasks; those that run are left alone.
pub(super) fn deregister(ecs: &Ecs, body: Value) -> Result<Value, Refusal> {
    let named: Named = read(body)?;
    if !named.task_definition.trim_start_matches("arn:aws:ecs:").contains(':') {
        return Err(Refusal::client("A revision must be named."));
    }
    let mut state = ecs.lock();
    let found = state.families.find(&named.task_definition);
    let revision = found.ok_or_else(|| Refusal::client("The specified task definition does not exist."))?;
    revision.is_active = false;
    revision.described["deregisteredAt"] = json!(now());
    Ok(shown(revision))
}
