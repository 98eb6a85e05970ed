//! What a build's task is made of, as ECS keeps it: a pure function of the images, the sizes and how many steps there are.
//!
//! Whoever may describe task definitions reads it, and it outlives the build. So nothing of a build is in it but the names of its
//! images: steps are numbers here, and what they run is fetched by the runner.

use super::settings::{Fit, LaunchType};
use serde::Serialize;
use sha2::{Digest as _, Sha256};

/// Steps of a task: ECS has ten containers at most, of which the runner and the clone are two.
pub const STEPS_MAX: usize = 8;
/// The runner's container.
pub const RUNNER: &str = "runner";
/// The clone's container.
pub const CLONE: &str = "clone";
/// What all families begin with.
pub const FAMILY: &str = "callboard-";

/// To be raised whenever what is made of the same images and sizes changes: a family is never given another meaning.
const LAYOUT: u32 = 1;
/// Where the runner listens and the shim is, filled from the runner's image.
const CONTROL: &str = "control";
const CONTROL_PATH: &str = "/run/callboard";
/// What waits in a room until the runner gives it something to run.
const SHIM: &str = "/run/callboard/bin/shim";
/// What all containers share, and where.
const SHARED: [(&str, &str); 2] = [("workspace", "/workspace"), ("home", "/home/build")];
/// The image's own user: not root.
const USER: &str = "10001:10001";
/// How long containers may take to end once they are told to: the most that Fargate allows. It is for what a cancelled build tidies up.
const STOP_SECONDS: u32 = 120;

/// A task definition.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Definition {
    /// Its name, which says all of it.
    pub family: String,
    /// Where tasks of it run.
    pub launch_type: LaunchType,
    /// `X86_64` or `ARM64`.
    pub architecture: &'static str,
    /// CPU, in 1,024ths of one.
    pub cpu: u32,
    /// Memory, in MiB.
    pub memory_mib: u32,
    /// Disk, in GiB, where it is not the usual.
    pub ephemeral_gib: Option<u32>,
    /// The role that ECS pulls images with. There is none for what runs in the task.
    pub execution_role_arn: Option<String>,
    /// The volumes, which are empty when a task begins and gone with it.
    pub volumes: Vec<String>,
    /// The containers.
    pub containers: Vec<Container>,
}

/// A container. None of them has a capability, may write to its image or is root.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Container {
    /// Its name.
    pub name: String,
    /// Its image.
    pub image: String,
    /// Whether the task ends with it.
    pub essential: bool,
    /// In the place of the image's own; none for the image's own.
    pub entry_point: Vec<String>,
    /// What follows it.
    pub command: Vec<String>,
    /// User and group.
    pub user: &'static str,
    /// Whether it begins once the runner has begun.
    pub after_runner: bool,
    /// How long it may take to end.
    pub stop_seconds: u32,
    /// What it sees of the volumes.
    pub mounts: Vec<Mount>,
}

/// A volume in a container.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Mount {
    /// The volume.
    pub volume: String,
    /// Where.
    pub path: String,
    /// Whether it can't be written there.
    pub read_only: bool,
}

impl Definition {
    /// What a build is run by whose steps have these images, in order.
    #[must_use]
    pub fn of(fit: &Fit, images: &[&str]) -> Self {
        let rooms = images.iter().enumerate().map(|(at, image)| (format!("step-{}", at + 1), *image));
        let rooms: Vec<(String, &str)> =
            [(CLONE.to_owned(), fit.runner_image.as_str())].into_iter().chain(rooms).collect();
        let containers = rooms.iter().enumerate().map(|(number, (name, image))| room(number, name, image));
        let settings = &fit.settings;
        let mut definition = Self {
            family: String::new(),
            launch_type: settings.launch_type,
            architecture: if cfg!(target_arch = "aarch64") { "ARM64" } else { "X86_64" },
            cpu: settings.cpu,
            memory_mib: settings.memory_mib,
            ephemeral_gib: settings.ephemeral_gib,
            execution_role_arn: settings.execution_role_arn.clone(),
            volumes: [CONTROL, SHARED[0].0, SHARED[1].0]
                .map(str::to_owned)
                .into_iter()
                .chain((0..rooms.len()).map(tmp))
                .collect(),
            containers: [runner(fit, rooms.len())].into_iter().chain(containers).collect(),
        };
        definition.family = definition.digest();
        definition
    }

    fn digest(&self) -> String {
        // What has neither maps nor floats always has JSON.
        let words = serde_json::to_vec(&(LAYOUT, self)).unwrap_or_default();
        FAMILY.to_owned() + &hex::encode(&Sha256::digest(words)[..16])
    }
}

