//! Docker's daemon, which stands for the machines of Fargate.

use bollard::container::LogOutput;
use bollard::errors::Error;
use bollard::models::{
    ContainerCreateBody, ContainerInspectResponse, ContainerState, HealthStatusEnum, VolumeCreateRequest,
};
use bollard::query_parameters::{
    CreateContainerOptionsBuilder, KillContainerOptionsBuilder, ListContainersOptionsBuilder,
    ListVolumesOptionsBuilder, LogsOptionsBuilder, RemoveContainerOptionsBuilder, RemoveVolumeOptionsBuilder,
    StartContainerOptions, WaitContainerOptionsBuilder,
};
use bollard::{API_DEFAULT_VERSION, Docker};
use futures::StreamExt as _;
use serde::Serialize;
use std::collections::HashMap;
use std::path::Path;
use std::time::Duration;
use uuid::Uuid;

/// How long an answer may take that comes when a container ends, in seconds.
const PATIENCE_SECONDS: u64 = 24 * 3600;
/// On all that a fake has made: whose it is.
const LABEL: &str = "callboard-fake-ecs";
/// How much of a container's output is kept, in bytes.
const OUTPUT_MAX: usize = 64 << 10;

/// How a container ends that is killed, for want of memory or otherwise.
const KILLED: i64 = 137;
/// How often it is asked whether that was for want of memory, and after how long.
const LOOKS_MAX: u32 = 4;
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// What a fake has made and not removed, by name.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Left {
    /// Containers, whatever their state.
    pub containers: Vec<String>,
    /// Volumes.
    pub volumes: Vec<String>,
}

/// How a container ended.
#[derive(Debug, Default)]
pub(crate) struct Ended {
    pub(crate) exit_code: Option<i64>,
    pub(crate) is_out_of_memory: bool,
    pub(crate) output: String,
}

/// What matters of an image.
#[derive(Clone, Debug)]
pub(crate) struct Image {
    pub(crate) volumes: Vec<String>,
    pub(crate) stop_signal: String,
}

#[derive(Clone)]
pub(crate) struct Machine {
    docker: Docker,
    pub(crate) cpus: f64,
    fake: String,
}

impl std::fmt::Debug for Machine {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Machine").field("fake", &self.fake).finish_non_exhaustive()
    }
}

/// Without the library's words.
fn words(error: &Error) -> String {
    if let Error::DockerResponseServerError { message, .. } = error {
        return message.trim().to_owned();
    }
    error.to_string()
}

impl Machine {
    pub(crate) async fn find(socket: &Path) -> Result<Self, Error> {
        let docker = Docker::connect_with_unix(&socket.to_string_lossy(), PATIENCE_SECONDS, API_DEFAULT_VERSION)?;
        let docker = docker.negotiate_version().await?;
        let cpus = docker.info().await?.ncpu.and_then(|number| u32::try_from(number).ok()).unwrap_or(1);
        Ok(Self { docker, cpus: f64::from(cpus), fake: Uuid::new_v4().simple().to_string() })
    }

    fn labels(&self) -> HashMap<String, String> {
        [(LABEL.to_owned(), self.fake.clone())].into()
    }

    /// An image that the daemon has. It pulls none.
    pub(crate) async fn image(&self, name: &str) -> Result<Image, String> {
        let config = self.docker.inspect_image(name).await.map_err(|error| words(&error))?.config.unwrap_or_default();
        Ok(Image {
            volumes: config.volumes.unwrap_or_default(),
            stop_signal: config.stop_signal.filter(|signal| !signal.is_empty()).unwrap_or_else(|| "SIGTERM".into()),
        })
    }

    pub(crate) async fn make_volume(&self, name: &str) -> Result<(), String> {
        let asked = VolumeCreateRequest {
            name: Some(name.into()),
            labels: Some(self.labels()),
            ..VolumeCreateRequest::default()
        };
        self.docker.create_volume(asked).await.map(drop).map_err(|error| words(&error))
    }

    /// Makes a container; its id.
    pub(crate) async fn create(&self, name: &str, body: ContainerCreateBody) -> Result<String, String> {
        let body = ContainerCreateBody { labels: Some(self.labels()), ..body };
        let named = CreateContainerOptionsBuilder::default().name(name).build();
        let made = self.docker.create_container(Some(named), body).await;
        made.map(|made| made.id).map_err(|error| words(&error))
    }

