//! "TagResource", of tasks.

use super::read;
use crate::ecs::Ecs;
use crate::refusal::Refusal;
use serde::Deserialize;
use serde_json::{Value, json};

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Request {
    resource_arn: String,
    tags: Vec<Value>,
}

/// A tag of the same key is replaced.
pub(super) fn tag(ecs: &Ecs, body: Value) -> Result<Value, Refusal> {
    let request: Request = read(body)?;
    let id = request.resource_arn.rsplit('/').next().unwrap_or_default().to_owned();
    let tagged = ecs.with(&id, |task| {
        let kept = task.tags.as_array().cloned().unwrap_or_default();
        let is_other = |tag: &Value| !request.tags.iter().any(|new| new["key"] == tag["key"]);
        task.tags = kept.into_iter().filter(is_other).chain(request.tags.clone()).collect();
    });
    tagged.map(|()| json!({})).ok_or_else(|| Refusal::resource("The specified resource was not found."))
}
