//! "RunTask".

use super::read;
use crate::agent;
use crate::definition::{Definition, Revision};
use crate::ecs::{Ecs, Made, arn, now};
use crate::faults::Fault;
use crate::overrides::Overrides;
use crate::refusal::Refusal;
use crate::task::{Part, Status, Stop, Task, Times};
use serde::Deserialize;
use serde_json::{Map, Value, json};
use std::sync::Arc;
use tokio::sync::watch;
use uuid::Uuid;

const COUNT_MAX: u32 = 10;
/// The reference says 128 today, and said 36 until lately: what keeps to 36 is right by both.
const STARTED_BY_MAX: usize = 36;
const CLIENT_TOKEN_MAX: usize = 64;
/// "AwsVpcConfiguration".
const SUBNETS_MAX: usize = 16;
const SECURITY_GROUPS_MAX: usize = 5;

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Request {
    cluster: Option<String>,
    task_definition: String,
    count: Option<u32>,
    client_token: Option<String>,
    started_by: Option<String>,
    group: Option<String>,
    launch_type: Option<String>,
    #[serde(default)]
    capacity_provider_strategy: Vec<Provider>,
    network_configuration: Option<Networks>,
    overrides: Option<Value>,
    platform_version: Option<String>,
    #[serde(default)]
    enable_execute_command: bool,
    #[serde(default)]
    tags: Vec<Value>,
    #[serde(default, rename = "enableECSManagedTags")]
    _managed_tags: bool,
    #[serde(rename = "propagateTags")]
    propagate_tags: Option<String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Provider {
    capacity_provider: String,
    #[serde(default, rename = "weight")]
    _weight: u32,
    #[serde(default, rename = "base")]
    _base: u32,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Networks {
    awsvpc_configuration: Network,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Network {
    subnets: Vec<String>,
    #[serde(default)]
    security_groups: Vec<String>,
    assign_public_ip: Option<String>,
}

/// Makes tasks; each then lives by itself. The same client token makes them once ("Ensuring idempotency").
pub(super) fn run(ecs: &Arc<Ecs>, body: Value) -> Result<Value, Refusal> {
    let mut asked = body.clone();
    asked.as_object_mut().map(|asked| asked.remove("clientToken"));
    let request: Request = read(body)?;
    let mut state = ecs.lock();
    let cluster = state.cluster(request.cluster.as_deref())?;
    check(&request)?;
    let token = request.client_token.clone().map(|token| (cluster.clone(), token));
    if let Some(made) = token.as_ref().and_then(|token| state.made.get(token)) {
        let is_same = made.request == asked;
        return if is_same { Ok(made.answer.clone()) } else { Err(Refusal::conflict(made.tasks.clone())) };
    }
    let found = state.families.find(&request.task_definition).cloned();
    let revision = found.ok_or_else(|| Refusal::client("TaskDefinition not found."))?;
    check_definition(&request, &revision)?;
    let overrides = Overrides::read(request.overrides.clone(), &revision.definition)?;
    check_role(&request, &revision.definition, &overrides)?;
    let is_refusal = |fault: &Fault| matches!(fault, Fault::NotPlaced { .. });
    if let Some(Fault::NotPlaced { reason, .. }) = state.faults.take(is_refusal) {
        let named = arn("container-instance", &format!("{cluster}/{}", Uuid::new_v4().simple()));
        return Ok(json!({ "tasks": [], "failures": [{ "arn": named, "reason": reason }] }));
    }
    let (mut described, mut ids) = (Vec::new(), Vec::new());
    for _ in 0..request.count.unwrap_or(1) {
        let (task, orders) = task(ecs, &cluster, &request, &revision, overrides.clone());
        described.push(task.described());
        ids.push(task.arn());
        let life = agent::live(Arc::clone(ecs), task.id.clone(), orders);
        state.tasks.insert(task.id.clone(), task);
        tokio::spawn(life);
    }
    let answer = json!({ "tasks": described, "failures": [] });
    if let Some(token) = token {
        state.made.insert(token, Made { request: asked, answer: answer.clone(), tasks: ids });
    }
    Ok(answer)
}

fn refuse(is_wrong: bool, why: &str) -> Result<(), Refusal> {
    if is_wrong { Err(Refusal::parameter(why)) } else { Ok(()) }
}

fn check(request: &Request) -> Result<(), Refusal> {
    let count = request.count.unwrap_or(1);
    refuse(!(1..=COUNT_MAX).contains(&count), "count must be from 1 to 10.")?;
    let is_letter = |letter: char| letter.is_ascii_alphanumeric() || "-_/".contains(letter);
    let is_tag = |by: &String| by.len() <= STARTED_BY_MAX && by.chars().all(is_letter);
    refuse(!request.started_by.as_ref().is_none_or(is_tag), "Invalid startedBy.")?;
    let is_token =
        |token: &String| token.len() <= CLIENT_TOKEN_MAX && token.bytes().all(|byte| (33..=126).contains(&byte));
    refuse(!request.client_token.as_ref().is_none_or(is_token), "Invalid clientToken.")?;
    let has_both = request.launch_type.is_some() && !request.capacity_provider_strategy.is_empty();
    refuse(has_both, "Specifying both a launch type and capacity provider strategy is not supported.")?;
    refuse(request.propagate_tags.as_deref() == Some("SERVICE"), "propagateTags can't be SERVICE for RunTask.")?;
    let Some(networks) = &request.network_configuration else { return Ok(()) };
    let network = &networks.awsvpc_configuration;
    refuse(!(1..=SUBNETS_MAX).contains(&network.subnets.len()), "subnets must be from 1 to 16.")?;
    refuse(network.security_groups.len() > SECURITY_GROUPS_MAX, "securityGroups must be at most 5.")?;
    let is_known = matches!(network.assign_public_ip.as_deref(), None | Some("ENABLED" | "DISABLED"));
    refuse(!is_known, "assignPublicIp must be ENABLED or DISABLED.")
}

fn check_definition(request: &Request, revision: &Revision) -> Result<(), Refusal> {
    if !revision.is_active {
        return Err(Refusal::client("TaskDefinition is inactive"));
    }
    let is_awsvpc = revision.definition.is_awsvpc();
    let has_network = request.network_configuration.is_some();
    let needed = "Network Configuration must be provided when networkMode 'awsvpc' is specified.";
    refuse(is_awsvpc && !has_network, needed)?;
    refuse(
        !is_awsvpc && has_network,
        "Network Configuration is not valid for the given networkMode of this task definition.",
    )?;
    let on_fargate = request.launch_type.as_deref() == Some("FARGATE")
        || request.capacity_provider_strategy.iter().any(|it| it.capacity_provider.starts_with("FARGATE"));
    let why = "Task definition does not support launch_type FARGATE.";
    refuse(on_fargate && !revision.definition.is_for_fargate(), why)
}

/// "Monitor Amazon ECS containers with ECS Exec": it is by the task's role.
fn check_role(request: &Request, definition: &Definition, overrides: &Overrides) -> Result<(), Refusal> {
    let has_role = definition.task_role_arn.is_some() || overrides.task_role_arn.is_some();
    refuse(request.enable_execute_command && !has_role, "ECS Exec needs a task role.")
}

fn task(
    ecs: &Ecs,
    cluster: &str,
    request: &Request,
    revision: &Revision,
    overrides: Overrides,
) -> (Task, watch::Receiver<Option<Stop>>) {
    let (orders, heard) = watch::channel(None);
    let definition = Arc::clone(&revision.definition);
    let task = Task {
        id: Uuid::new_v4().simple().to_string(),
        cluster: cluster.to_owned(),
        said: said(request, &definition),
        definition_arn: revision.arn.clone(),
        overrides,
        started_by: request.started_by.clone(),
        tags: request.tags.clone().into(),
        states: vec![Status::Provisioning],
        stop: None,
        times: Times { created: now(), ..Times::default() },
        parts: definition.containers.iter().map(|_| Part { number: Uuid::new_v4(), ..Part::default() }).collect(),
        definition,
        version: 1,
        made_at: ecs.age(),
        ended_at: None,
        orders,
    };
    (task, heard)
}

fn said(request: &Request, definition: &Definition) -> Map<String, Value> {
    let group = request.group.clone().unwrap_or_else(|| format!("family:{}", definition.family));
    let provider = request.capacity_provider_strategy.first().map(|it| it.capacity_provider.clone());
    let launch_type = request.launch_type.clone().unwrap_or_else(|| {
        let is_fargate = provider.as_ref().is_some_and(|name| name.starts_with("FARGATE"));
        if is_fargate { "FARGATE" } else { "EC2" }.into()
    });
    let mut said = Map::new();
    if launch_type == "FARGATE" {
        said.insert("platformVersion".into(), json!(request.platform_version.as_deref().unwrap_or("1.4.0")));
        said.insert("platformFamily".into(), json!("Linux"));
        let gib = definition.ephemeral_storage.as_ref().map_or(20, |storage| storage.size_in_gi_b);
        said.insert("ephemeralStorage".into(), json!({ "sizeInGiB": gib }));
    }
    if let Some(provider) = provider {
        said.insert("capacityProviderName".into(), json!(provider));
    }
    said.insert("launchType".into(), json!(launch_type));
    said.insert("group".into(), json!(group));
    said.insert("availabilityZone".into(), json!("us-east-1a"));
    said.insert("attachments".into(), json!([]));
    said.insert("enableExecuteCommand".into(), json!(request.enable_execute_command));
    said
}
