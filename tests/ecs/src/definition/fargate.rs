//! What Fargate refuses besides ("Amazon ECS task definition differences for Fargate").

use super::{Container, Definition, sizes};
use crate::refusal::Refusal;

/// Parameters that are not valid there. They are known nowhere else in this fake.
pub(super) const REFUSED: [&str; 9] = [
    "disableNetworking",
    "dnsSearchDomains",
    "dnsServers",
    "extraHosts",
    "gpu",
    "ipcMode",
    "links",
    "inferenceAccelerators",
    "resourceRequirements",
];
/// The longest a container may take to end, in seconds ("ContainerDefinition", stopTimeout).
const STOP_TIMEOUT_MAX: u32 = 120;
/// In GiB ("EphemeralStorage").
const STORAGE: std::ops::RangeInclusive<u32> = 21..=200;

pub(super) fn check(definition: &Definition) -> Result<(), Refusal> {
    refuse(!definition.is_awsvpc(), || "Fargate only supports network mode 'awsvpc'.".into())?;
    let (Some(cpu), Some(memory)) = definition.sizes() else {
        return Err(Refusal::client("Fargate requires that 'cpu' and 'memory' be defined at the task level."));
    };
    refuse(!sizes::has_fargate(cpu, memory), || {
        format!("No Fargate configuration exists for given values: {cpu} CPU, {memory} memory.")
    })?;
    let storage = definition.ephemeral_storage.as_ref().map(|storage| storage.size_in_gi_b);
    refuse(storage.is_some_and(|gib| !STORAGE.contains(&gib)), || "ephemeralStorage is from 21 to 200 GiB.".into())?;
    let keys = |map: &serde_json::Map<_, _>| map.keys().find(|name| REFUSED.contains(&name.as_str())).cloned();
    if let Some(name) = keys(&definition.rest) {
        return Err(Refusal::client(format!("Fargate compatible task definitions do not support {name}.")));
    }
    for volume in &definition.volumes {
        let is_hosts = volume.host.as_ref().is_some_and(|host| host.source_path.is_some());
        refuse(is_hosts, || format!("Fargate does not support host.sourcePath: volume '{}'.", volume.name))?;
        let other = volume.rest.keys().next();
        refuse(other.is_some(), || format!("Volume '{}': not supported: {}.", volume.name, other.map_or("", |it| it)))?;
    }
    definition.containers.iter().try_for_each(check_container)
}

fn check_container(container: &Container) -> Result<(), Refusal> {
    let added = |name: &String| !matches!(name.as_str(), "SYS_PTRACE" | "CAP_SYS_PTRACE");
    let refused = [
        ("dockerSecurityOptions", !container.docker_security_options.is_empty()),
        (
            "linuxParameters.capabilities.add but SYS_PTRACE",
            container.linux_parameters.capabilities.add.iter().any(added),
        ),
        ("a stopTimeout of more than 120 s", container.stop_timeout.is_some_and(|it| it > STOP_TIMEOUT_MAX)),
    ];
    let found = refused.into_iter().find(|(_, is_there)| *is_there).map(|(name, _)| name);
    let found = found.or_else(|| not_here(container));
    let found = found.or_else(|| REFUSED.into_iter().find(|name| container.rest.contains_key(*name)));
    refuse(found.is_some(), || {
        let name = found.unwrap_or_default();
        format!("Fargate compatible task definitions do not support {name}: container '{}'.", container.name)
    })
}

/// What Fargate refuses and machines of one's own could do, but not this fake.
pub(super) fn not_here(container: &Container) -> Option<&'static str> {
    let linux = &container.linux_parameters;
    let refused = [
        ("privileged", container.privileged),
        ("linuxParameters.tmpfs", !linux.tmpfs.is_empty()),
        ("linuxParameters.devices", !linux.devices.is_empty()),
        ("linuxParameters.sharedMemorySize", linux.shared_memory_size.is_some()),
        ("linuxParameters.maxSwap", linux.max_swap.is_some()),
        ("linuxParameters.swappiness", linux.swappiness.is_some()),
    ];
    refused.into_iter().find(|(_, is_there)| *is_there).map(|(name, _)| name)
}

fn refuse(is_wrong: bool, why: impl FnOnce() -> String) -> Result<(), Refusal> {
    if is_wrong { Err(Refusal::client(why())) } else { Ok(()) }
}
