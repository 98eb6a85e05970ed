//! Finds out whether the daemon sees this worker's file system, by running our own program out of it.

use super::daemon::words;
use super::ours::Ours;
use super::volumes::{self, Reach};
use crate::config::Place;
use bollard::models::{MountVolumeOptions, SystemInfo};
use std::collections::HashMap;
use std::fs;
use tracing::info;
use uuid::Uuid;

/// What our containers are for before there is any build.
const NO_BUILD: &str = "none";
/// Where a container of the daemon's finds the file that only this worker's file system has.
const SIGN: &str = "/callboard-sign";

/// Finds it out, and makes the kit available to containers accordingly.
///
/// # Errors
///
/// What is wrong, for a person.
pub(super) async fn find(ours: &Ours, info: &SystemInfo, place: &Place) -> Result<Reach, String> {
    let directory = place.binaries();
    ours.kit.furnish(&directory).map_err(|error| format!("{}: {error}", directory.display()))?;
    if !has_other_users(info) && sees_a_sign(ours, place).await? {
        return Ok(Reach::Shared);
    }
    let mut mount = volumes::volume(&ours.kit_volume(), &volumes::kit_target(), false, &HashMap::new());
    // The image's own kit is copied into the volume when that is empty.
    mount.volume_options = mount.volume_options.map(|options| MountVolumeOptions { no_copy: Some(false), ..options });
    let ran = ours.run(&["--version"], NO_BUILD, vec![mount]).await;
    ran.map_err(|error| format!("the kit can't be brought into a volume: {}", words(&error)))?;
    Ok(Reach::Apart)
}

/// Whether a user's number means another user to the daemon than to us.
fn has_other_users(info: &SystemInfo) -> bool {
    let mut options = info.security_options.iter().flatten();
    options.any(|option| option.contains("name=userns") || option.contains("name=rootless"))
}

async fn sees_a_sign(ours: &Ours, place: &Place) -> Result<bool, String> {
    let sign = place.binaries().join(format!("sign-{}", Uuid::new_v4()));
    fs::write(&sign, []).map_err(|error| format!("{}: {error}", sign.display()))?;
    let mounts = vec![volumes::bind(&place.binaries(), &volumes::kit_target(), true), volumes::bind(&sign, SIGN, true)];
    let ran = ours.run(&["--version"], NO_BUILD, mounts).await;
    fs::remove_file(&sign).ok();
    if let Err(error) = &ran {
        info!(error = words(error), "the container daemon does not see this file system: builds get volumes");
    }
    Ok(ran.is_ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_daemon_with_users_of_its_own_does_not_share_files() {
        let says = |options: &[&str]| {
            let security_options = Some(options.iter().map(|option| (*option).to_owned()).collect());
            has_other_users(&SystemInfo { security_options, ..SystemInfo::default() })
        };
        assert!(!says(&["name=seccomp,profile=default"]) && !says(&[]));
        assert!(says(&["name=seccomp,profile=default", "name=userns"]) && says(&["name=rootless"]));
    }
}