/// It begins first, and a volume that is mounted for the first time is filled from the image, owner and all, where the image declares a
/// volume. So it has each room's `/tmp` as well, which would be root's otherwise.
fn runner(fit: &Fit, rooms: usize) -> Container {
    Container {
        name: RUNNER.into(),
        image: fit.runner_image.clone(),
        essential: true,
        entry_point: Vec::new(),
        command: vec![RUNNER.into()],
        user: USER,
        after_runner: false,
        stop_seconds: STOP_SECONDS,
        mounts: [mount(CONTROL, CONTROL_PATH, false)]
            .into_iter()
            .chain(shared())
            .chain((0..rooms).map(|number| mount(&tmp(number), &format!("/rooms/{number}"), false)))
            .collect(),
    }
}

/// Where the clone or a step runs: the shim waits there for what the runner gives it.
fn room(number: usize, name: &str, image: &str) -> Container {
    Container {
        name: name.into(),
        image: image.into(),
        essential: false,
        entry_point: vec![SHIM.into()],
        command: vec![number.to_string()],
        user: USER,
        after_runner: true,
        stop_seconds: STOP_SECONDS,
        mounts: [mount(CONTROL, CONTROL_PATH, true)]
            .into_iter()
            .chain(shared())
            .chain([mount(&tmp(number), "/tmp", false)])
            .collect(),
    }
}

fn shared() -> impl Iterator<Item = Mount> {
    SHARED.into_iter().map(|(volume, path)| mount(volume, path, false))
}

fn tmp(room: usize) -> String {
    format!("tmp-{room}")
}

fn mount(volume: &str, path: &str, read_only: bool) -> Mount {
    Mount { volume: volume.into(), path: path.into(), read_only }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::isolation::ecs::settings::Settings;

    fn of(images: &[&str]) -> Definition {
        Definition::of(&Fit::example(), images)
    }

    #[test]
    fn a_task_has_a_runner_a_clone_and_a_room_for_each_step() {
        let definition = of(&["rust:1", "node:22"]);
        let told: Vec<_> = definition.containers.iter().map(|one| (one.name.as_str(), one.image.as_str())).collect();
        let ours = "registry.example/callboard-worker:1";
        assert_eq!(told, [("runner", ours), ("clone", ours), ("step-1", "rust:1"), ("step-2", "node:22")]);
        assert_eq!(definition.volumes, ["control", "workspace", "home", "tmp-0", "tmp-1", "tmp-2"]);
        let commands: Vec<_> = definition.containers[1..].iter().map(|room| room.command.concat()).collect();
        assert_eq!(commands, ["0", "1", "2"]);
    }

    #[test]
    fn the_task_ends_with_its_runner_alone_and_no_room_waits_for_another() {
        let definition = of(&["rust:1"]);
        for container in &definition.containers {
            let is_runner = container.name == RUNNER;
            assert_eq!((container.essential, container.after_runner), (is_runner, !is_runner), "{}", container.name);
        }
    }

    #[test]
    fn no_room_can_write_where_the_runner_listens_or_into_anothers_tmp() {
        let definition = of(&["rust:1", "rust:1"]);
        let mut seen = std::collections::BTreeSet::new();
        for room in &definition.containers[1..] {
            assert!(room.mounts.iter().any(|mount| mount.path == "/run/callboard" && mount.read_only), "{}", room.name);
            let tmp = room.mounts.iter().find(|mount| mount.path == "/tmp").unwrap();
            assert!(seen.insert(tmp.volume.clone()), "{}", tmp.volume);
        }
    }

    #[test]
    fn the_runners_image_declares_each_volume_that_is_filled_from_it() {
        let recipe = include_str!("../../../Dockerfile");
        let volumes = recipe.lines().filter_map(|line| line.strip_prefix("VOLUME ")).flat_map(str::split_whitespace);
        let volumes: Vec<&str> = volumes.collect();
        for mount in &of(&["rust:1"; STEPS_MAX]).containers[0].mounts {
            assert!(volumes.contains(&mount.path.as_str()), "{}", mount.path);
        }
    }

    #[test]
    fn a_family_says_all_of_what_it_names() {
        let (fit, first) = (Fit::example(), of(&["rust:1"]));
        assert_eq!(first.family.len(), FAMILY.len() + 32);
        assert_eq!(first, of(&["rust:1"]));
        let changed = |settings: Settings| Definition::of(&settings.fit().unwrap(), &["rust:1"]).family;
        let settings = &fit.settings;
        for other in [
            of(&["rust:2"]).family,
            of(&["rust:1", "rust:1"]).family,
            changed(Settings { cpu: 2048, ..settings.clone() }),
            changed(Settings { memory_mib: 8192, ..settings.clone() }),
            changed(Settings { ephemeral_gib: Some(50), ..settings.clone() }),
            changed(Settings { runner_image: Some("callboard-worker:2".into()), ..settings.clone() }),
            changed(Settings { execution_role_arn: Some("arn:aws:iam::1:role/pull".into()), ..settings.clone() }),
            changed(Settings { launch_type: LaunchType::Ec2, ..settings.clone() }),
        ] {
            assert_ne!(first.family, other);
        }
        // What RunTask is told each time makes no other definition.
        assert_eq!(first.family, changed(Settings { cluster: Some("other".into()), ..settings.clone() }));
    }
}