    pub(crate) async fn start(&self, name: &str) -> Result<(), String> {
        self.docker.start_container(name, None::<StartContainerOptions>).await.map_err(|error| words(&error))
    }

    /// Waits for a started container to end.
    pub(crate) async fn ended(self, name: String) -> Ended {
        let state = self.last_state(&name).await;
        Ended {
            exit_code: state.exit_code,
            is_out_of_memory: state.oom_killed == Some(true),
            output: self.output(&name).await,
        }
    }

    async fn last_state(&self, name: &str) -> ContainerState {
        let mut looks = 0;
        loop {
            let options = WaitContainerOptionsBuilder::default().condition("not-running").build();
            // What it says is also in the container's state, and there without the library's interpretation.
            let _ = self.docker.wait_container(name, Some(options)).next().await;
            let state = self.inspect(name).await.and_then(|found| found.state).unwrap_or_default();
            let runs = state.running == Some(true);
            // The daemon hears of a want of memory by another way than of the end, and maybe later.
            let may_be_told_more =
                state.exit_code == Some(KILLED) && state.oom_killed != Some(true) && looks < LOOKS_MAX;
            if !runs && !may_be_told_more {
                return state;
            }
            looks += 1;
            tokio::time::sleep(LOOK_EVERY).await;
        }
    }

    /// The end of what a container has written.
    pub(crate) async fn output(&self, name: &str) -> String {
        let options = LogsOptionsBuilder::default().stdout(true).stderr(true).build();
        let mut lines = self.docker.logs(name, Some(options));
        let mut output = Vec::new();
        while let Some(Ok(line)) = lines.next().await {
            output.extend_from_slice(&LogOutput::into_bytes(line));
        }
        String::from_utf8_lossy(&output[output.len().saturating_sub(OUTPUT_MAX)..]).into_owned()
    }

    async fn inspect(&self, name: &str) -> Option<ContainerInspectResponse> {
        self.docker.inspect_container(name, None).await.ok()
    }

    /// Whether a container's health check succeeds; `None` while that is not known.
    pub(crate) async fn is_healthy(&self, name: &str) -> Option<bool> {
        match self.inspect(name).await?.state?.health?.status? {
            HealthStatusEnum::HEALTHY => Some(true),
            HealthStatusEnum::UNHEALTHY => Some(false),
            HealthStatusEnum::EMPTY | HealthStatusEnum::NONE | HealthStatusEnum::STARTING => None,
        }
    }

    /// The host's number of a running container's first process.
    pub(crate) async fn pid(&self, name: &str) -> Option<i64> {
        self.inspect(name).await?.state?.pid.filter(|pid| *pid > 0)
    }

    /// One that has ended hears nothing, which is no error.
    pub(crate) async fn signal(&self, name: &str, signal: &str) {
        let options = KillContainerOptionsBuilder::default().signal(signal).build();
        let _ = self.docker.kill_container(name, Some(options)).await;
    }

    pub(crate) async fn remove(&self, name: &str) {
        let options = RemoveContainerOptionsBuilder::default().force(true).v(true).build();
        let _ = self.docker.remove_container(name, Some(options)).await;
    }

    pub(crate) async fn remove_volume(&self, name: &str) {
        let options = RemoveVolumeOptionsBuilder::default().force(true).build();
        let _ = self.docker.remove_volume(name, Some(options)).await;
    }

    /// What this fake has made and is still there.
    pub(crate) async fn left(&self) -> Result<Left, Error> {
        let filters: HashMap<_, _> = [("label".to_owned(), vec![format!("{LABEL}={}", self.fake)])].into();
        let options = ListContainersOptionsBuilder::default().all(true).filters(&filters).build();
        let found = self.docker.list_containers(Some(options)).await?;
        let name = |names: Option<Vec<String>>| names?.first().map(|name| name.trim_start_matches('/').to_owned());
        let containers = found.into_iter().filter_map(|found| name(found.names)).collect();
        let options = ListVolumesOptionsBuilder::default().filters(&filters).build();
        let found = self.docker.list_volumes(Some(options)).await?.volumes.unwrap_or_default();
        Ok(Left { containers, volumes: found.into_iter().map(|volume| volume.name).collect() })
    }
}
