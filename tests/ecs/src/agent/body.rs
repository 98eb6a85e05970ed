//! A container of a definition in Docker's words ("ContainerDefinition" says of most which parameter of Docker's it is).

use super::site::Site;
use crate::definition::{Container, HealthCheck};
use crate::machine::Image;
use bollard::models::{
    ContainerCreateBody, HealthConfig, HostConfig, Mount, MountType, MountVolumeOptions, ResourcesUlimits,
};
use nix::sys::resource::{Resource, getrlimit};

const MIB: i64 = 1 << 20;
const SECOND_NS: i64 = 1_000_000_000;
/// What Fargate sets itself ("Ulimit"); less where this machine does not let anybody have so many.
const OPEN_FILES: u64 = 65_535;

pub(super) fn body(
    container: &Container,
    image: &Image,
    site: &Site,
    (cpu, memory): (Option<u32>, Option<u32>),
    cpus: f64,
) -> ContainerCreateBody {
    let linux = &container.linux_parameters;
    let bytes = container.memory.or(memory).map(|mib| i64::from(mib) * MIB);
    let host_config = HostConfig {
        network_mode: Some(site.network.clone()),
        mounts: Some(mounts(container, image, site)),
        readonly_rootfs: Some(container.readonly_root_filesystem),
        cap_add: Some(linux.capabilities.add.clone()),
        cap_drop: Some(linux.capabilities.drop.clone()),
        init: Some(linux.init_process_enabled),
        ulimits: Some(ulimits(container)),
        memory: bytes,
        memory_swap: bytes,
        memory_reservation: container.memory_reservation.map(|mib| i64::from(mib) * MIB),
        // A container that says nothing has the least share, of all that the task has.
        cpu_shares: Some(i64::from(container.cpu.max(2))),
        nano_cpus: cpu.map(|units| nano_cpus(units, cpus)),
        security_opt: Some(container.docker_security_options.clone()),
        privileged: Some(false),
        ..HostConfig::default()
    };
    ContainerCreateBody {
        image: Some(container.image.clone()),
        entrypoint: (!container.entry_point.is_empty()).then(|| container.entry_point.clone()),
        cmd: (!container.command.is_empty()).then(|| container.command.clone()),
        env: Some(environment(container, site)),
        user: container.user.clone(),
        working_dir: container.working_directory.clone(),
        healthcheck: Some(health(container.health_check.as_ref())),
        host_config: Some(host_config),
        ..ContainerCreateBody::default()
    }
}

/// What Fargate adds ("Amazon ECS task metadata endpoint version 4 for tasks on Fargate"); nobody answers there. Without a task
/// role there is no AWS_CONTAINER_CREDENTIALS_RELATIVE_URI.
fn environment(container: &Container, site: &Site) -> Vec<String> {
    let metadata = format!("ECS_CONTAINER_METADATA_URI_V4=http://169.254.170.2/v4/{}", site.container(&container.name));
    let own = container.environment.iter().map(|variable| format!("{}={}", variable.name, variable.value));
    ["AWS_EXECUTION_ENV=AWS_ECS_FARGATE".to_owned(), metadata].into_iter().chain(own).collect()
}

/// A volume begins with what the image has at that path only if its Dockerfile says VOLUME of the very same path; it is else
/// root's and empty ("Use bind mounts with Amazon ECS").
fn mounts(container: &Container, image: &Image, site: &Site) -> Vec<Mount> {
    let mount = |point: &crate::definition::MountPoint| Mount {
        typ: Some(MountType::VOLUME),
        source: Some(site.volume(&point.source_volume)),
        target: Some(point.container_path.clone()),
        read_only: Some(point.read_only),
        volume_options: Some(MountVolumeOptions {
            no_copy: Some(!image.volumes.contains(&point.container_path)),
            ..MountVolumeOptions::default()
        }),
        ..Mount::default()
    };
    container.mount_points.iter().map(mount).collect()
}

fn ulimits(container: &Container) -> Vec<ResourcesUlimits> {
    let limit =
        |name: &str, soft, hard| ResourcesUlimits { name: Some(name.into()), soft: Some(soft), hard: Some(hard) };
    let own = container.ulimits.iter().map(|one| limit(&one.name, one.soft_limit, one.hard_limit));
    let has_files = container.ulimits.iter().any(|one| one.name == "nofile");
    own.chain((!has_files).then(|| limit("nofile", open_files(), open_files()))).collect()
}

fn open_files() -> i64 {
    let most = getrlimit(Resource::RLIMIT_NOFILE).map_or(OPEN_FILES, |(_, hard)| hard.min(OPEN_FILES));
    i64::try_from(most).unwrap_or(i64::MAX)
}

/// The task's CPU, or all that this machine has.
fn nano_cpus(units: u32, cpus: f64) -> i64 {
    let share = (f64::from(units) / 1024.0).min(cpus);
    #[expect(clippy::cast_possible_truncation, reason = "a number of processors, in billionths")]
    let nano = (share * 1e9) as i64;
    nano
}

/// The image's own check is not heeded ("HealthCheck").
fn health(check: Option<&HealthCheck>) -> HealthConfig {
    let Some(check) = check else {
        return HealthConfig { test: Some(vec!["NONE".into()]), ..HealthConfig::default() };
    };
    let ns = |seconds: Option<u32>, default: u32| Some(i64::from(seconds.unwrap_or(default)) * SECOND_NS);
    HealthConfig {
        test: Some(check.command.clone()),
        interval: ns(check.interval, 30),
        timeout: ns(check.timeout, 5),
        retries: Some(check.retries.unwrap_or(3).into()),
        start_period: ns(check.start_period, 0),
        start_interval: None,
    }
}
