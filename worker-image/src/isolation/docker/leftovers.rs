//! Finds containers and volumes by their labels, and ends them.

use super::daemon::Daemon;
use bollard::errors::Error;

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
    let (mut ended, mut failed) = (Ended::default(), None);
    for container in daemon.containers(label).await? {
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
