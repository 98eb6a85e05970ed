//! The actions of ECS, each by its page in the API reference.

mod definitions;
mod describe;
mod list;
mod protection;
mod run;
mod stop;
mod tags;

use crate::ecs::Ecs;
use crate::refusal::Refusal;
use serde::de::DeserializeOwned;
use serde_json::Value;
use std::sync::Arc;

/// Does what a call asks.
pub(crate) fn act(ecs: &Arc<Ecs>, action: &str, body: Value) -> Result<Value, Refusal> {
    match action {
        "RegisterTaskDefinition" => definitions::register(ecs, body),
        "DescribeTaskDefinition" => definitions::describe(ecs, body),
        "DeregisterTaskDefinition" => definitions::deregister(ecs, body),
        "RunTask" => run::run(ecs, body),
        "DescribeTasks" => describe::describe(ecs, body),
        "ListTasks" => list::list(ecs, body),
        "StopTask" => stop::stop(ecs, body),
        "UpdateTaskProtection" => protection::update(ecs, body),
        "GetTaskProtection" => protection::of(ecs, body),
        "TagResource" => tags::tag(ecs, body),
        _ => Err(Refusal::action()),
    }
}

fn read<T: DeserializeOwned>(body: Value) -> Result<T, Refusal> {
    serde_json::from_value(body).map_err(|error| Refusal::serialization(error.to_string()))
}
