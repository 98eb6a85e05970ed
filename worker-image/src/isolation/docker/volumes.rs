//! How a build's directories get into its containers.
//!
//! Where the daemon sees this worker's file system, they are those of the build's directory, and so the steps of one build may
//! run in bubblewrap and in containers, as they like. Where it does not (the worker is itself in a container, the daemon's socket
//! mounted into it), they are volumes.

use super::kit;
use crate::isolation::bubblewrap::names;
use crate::isolation::plan::INSIDE;
use bollard::models::{Mount, MountType, MountVolumeOptions};
use std::collections::HashMap;
use std::path::{Path, PathBuf};

/// Whether the daemon sees this worker's file system, and users are the same to both.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reach {
    /// It does.
    Shared,
    /// It does not.
    Apart,
}

/// A build's way out.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Way {
    /// Its socket, as a container sees it.
    pub inside: PathBuf,
    /// What brings it there.
    pub mount: Mount,
}

/// The directories that hold what steps leave to those that follow, and where they are in a container.
pub(super) const KEPT: [(&str, &str); 2] = [(names::WORKSPACE, "/workspace"), (names::HOME, "/home/build")];
/// The volume that holds a way out's socket, and where it is in a container.
pub(super) const OUT: (&str, &str) = ("out", "/run/callboard/out");

/// The mounts of a build's own directories.
#[must_use]
pub(super) fn kept(reach: Reach, directory: &Path, build: &str, labels: &HashMap<String, String>) -> Vec<Mount> {
    let mount = |(name, target): (&str, &str)| match reach {
        Reach::Shared => bind(&directory.join(name), target, false),
        Reach::Apart => volume(&volume_name(build, name), target, false, labels),
    };
    KEPT.map(mount).into()
}

/// Those that are on this host, where what they hold can be counted.
#[must_use]
pub(super) fn bounded(reach: Reach, directory: &Path) -> Vec<PathBuf> {
    match reach {
        Reach::Shared => KEPT.map(|(name, _)| directory.join(name)).into(),
        Reach::Apart => Vec::new(),
    }
}

/// The way out of a build.
#[must_use]
pub(super) fn way(reach: Reach, directory: &Path, build: &str, labels: &HashMap<String, String>) -> Way {
    match reach {
        Reach::Shared => {
            let inside = format!("{INSIDE}/{}", names::EGRESS);
            Way { mount: bind(&directory.join(names::EGRESS), &inside, false), inside: inside.into() }
        }
        Reach::Apart => {
            let (name, target) = OUT;
            let mount = volume(&volume_name(build, name), target, false, labels);
            Way { mount, inside: Path::new(target).join(names::EGRESS) }
        }
    }
}

/// The directory of the way in to a preview's service, and where it is in a container.
pub(super) const DOOR: (&str, &str) = ("door", "/run/callboard/door");

/// The mount of a preview's way in; its directory is on this host.
#[must_use]
pub(super) fn door(directory: &Path) -> Mount {
    bind(&directory.join(DOOR.0), DOOR.1, false)
}

/// The mount of the worker's kit.
#[must_use]
pub(super) fn kit(reach: Reach, installed: &Path, volume_name: &str) -> Mount {
    match reach {
        Reach::Shared => bind(installed, &kit_target(), true),
        Reach::Apart => volume(volume_name, &kit_target(), true, &HashMap::new()),
    }
}

/// Where the worker's kit is in a container.
#[must_use]
pub(super) fn kit_target() -> String {
    format!("{INSIDE}/{}", kit::DIRECTORY)
}

/// The name of a build's volume.
#[must_use]
pub(super) fn volume_name(build: &str, name: &str) -> String {
    format!("callboard-{build}-{name}")
}

/// A file or directory of the daemon's host.
#[must_use]
pub(super) fn bind(source: &Path, target: &str, read_only: bool) -> Mount {
    Mount {
        source: Some(source.to_string_lossy().into_owned()),
        target: Some(target.to_owned()),
        typ: Some(MountType::BIND),
        read_only: Some(read_only),
        ..Mount::default()
    }
}

/// A volume, made when a container is that has it. What the image has in its place does not get into it.
#[must_use]
pub(super) fn volume(name: &str, target: &str, read_only: bool, labels: &HashMap<String, String>) -> Mount {
    Mount {
        source: Some(name.to_owned()),
        target: Some(target.to_owned()),
        typ: Some(MountType::VOLUME),
        read_only: Some(read_only),
        volume_options: Some(MountVolumeOptions {
            no_copy: Some(true),
            labels: Some(labels.clone()),
            ..MountVolumeOptions::default()
        }),
        ..Mount::default()
    }
}
