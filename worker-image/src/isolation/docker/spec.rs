//! What a container is made of. Nothing here is secret: whoever may use the daemon's socket can read it, and so can all that
//! back the daemon's directory up. Script, environment and files go through standard input instead.

use super::daemon::Engine;
use super::labels::Scope;
use super::volumes::KEPT;
use crate::isolation::Limits;
use crate::isolation::plan::{Env, INSIDE};
use bollard::models::{
    ContainerCreateBody, HostConfig, HostConfigLogConfig, Mount, ResourcesUlimits, RestartPolicy, RestartPolicyNameEnum,
};
use nix::sys::resource::{Resource, getrlimit};

/// Where a step can write besides its own directories, and how much. That is memory, and counts as the step's.
const MEMORY_MIB: [(&str, u32); 2] = [("/tmp", 2048), ("/var/tmp", 512)];
/// The same for shared memory, which the daemon mounts itself.
const SHARED_MEMORY_MIB: i64 = 448;
/// In how much time the share of CPU is given out, in microseconds.
const CPU_PERIOD_US: i64 = 100_000;
const MIB: i64 = 1024 * 1024;
/// As many descriptors as a container of Docker's may have, and as many processes as a user may (`start.rs`).
const DESCRIPTORS_MAX: u64 = 1 << 20;
const PROCESSES_MAX: u64 = 4096;

/// What the container of a task is to be.
#[derive(Debug)]
pub(super) struct Spec<'a> {
    /// The image's number.
    pub image: String,
    /// How its first process is started.
    pub command: Vec<String>,
    /// Whose it is.
    pub scope: &'a Scope,
    /// The build's number.
    pub build: &'a str,
    /// Whom it runs as, user and group.
    pub user: u32,
    /// Its network.
    pub network: &'static str,
    /// What it is given of files.
    pub mounts: Vec<Mount>,
    /// Directories that its image wants to be volumes: memory instead, since nothing would bound those.
    pub memory: Vec<String>,
    /// What it may take.
    pub limits: Limits,
    /// What it may do that others may not; nothing, but for what is ours alone.
    pub capabilities: &'static [&'static str],
    /// Whose daemon makes it.
    pub engine: Engine,
}

impl Spec<'_> {
    /// The request for it.
    #[must_use]
    pub(super) fn body(self) -> ContainerCreateBody {
        let Self { image, command, scope, build, user, network, mounts, memory, limits, capabilities, engine } = self;
        let mut host_config = host_config(network, mounts, limits);
        let owned = owned(engine, user);
        host_config.tmpfs = Some(writable(&owned).chain(instead_of_volumes(&owned, &memory)).collect());
        host_config.ulimits.get_or_insert_default().extend(ulimits(engine, limits));
        host_config.cap_add = Some(capabilities.iter().map(|name| (*name).to_owned()).collect());
        ContainerCreateBody {
            image: Some(image),
            entrypoint: Some(command),
            cmd: Some(Vec::new()),
            // Variables of the image that would change how our own first process starts; what it starts gets the image's.
            env: Some(["LD_PRELOAD=", "LD_LIBRARY_PATH=", "LD_AUDIT="].map(str::to_owned).into()),
            user: Some(format!("{user}:{user}")),
            working_dir: Some(KEPT[0].1.into()),
            hostname: Some("callboard".into()),
            labels: Some(scope.of_build(build)),
            open_stdin: Some(true),
            stdin_once: Some(true),
            attach_stdin: Some(true),
            attach_stdout: Some(true),
            attach_stderr: Some(true),
            tty: Some(false),
            network_disabled: (network == "none").then_some(true),
            host_config: Some(host_config),
            ..ContainerCreateBody::default()
        }
    }
}

