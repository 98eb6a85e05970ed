//! Which back ends a worker has: what its operator chose, as far as it works on this host and holds builds to what it should.

use super::Isolation;
use super::auto::Auto;
use super::bubblewrap::{Bubblewrap, find};
use super::docker::{self, Daemon, Docker, Reach, Scope};
use super::ecs::Ecs;
use crate::config::Config;
use crate::probe;
use clap::ValueEnum;
use std::collections::BTreeSet;
use std::fmt;
use std::io;
use std::sync::Arc;
use tracing::{info, warn};
use uuid::Uuid;

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
    /// Tasks of ECS alone.
    Ecs,
}

/// Why a worker can't work with what was chosen, for a person.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Unusable {
    /// No step would run.
    Broken(String),
    /// Steps would run, but not held to all that the operator wants.
    NotEnforced(String),
}

impl fmt::Display for Unusable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Broken(why) | Self::NotEnforced(why) => f.write_str(why),
        }
    }
}

/// The back ends that `config` chooses, each tried.
///
/// # Errors
///
/// Nothing of what was chosen works, or holds builds to what the operator wants.
pub async fn choose(config: &Config, host_id: &str) -> Result<Arc<dyn Isolation>, Unusable> {
    match config.isolation {
        Choice::Bubblewrap => Ok(Arc::new(bubblewrap(config).await?)),
        Choice::Docker => Ok(Arc::new(docker(config, host_id).await?)),
        Choice::Ecs => Ok(Arc::new(ecs(config).await?)),
        Choice::Auto => {
            let (bubblewrap, docker) = tokio::join!(bubblewrap(config), docker_if_any(config, host_id));
            both(bubblewrap, docker)
        }
    }
}

/// Ends the containers of `build`, and its volumes.
///
/// # Errors
///
/// If the daemon, where there is one, does not answer or can't.
pub async fn end_containers_of(config: &Config, build: Uuid) -> io::Result<()> {
    if !has_containers(config) {
        return Ok(());
    }
    let label = docker::build(&build.to_string());
    let ended = async { docker::end(&Daemon::find(config.docker.socket.clone()).await?, &label).await };
    ended.await.map(drop).map_err(io::Error::other)
}

/// Ends the containers and volumes that an earlier worker of this host and builds root left behind, but for the containers of the
/// builds in `but_for`. A daemon that does not answer keeps nobody from working without it.
pub async fn end_containers(config: &Config, host_id: &str, but_for: &BTreeSet<String>) {
    if !has_containers(config) {
        return;
    }
    let scope = Scope::new(host_id, &config.place.builds_root);
    let ended =
        async { docker::end_but_for(&Daemon::find(config.docker.socket.clone()).await?, &scope.all(), but_for).await };
    match ended.await {
        Ok(ended) if ended == docker::Ended::default() => {}
        Ok(docker::Ended { containers, volumes }) => {
            info!(containers, volumes, "ended the containers that an earlier worker left behind");
        }
        Err(error) => warn!(%error, "what an earlier worker left in containers can't be looked for"),
    }
}

fn has_containers(config: &Config) -> bool {
    matches!(config.isolation, Choice::Auto | Choice::Docker) && config.docker.socket.exists()
}

async fn bubblewrap(config: &Config) -> Result<Bubblewrap, Unusable> {
    let program = find("bwrap").ok_or_else(|| Unusable::Broken("bubblewrap is not installed".into()))?;
    let bubblewrap = Bubblewrap::new(program, config.place.clone());
    try_it(config, &bubblewrap).await?;
    Ok(bubblewrap)
}

async fn docker(config: &Config, host_id: &str) -> Result<Docker, Unusable> {
    let scope = Scope::new(host_id, &config.place.builds_root);
    let docker = Docker::new(config.docker.clone(), config.place.clone(), scope).await.map_err(Unusable::Broken)?;
    try_it(config, &docker).await?;
    Ok(docker)
}

/// The tasks that an earlier worker may have left, if builds run there at all. Whether that works is for [`choose`] to say.
pub async fn tasks(config: &Config) -> Option<Ecs> {
    if config.isolation == Choice::Ecs { Ecs::of(config).await.ok() } else { None }
}

/// No task is started to try it: that takes a minute, and costs. What a task is held to stands in its definition.
async fn ecs(config: &Config) -> Result<Ecs, Unusable> {
    if config.grace.silent.is_some() {
        return Err(Unusable::NotEnforced(
            "on ECS nothing ends a step that is silent: unset CALLBOARD_SILENT_TIMEOUT".into(),
        ));
    }
    let ecs = Ecs::of(config).await.map_err(Unusable::Broken)?;
    ecs.answers().await.map_err(|why| Unusable::Broken(format!("ECS: {why}")))?;
    probe::guarantees(&ecs, &config.accept).await.map_err(Unusable::NotEnforced)?;
    Ok(ecs)
}

async fn try_it(config: &Config, isolation: &dyn Isolation) -> Result<(), Unusable> {
    // A sandbox that does not work at all is told first: it has no guarantees either.
    let (works, holds) = tokio::join!(probe::sandbox(config, isolation), probe::guarantees(isolation, &config.accept));
    works.map_err(Unusable::Broken)?;
    holds.map_err(Unusable::NotEnforced)
}

/// No socket is no wish for containers.
async fn docker_if_any(config: &Config, host_id: &str) -> Option<Result<Docker, Unusable>> {
    if config.docker.socket.exists() { Some(docker(config, host_id).await) } else { None }
}

/// What works and holds is used; what does not is left, and that is told. Where the daemon does not see this worker's file system,
/// bubblewrap can't share a workspace with containers, and is not used.
fn both(
    bubblewrap: Result<Bubblewrap, Unusable>,
    docker: Option<Result<Docker, Unusable>>,
) -> Result<Arc<dyn Isolation>, Unusable> {
    match (bubblewrap, docker) {
        (Ok(bubblewrap), Some(Ok(docker))) if docker.reach() == Reach::Shared => {
            Ok(Arc::new(Auto { bubblewrap, docker }))
        }
        (Err(error), Some(Ok(docker))) => {
            warn!(%error, "bubblewrap is not used: `image: host` is left to other workers");
            Ok(Arc::new(docker))
        }
        (Ok(_), Some(Ok(docker))) => {
            warn!("the container daemon sees another file system: `image: host` is left to other workers");
            Ok(Arc::new(docker))
        }
        (Ok(bubblewrap), Some(Err(error))) => {
            warn!(%error, "containers are not used: only `image: host` is run");
            Ok(Arc::new(bubblewrap))
        }
        (Ok(bubblewrap), None) => Ok(Arc::new(bubblewrap)),
        (Err(error), None) => Err(error),
        (Err(one), Some(Err(other))) => Err(neither(&one, &other)),
    }
}

fn neither(bubblewrap: &Unusable, containers: &Unusable) -> Unusable {
    let why = format!("bubblewrap: {bubblewrap}; containers: {containers}");
    match (bubblewrap, containers) {
        (Unusable::Broken(_), Unusable::Broken(_)) => Unusable::Broken(why),
        (_, _) => Unusable::NotEnforced(why),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_back_ends_that_are_not_used_are_both_told_of() {
        let (broken, weak) = (Unusable::Broken("none".into()), Unusable::NotEnforced("no disk".into()));
        assert_eq!(neither(&broken, &broken), Unusable::Broken("bubblewrap: none; containers: none".into()));
        assert_eq!(neither(&broken, &weak), Unusable::NotEnforced("bubblewrap: none; containers: no disk".into()));
    }
}
