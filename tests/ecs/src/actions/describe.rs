//! "DescribeTasks".

use super::read;
use crate::ecs::{Ecs, arn};
use crate::refusal::Refusal;
use serde::Deserialize;
use serde_json::{Value, json};

const TASKS_MAX: usize = 100;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Request {
    cluster: Option<String>,
    tasks: Vec<String>,
    #[serde(default)]
    include: Vec<String>,
}

/// Those that are not there are no error: they are `failures` ("API failure reasons").
pub(super) fn describe(ecs: &Ecs, body: Value) -> Result<Value, Refusal> {
    let request: Request = read(body)?;
    let state = ecs.lock();
    let cluster = state.cluster(request.cluster.as_deref())?;
    if request.tasks.is_empty() || request.tasks.len() > TASKS_MAX {
        return Err(Refusal::parameter(format!("Tasks must be from 1 to {TASKS_MAX}.")));
    }
    let (mut tasks, mut failures) = (Vec::new(), Vec::new());
    for named in &request.tasks {
        match state.seen(&cluster, named, ecs.age()).and_then(|id| state.tasks.get(&id)) {
            Some(task) => {
                let mut described = task.described();
                let wants_tags = request.include.iter().any(|what| what == "TAGS");
                described["tags"] = if wants_tags { task.tags.clone() } else { json!([]) };
                tasks.push(described);
            }
            None if named.starts_with("arn:") => failures.push(json!({ "arn": named, "reason": "MISSING" })),
            None => failures.push(json!({ "arn": arn("task", &format!("{cluster}/{named}")), "reason": "MISSING" })),
        }
    }
    Ok(json!({ "tasks": tasks, "failures": failures }))
}