/// The daemon's own seccomp profile and masked paths stay as they are: nothing here loosens them.
fn host_config(network: &str, mounts: Vec<Mount>, limits: Limits) -> HostConfig {
    let bytes = i64::try_from(limits.memory_bytes).unwrap_or(i64::MAX);
    HostConfig {
        network_mode: Some(network.to_owned()),
        cap_drop: Some(vec!["ALL".into()]),
        security_opt: Some(vec!["no-new-privileges".into()]),
        privileged: Some(false),
        readonly_rootfs: Some(true),
        mounts: Some(mounts),
        shm_size: Some(SHARED_MEMORY_MIB * MIB),
        ipc_mode: Some("private".into()),
        memory: Some(bytes),
        memory_swap: Some(bytes),
        pids_limit: Some(limits.processes.into()),
        // Not as a number of CPUs, of which the daemon takes no more than the host has.
        cpu_period: Some(CPU_PERIOD_US),
        cpu_quota: Some(i64::from(limits.cpu_millis) * CPU_PERIOD_US / 1000),
        ulimits: Some(vec![ResourcesUlimits { name: Some("core".into()), soft: Some(0), hard: Some(0) }]),
        oom_score_adj: Some(500),
        log_config: Some(HostConfigLogConfig { typ: Some("none".into()), config: None }),
        restart_policy: Some(RestartPolicy { name: Some(RestartPolicyNameEnum::NO), maximum_retry_count: None }),
        ..HostConfig::default()
    }
}

/// The options that give a directory in memory to `user`, empty. Podman knows no owner by number, but gives it to whom the container runs
/// as, and would copy into it what the image has there.
fn owned(engine: Engine, user: u32) -> String {
    match engine {
        Engine::Docker => format!("uid={user},gid={user}"),
        Engine::Podman => "U,notmpcopyup".into(),
    }
}

/// Podman gives more than the worker itself has where it may not, and then starts nothing; so it is told what the worker has.
fn ulimits(engine: Engine, limits: Limits) -> Vec<ResourcesUlimits> {
    let own = |name: &str, resource, at_most: u64| {
        let (_, hard) = getrlimit(resource).unwrap_or((at_most, at_most));
        let hard = i64::try_from(hard.min(at_most)).unwrap_or(i64::MAX);
        ResourcesUlimits { name: Some(name.into()), soft: Some(hard), hard: Some(hard) }
    };
    match engine {
        Engine::Docker => Vec::new(),
        Engine::Podman => vec![
            own("nofile", Resource::RLIMIT_NOFILE, DESCRIPTORS_MAX),
            own("nproc", Resource::RLIMIT_NPROC, PROCESSES_MAX.max(limits.processes.into())),
        ],
    }
}

/// Where a container can write besides its mounts: a directory of the user's own, for the files that only this task sees, and what
/// is everybody's.
fn writable(owned: &str) -> impl Iterator<Item = (String, String)> {
    let own = format!("rw,exec,nosuid,nodev,size=16m,mode=0755,{owned}");
    // Where the image has the directory, its mode stands, which need not let others in; so the user owns these as well.
    let everybodys =
        MEMORY_MIB.map(|(path, mib)| (path.to_owned(), format!("rw,exec,nosuid,nodev,size={mib}m,mode=1777,{owned}")));
    everybodys.into_iter().chain([(INSIDE.to_owned(), own)])
}

/// What stands in the place of an image's volumes, but for those that a build brings its own directories for.
fn instead_of_volumes(owned: &str, volumes: &[String]) -> impl Iterator<Item = (String, String)> {
    let ours = |path: &str| {
        let is_kept = KEPT.iter().any(|(_, target)| path == *target);
        is_kept || path.starts_with(INSIDE) || MEMORY_MIB.iter().any(|(target, _)| path == *target)
    };
    let paths = volumes.iter().map(|path| path.trim_end_matches('/')).filter(move |path| !ours(path));
    paths.map(move |path| (path.to_owned(), format!("rw,exec,nosuid,nodev,size=64m,mode=0755,{owned}")))
}

