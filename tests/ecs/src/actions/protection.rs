//! "UpdateTaskProtection", "GetTaskProtection": only for tasks of services, which the fake is told of by its settings.

use super::read;
use crate::ecs::{Ecs, State, arn, now};
use crate::refusal::Refusal;
use serde::Deserialize;
use serde_json::{Value, json};

const TASKS_MAX: usize = 10;
const MINUTES: std::ops::RangeInclusive<u32> = 1..=2880;
/// Two hours, if nothing is said.
const MINUTES_DEFAULT: u32 = 120;

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Update {
    cluster: String,
    tasks: Vec<String>,
    protection_enabled: bool,
    expires_in_minutes: Option<u32>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Get {
    cluster: String,
    #[serde(default)]
    tasks: Vec<String>,
}

pub(super) fn update(ecs: &Ecs, body: Value) -> Result<Value, Refusal> {
    let request: Update = read(body)?;
    let minutes = request.expires_in_minutes.unwrap_or(MINUTES_DEFAULT);
    if !MINUTES.contains(&minutes) {
        return Err(Refusal::parameter("expiresInMinutes must be from 1 to 2880."));
    }
    let mut state = ecs.lock();
    for id in request.tasks.iter().map(|named| id_of(named)).filter(|id| is_services(&state, id)).collect::<Vec<_>>() {
        match request.protection_enabled {
            true => state.protected.insert(id, now() + f64::from(minutes * 60)),
            false => state.protected.remove(&id),
        };
    }
    shown(&state, &request.cluster, &request.tasks)
}

pub(super) fn of(ecs: &Ecs, body: Value) -> Result<Value, Refusal> {
    let request: Get = read(body)?;
    shown(&ecs.lock(), &request.cluster, &request.tasks)
}

fn id_of(named: &str) -> String {
    named.rsplit('/').next().unwrap_or(named).to_owned()
}

fn is_services(state: &State, id: &String) -> bool {
    state.settings.service_tasks.contains(id)
}

/// A task that belongs to no service is a failure ("API failure reasons", TASK_NOT_VALID).
fn shown(state: &State, cluster: &str, tasks: &[String]) -> Result<Value, Refusal> {
    let cluster = state.cluster(Some(cluster))?;
    if tasks.len() > TASKS_MAX {
        return Err(Refusal::parameter(format!("Tasks must be at most {TASKS_MAX}.")));
    }
    let (mut protected, mut failures) = (Vec::new(), Vec::new());
    for id in tasks.iter().map(|named| id_of(named)) {
        let name = arn("task", &format!("{cluster}/{id}"));
        let until = state.protected.get(&id).filter(|until| **until > now());
        match (is_services(state, &id), until) {
            (true, Some(until)) => {
                protected.push(json!({ "taskArn": name, "protectionEnabled": true, "expirationDate": until }));
            }
            (true, None) => protected.push(json!({ "taskArn": name, "protectionEnabled": false })),
            (false, _) if state.tasks.contains_key(&id) => {
                failures.push(json!({ "arn": name, "reason": "TASK_NOT_VALID" }));
            }
            (false, _) => failures.push(json!({ "arn": name, "reason": "MISSING" })),
        }
    }
    Ok(json!({ "protectedTasks": protected, "failures": failures }))
}
