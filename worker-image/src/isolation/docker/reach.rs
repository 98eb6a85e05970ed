//! Finds out whether the daemon sees this worker's file system, by running our own program out of it.

use super::daemon::{Daemon, words};
use super::kit::Kit;
use super::labels::Scope;
use super::spec::Spec;
use super::volumes::{self, Reach};
use crate::config::Place;
use crate::isolation::Limits;
use bollard::errors::Error;
use bollard::models::{Mount, SystemInfo};
use bollard::query_parameters::{CreateContainerOptionsBuilder, StartContainerOptions, WaitContainerOptionsBuilder};
use futures::StreamExt as _;
use std::collections::HashMap;
use std::fs;
use std::time::Duration;
use tokio::time::timeout;
use tracing::info;
use uuid::Uuid;

/// How long a container may take that does nothing.
const PATIENCE: Duration = Duration::from_secs(30);
/// What our containers are for before there is any build.
const NO_BUILD: &str = "none";
/// Where a container of the daemon's finds the file that only this worker's file system has.
const SIGN: &str = "/callboard-sign";

/// Finds it out, and makes the kit available to containers accordingly.
///
/// # Errors
///
/// What is wrong, for a person.
pub(super) async fn find(
    daemon: &Daemon,
    info: &SystemInfo,
    kit: &Kit,
    place: &Place,
    scope: &Scope,
    own: &str,
) -> Result<Reach, String> {
    let directory = place.binaries();
    kit.furnish(&directory).map_err(|error| format!("{}: {error}", directory.display()))?;
    if !has_other_users(info) && sees_a_sign(daemon, kit, place, scope, own).await? {
        return Ok(Reach::Shared);
    }
    let volume = kit_volume(own);
    let mut mount = volumes::volume(&volume, &volumes::kit_target(), false, &HashMap::new());
    // The image's own kit is copied into the volume when that is empty.
    mount.volume_options =
        mount.volume_options.map(|options| bollard::models::MountVolumeOptions { no_copy: Some(false), ..options });
    let ran = run(daemon, kit, scope, own, vec![mount]).await;
    ran.map_err(|error| format!("the kit can't be brought into a volume: {}", words(&error)))?;
    Ok(Reach::Apart)
}

/// The name of the volume that holds the kit of our own image.
#[must_use]
pub(super) fn kit_volume(own: &str) -> String {
    own.replace(':', "-")
}

/// Whether a user's number means another user to the daemon than to us.
fn has_other_users(info: &SystemInfo) -> bool {
    let options = info.security_options.iter().flatten();
    options.clone().any(|option| option.contains("name=userns") || option.contains("name=rootless"))
}

async fn sees_a_sign(daemon: &Daemon, kit: &Kit, place: &Place, scope: &Scope, own: &str) -> Result<bool, String> {
    let sign = place.binaries().join(format!("sign-{}", Uuid::new_v4()));
    fs::write(&sign, []).map_err(|error| format!("{}: {error}", sign.display()))?;
    let mounts = vec![volumes::bind(&place.binaries(), &volumes::kit_target(), true), volumes::bind(&sign, SIGN, true)];
    let ran = run(daemon, kit, scope, own, mounts).await;
    fs::remove_file(&sign).ok();
    if let Err(error) = &ran {
        info!(error = words(error), "the container daemon does not see this file system: builds get volumes");
    }
    Ok(ran.is_ok())
}

/// Runs our own program in a container, to no end but to see it run.
async fn run(daemon: &Daemon, kit: &Kit, scope: &Scope, own: &str, mounts: Vec<Mount>) -> Result<(), Error> {
    let name = format!("callboard-{}", Uuid::new_v4());
    let spec = Spec {
        image: own.to_owned(),
        command: kit.command(&["--version"]),
        scope,
        build: NO_BUILD,
        user: nix::unistd::geteuid().as_raw(),
        network: "none",
        mounts,
        limits: Limits::default(),
    };
    let named = CreateContainerOptionsBuilder::default().name(&name).build();
    let running = async {
        daemon.quick.create_container(Some(named), spec.body()).await?;
        daemon.quick.start_container(&name, None::<StartContainerOptions>).await?;
        let until = WaitContainerOptionsBuilder::default().condition("not-running").build();
        daemon.patient.wait_container(&name, Some(until)).next().await.unwrap_or(Err(Error::RequestTimeoutError))
    };
    let ran = timeout(PATIENCE, running).await.unwrap_or(Err(Error::RequestTimeoutError));
    daemon.remove(&name).await?;
    ran.map(drop)
}
