//! Which back ends a worker has: what its operator chose, as far as it works on this host.

use super::Isolation;
use super::auto::Auto;
use super::bubblewrap::{Bubblewrap, find};
use super::docker::{self, Daemon, Docker, Reach, Scope};
use crate::config::Config;
use crate::probe;
use clap::ValueEnum;
use std::sync::Arc;
use tracing::{info, warn};

/// What an operator chose.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum Choice {
    /// Whichever works here.
    #[default]
    Auto,
    /// Bubblewrap alone.
    Bubblewrap,
    /// Containers alone.
    Docker,
}

/// The back ends that `config` chooses, each tried.
///
/// # Errors
///
/// What is wrong, for a person: nothing of what was chosen works.
pub async fn choose(config: &Config, host_id: &str) -> Result<Arc<dyn Isolation>, String> {
    match config.isolation {
        Choice::Bubblewrap => Ok(Arc::new(bubblewrap(config).await?)),
        Choice::Docker => Ok(Arc::new(docker(config, host_id).await?)),
        Choice::Auto => both(bubblewrap(config).await, docker_if_any(config, host_id).await),
    }
}

/// Ends the containers and volumes that an earlier worker of this host and builds root left behind. A daemon that does not answer
/// keeps nobody from working without it.
pub async fn end_containers(config: &Config, host_id: &str) {
    if config.isolation == Choice::Bubblewrap || !config.docker.socket.exists() {
        return;
    }
    let scope = Scope::new(host_id, &config.place.builds_root);
    let ended = async { docker::end(&Daemon::find(config.docker.socket.clone()).await?, &scope.all()).await };
    match ended.await {
        Ok(ended) if ended == docker::Ended::default() => {}
        Ok(docker::Ended { containers, volumes }) => {
            info!(containers, volumes, "ended the containers that an earlier worker left behind");
        }
        Err(error) => warn!(%error, "what an earlier worker left in containers can't be looked for"),
    }
}

async fn bubblewrap(config: &Config) -> Result<Bubblewrap, String> {
    let program = find("bwrap").ok_or("bubblewrap is not installed")?;
    let bubblewrap = Bubblewrap::new(program, config.place.clone());
    probe::sandbox(config, &bubblewrap).await?;
    Ok(bubblewrap)
}

async fn docker(config: &Config, host_id: &str) -> Result<Docker, String> {
    let scope = Scope::new(host_id, &config.place.builds_root);
    let docker = Docker::new(config.docker.clone(), config.place.clone(), scope).await?;
    probe::sandbox(config, &docker).await?;
    Ok(docker)
}

/// No socket is no wish for containers.
async fn docker_if_any(config: &Config, host_id: &str) -> Option<Result<Docker, String>> {
    if config.docker.socket.exists() { Some(docker(config, host_id).await) } else { None }
}

/// Where the daemon does not see this worker's file system, bubblewrap can't share a workspace with containers, and is not used.
fn both(
    bubblewrap: Result<Bubblewrap, String>,
    docker: Option<Result<Docker, String>>,
) -> Result<Arc<dyn Isolation>, String> {
    if let Some(Err(error)) = &docker {
        warn!(error, "containers don't work here");
    }
    match (bubblewrap, docker) {
        (Ok(bubblewrap), Some(Ok(docker))) if docker.reach() == Reach::Shared => {
            Ok(Arc::new(Auto { bubblewrap, docker }))
        }
        (Err(error), Some(Ok(docker))) => {
            warn!(error, "bubblewrap does not work here: `image: host` is left to other workers");
            Ok(Arc::new(docker))
        }
        (Ok(_), Some(Ok(docker))) => {
            warn!("the container daemon sees another file system: `image: host` is left to other workers");
            Ok(Arc::new(docker))
        }
        (Ok(bubblewrap), Some(Err(_)) | None) => Ok(Arc::new(bubblewrap)),
        (Err(error), None) => Err(error),
        (Err(one), Some(Err(other))) => Err(format!("bubblewrap: {one}; containers: {other}")),
    }
}
