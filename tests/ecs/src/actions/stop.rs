//! "StopTask".

use super::read;
use crate::ecs::{Ecs, now};
use crate::refusal::Refusal;
use crate::task::Stop;
use serde::Deserialize;
use serde_json::{Value, json};

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Request {
    cluster: Option<String>,
    task: String,
    reason: Option<String>,
}

/// The task that a call names, if it is known yet, and still.
fn find(ecs: &Ecs, cluster: Option<&str>, named: &str) -> Result<String, Refusal> {
    let state = ecs.lock();
    let cluster = state.cluster(cluster)?;
    let found = state.seen(&cluster, named, ecs.age());
    found.ok_or_else(|| Refusal::parameter("The referenced task was not found."))
}

/// Asks the containers to end; those that don't within their stopTimeout are killed. One that has stopped is shown as it is.
pub(super) fn stop(ecs: &Ecs, body: Value) -> Result<Value, Refusal> {
    let request: Request = read(body)?;
    let id = find(ecs, request.cluster.as_deref(), &request.task)?;
    let reason = request.reason.unwrap_or_else(|| "Task stopped by user".into());
    let stopped = ecs.with(&id, |task| {
        task.end(Stop::new("UserInitiated", reason), now());
        task.described()
    });
    Ok(json!({ "task": stopped }))
}
