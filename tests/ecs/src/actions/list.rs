//! "ListTasks".

use super::read;
use crate::ecs::Ecs;
use crate::refusal::Refusal;
use crate::task::Task;
use serde::Deserialize;
use serde_json::{Value, json};

const PAGE_MAX: usize = 100;

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Request {
    cluster: Option<String>,
    started_by: Option<String>,
    family: Option<String>,
    desired_status: Option<String>,
    launch_type: Option<String>,
    max_results: Option<usize>,
    next_token: Option<String>,
}

pub(super) fn list(ecs: &Ecs, body: Value) -> Result<Value, Refusal> {
    let request: Request = read(body)?;
    let page = request.max_results.unwrap_or(PAGE_MAX);
    if !(1..=PAGE_MAX).contains(&page) {
        return Err(Refusal::parameter(format!("maxResults must be from 1 to {PAGE_MAX}.")));
    }
    // As the page has it: "startedBy" is then the only filter. What state is wanted is told besides.
    if request.started_by.is_some() && (request.family.is_some() || request.launch_type.is_some()) {
        return Err(Refusal::parameter("startedBy must be the only filter."));
    }
    let wanted = match request.desired_status.as_deref() {
        None | Some("RUNNING") => Some(true),
        Some("STOPPED") => Some(false),
        // Taken, and nothing is ever so.
        Some("PENDING") => None,
        Some(_) => return Err(Refusal::parameter("Unrecognized desiredStatus.")),
    };
    let state = ecs.lock();
    let cluster = state.cluster(request.cluster.as_deref())?;
    // The token is the last id of the page before. Ids have no order, and new ones may come on any page.
    let is_asked = |task: &&Task| {
        Some(task.is_wanted()) == wanted
            && request.started_by.as_ref().is_none_or(|by| task.started_by.as_ref() == Some(by))
            && request.family.as_ref().is_none_or(|family| task.definition.family == *family)
            && request.launch_type.as_ref().is_none_or(|it| task.said.get("launchType") == Some(&json!(it)))
            && request.next_token.as_ref().is_none_or(|last| task.id > *last)
    };
    let found: Vec<_> = state.all_seen(&cluster, ecs.age()).filter(is_asked).take(page + 1).collect();
    let more = found.len() > page;
    let shown = &found[..found.len().min(page)];
    let mut answer = json!({ "taskArns": shown.iter().map(|task| task.arn()).collect::<Vec<_>>() });
    if let Some(last) = shown.last().filter(|_| more) {
        answer["nextToken"] = json!(last.id);
    }
    Ok(answer)
}