/// The environment of a task in an image: the image's own, then the task's. The image's PATH stands unless somebody chose one.
#[must_use]
pub(super) fn environment(of_image: &[String], task: &Env, usual_path: &str) -> Env {
    let of_image = of_image.iter().filter_map(|variable| variable.split_once('='));
    let of_image: Env = of_image.map(|(name, value)| (name.to_owned(), value.to_owned())).collect();
    let mut env = of_image.clone();
    env.extend(task.clone());
    if let Some(path) = of_image.get("PATH").filter(|_| task.get("PATH").is_some_and(|path| path == usual_path)) {
        env.insert("PATH".into(), path.clone());
    }
    env
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;

    fn body() -> ContainerCreateBody {
        body_for(Engine::Docker)
    }

    fn body_for(engine: Engine) -> ContainerCreateBody {
        let limits = Limits { memory_bytes: 1 << 30, processes: 64, cpu_millis: 1500, disk_bytes: 0 };
        let scope = Scope::new("host", Path::new("/builds"));
        let (image, command) = ("sha256:aa".into(), vec!["init".into()]);
        Spec {
            image,
            command,
            scope: &scope,
            build: "b",
            user: 300_001,
            network: "none",
            mounts: Vec::new(),
            memory: vec!["/data/".into(), "/workspace".into()],
            limits,
            capabilities: &[],
            engine,
        }
        .body()
    }

    #[test]
    fn a_step_has_no_rights_and_keeps_within_its_limits() {
        let (body, host) = (body(), body().host_config.unwrap());
        assert_eq!(body.user.as_deref(), Some("300001:300001"));
        assert_eq!(
            (host.cap_drop, host.cap_add, host.privileged),
            (Some(vec!["ALL".into()]), Some(Vec::new()), Some(false))
        );
        assert_eq!(host.security_opt, Some(vec!["no-new-privileges".into()]), "the daemon's seccomp profile stays");
        assert_eq!((host.network_mode.as_deref(), host.readonly_rootfs), (Some("none"), Some(true)));
        assert_eq!((host.memory, host.memory_swap), (Some(1 << 30), Some(1 << 30)), "swap gives no more");
        assert_eq!((host.pids_limit, host.cpu_period, host.cpu_quota), (Some(64), Some(100_000), Some(150_000)));
        assert_eq!((host.pid_mode, host.userns_mode, host.masked_paths, host.devices), (None, None, None, None));
    }

    #[test]
    fn an_images_volumes_are_memory_that_is_bounded() {
        let memory = body().host_config.unwrap().tmpfs.unwrap();
        assert!(memory["/data"].contains("size=64m") && !memory.contains_key("/workspace"), "{memory:?}");
    }

    #[test]
    fn memory_is_the_users_in_the_words_of_either_daemon() {
        let options = |engine| body_for(engine).host_config.unwrap().tmpfs.unwrap()["/tmp"].clone();
        assert!(options(Engine::Docker).ends_with(",uid=300001,gid=300001"));
        assert!(options(Engine::Podman).ends_with("mode=1777,U,notmpcopyup"));
    }

    #[test]
    fn what_is_there_can_be_found_again() {
        let labels = body().labels.unwrap();
        assert_eq!((labels["callboard.worker"].as_str(), labels["callboard.build"].as_str()), ("host:/builds", "b"));
    }

    #[test]
    fn an_images_path_stands_unless_the_build_has_one() {
        let variables =
            |path: &str| Env::from([("PATH".to_owned(), path.to_owned()), ("A".to_owned(), "task".to_owned())]);
        let of_image = ["PATH=/cargo/bin".to_owned(), "A=image".to_owned(), "B=image".to_owned()];
        let env = environment(&of_image, &variables("/usual"), "/usual");
        assert_eq!([&env["PATH"], &env["A"], &env["B"]], ["/cargo/bin", "task", "image"]);
        assert_eq!(environment(&of_image, &variables("/chosen"), "/usual")["PATH"], "/chosen");
        assert_eq!(environment(&[], &variables("/usual"), "/usual")["PATH"], "/usual");
    }
}
