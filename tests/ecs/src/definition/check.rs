//! What no task definition may be, wherever its tasks run ("RegisterTaskDefinition", "ContainerDefinition", "ContainerDependency").

use super::{Condition, Container, Definition, HealthCheck};
use crate::refusal::Refusal;
use std::collections::BTreeSet;

/// "Amazon ECS service quotas": containers of a task definition.
const CONTAINERS_MAX: usize = 10;
/// Docker reserves that much for a container ("ContainerDefinition", memory).
const MEMORY_MIN_MIB: u32 = 6;
/// What is taken and has no effect here: where logs go, what else a container's kernel is told, and what is shown of a task.
const IGNORED: [&str; 9] = [
    "executionRoleArn",
    "runtimePlatform",
    "tags",
    "placementConstraints",
    "logConfiguration",
    "portMappings",
    "systemControls",
    "dockerLabels",
    "versionConsistency",
];
const ULIMITS: [&str; 15] = [
    "core",
    "cpu",
    "data",
    "fsize",
    "locks",
    "memlock",
    "msgqueue",
    "nice",
    "nofile",
    "nproc",
    "rss",
    "rtprio",
    "rttime",
    "sigpending",
    "stack",
];

pub(super) fn check(definition: &Definition) -> Result<(), Refusal> {
    is_name("family", &definition.family)?;
    let known = definition.rest.keys().find(|name| !is_known(name));
    refuse(known.is_some(), || format!("The fake does not know {} of a task definition.", known.map_or("", |it| it)))?;
    let containers = &definition.containers;
    refuse(containers.is_empty(), || "Container list cannot be empty.".into())?;
    refuse(containers.len() > CONTAINERS_MAX, || format!("Too many containers: at most {CONTAINERS_MAX}."))?;
    let names: BTreeSet<_> = containers.iter().map(|container| container.name.as_str()).collect();
    refuse(names.len() < containers.len(), || "Container names must be unique.".into())?;
    refuse(!containers.iter().any(|container| container.essential), || {
        "At least one container must be essential.".into()
    })?;
    let volumes: BTreeSet<_> = definition.volumes.iter().map(|volume| volume.name.as_str()).collect();
    refuse(volumes.len() < definition.volumes.len(), || "Volume names must be unique.".into())?;
    for volume in &volumes {
        is_name("volume", volume)?;
    }
    for container in containers {
        check_container(container, &volumes)?;
        check_dependencies(container, containers)?;
    }
    refuse(has_circle(containers), || "dependsOn leads in a circle.".into())?;
    check_memory(definition)
}

/// Known, or known not to be for Fargate, which says so itself.
fn is_known(name: &str) -> bool {
    IGNORED.contains(&name) || super::fargate::REFUSED.contains(&name)
}

fn refuse(is_wrong: bool, why: impl FnOnce() -> String) -> Result<(), Refusal> {
    if is_wrong { Err(Refusal::client(why())) } else { Ok(()) }
}

/// Up to 255 letters, numbers, underscores and hyphens.
fn is_name(what: &str, name: &str) -> Result<(), Refusal> {
    let is_right = |letter: char| letter.is_ascii_alphanumeric() || letter == '_' || letter == '-';
    let is_name = (1..=255).contains(&name.len()) && name.chars().all(is_right);
    refuse(!is_name, || format!("Invalid {what} name {name:?}."))
}

fn check_container(container: &Container, volumes: &BTreeSet<&str>) -> Result<(), Refusal> {
    let of = |what: &str| format!("Invalid setting for container '{}': {what}.", container.name);
    is_name("container", &container.name)?;
    let unknown = container.rest.keys().find(|name| !is_known(name));
    refuse(unknown.is_some(), || of(&format!("the fake does not know {}", unknown.map_or("", |it| it))))?;
    refuse(container.image.is_empty(), || of("image must not be empty"))?;
    for mount in &container.mount_points {
        let is_there = volumes.contains(mount.source_volume.as_str());
        refuse(!is_there, || of(&format!("unknown volume '{}'", mount.source_volume)))?;
        refuse(!mount.container_path.starts_with('/'), || of("containerPath must be absolute"))?;
    }
    let ulimit =
        container.ulimits.iter().find(|one| !ULIMITS.contains(&one.name.as_str()) || one.soft_limit > one.hard_limit);
    refuse(ulimit.is_some(), || of("ulimits"))?;
    refuse(container.memory.is_some_and(|mib| mib < MEMORY_MIN_MIB), || of("memory is too small"))?;
    let is_reserved =
        container.memory.zip(container.memory_reservation).is_some_and(|(most, reserved)| most <= reserved);
    refuse(is_reserved, || of("memory must be greater than memoryReservation"))?;
    let is_short = container.start_timeout.is_some_and(|seconds| !(2..=120).contains(&seconds));
    refuse(is_short, || of("startTimeout must be from 2 to 120"))?;
    container.health_check.as_ref().map_or(Ok(()), |check| check_health(check, &of))
}

/// "HealthCheck".
fn check_health(check: &HealthCheck, of: &dyn Fn(&str) -> String) -> Result<(), Refusal> {
    let begins = check.command.first().map(String::as_str);
    let is_command = check.command.len() > 1 && matches!(begins, Some("CMD" | "CMD-SHELL"));
    refuse(!is_command, || of("healthCheck needs a command that begins with CMD or CMD-SHELL"))?;
    let bounds = [
        ("interval", check.interval, 5..=300),
        ("timeout", check.timeout, 2..=60),
        ("retries", check.retries, 1..=10),
        ("startPeriod", check.start_period, 0..=300),
    ];
    for (name, value, bounds) in bounds {
        let is_out = value.is_some_and(|value| !bounds.contains(&value));
        refuse(is_out, || of(&format!("healthCheck.{name} must be from {} to {}", bounds.start(), bounds.end())))?;
    }
    Ok(())
}

fn check_dependencies(container: &Container, all: &[Container]) -> Result<(), Refusal> {
    for dependency in &container.depends_on {
        let name = &dependency.container_name;
        let of = |what: &str| format!("Invalid dependsOn of container '{}': '{name}' {what}.", container.name);
        let Some(other) = all.iter().find(|other| other.name == *name) else {
            return Err(Refusal::client(of("is no container of this task definition")));
        };
        match dependency.condition {
            Condition::Start => {}
            Condition::Complete | Condition::Success => {
                refuse(other.essential, || of("is essential and must not end"))?
            }
            Condition::Healthy => refuse(other.health_check.is_none(), || of("has no healthCheck"))?,
        }
    }
    Ok(())
}

/// Whether no order starts all.
fn has_circle(containers: &[Container]) -> bool {
    let mut started = BTreeSet::new();
    loop {
        let before = started.len();
        for container in containers {
            if container.depends_on.iter().all(|it| started.contains(it.container_name.as_str())) {
                started.insert(container.name.as_str());
            }
        }
        if started.len() == before {
            return started.len() < containers.len();
        }
    }
}

/// All containers' memory together is no more than the task's, and each has some.
fn check_memory(definition: &Definition) -> Result<(), Refusal> {
    let (_, task) = definition.sizes();
    let reserved = |container: &Container| container.memory_reservation.or(container.memory);
    let total: u64 = definition.containers.iter().filter_map(reserved).map(u64::from).sum();
    let is_over = task.is_some_and(|task| total > u64::from(task));
    refuse(is_over, || "The containers' memory is more than the task's.".into())?;
    let is_bare = task.is_none() && definition.containers.iter().any(|container| reserved(container).is_none());
    refuse(is_bare, || "A container needs memory or memoryReservation where the task has no memory.".into())
}
