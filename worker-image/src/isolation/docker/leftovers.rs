//! Finds containers and volumes by their labels, and ends them.

use super::daemon::Daemon;
use bollard::errors::Error;
use std::collections::BTreeSet;

/// What was ended.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Ended {
    /// How many containers.
    pub containers: usize,
    /// How many volumes.
    pub volumes: usize,
}

/// Ends and removes all containers that carry `label`, then the volumes.
///
/// # Errors
///
/// If the daemon does not answer, or can't remove one. The others are removed all the same.
pub async fn end(daemon: &Daemon, label: &str) -> Result<Ended, Error> {
    end_but_for(daemon, label, &BTreeSet::new()).await
}

/// The same, without the containers of these builds.
///
/// # Errors
///
/// As [`end`].
pub async fn end_but_for(daemon: &Daemon, label: &str, builds: &BTreeSet<String>) -> Result<Ended, Error> {
    let (mut ended, mut failed) = (Ended::default(), None);
    for (container, build) in daemon.containers_of_builds(label).await? {
        if builds.contains(&build) {
            continue;
        }
        match daemon.remove(&container).await {
            Ok(()) => ended.containers += 1,
            Err(error) => failed = Some(error),
        }
    }
    for volume in daemon.volumes(label).await? {
        match daemon.remove_volume(&volume).await {
            Ok(()) => ended.volumes += 1,
            Err(error) => failed = Some(error),
        }
    }
    failed.map_or(Ok(ended), Err)
}
