//! Where steps run, in what, and what they may take: the same for all who try or run any.

use super::ecs::EcsArgs;
use crate::config::Place;
use crate::isolation::docker::{PullWhen, Settings as Containers, socket};
use crate::isolation::ecs::Settings as Tasks;
use crate::isolation::guarantees::Guarantee;
use crate::isolation::{Choice, Limits};
use crate::tools;
use anyhow::Context as _;
use clap::Args;
use std::collections::BTreeSet;
use std::path::PathBuf;

/// Where builds run.
#[derive(Debug, Args)]
pub struct PlaceArgs {
    /// The directory that holds a directory per build.
    #[arg(long, env = "CALLBOARD_BUILDS_ROOT", default_value = "/var/lib/callboard/builds")]
    builds_root: PathBuf,
    /// As root, slot N's processes run as this user id + N.
    #[arg(long, env = "CALLBOARD_FIRST_UID", default_value_t = 300_000)]
    first_uid: u32,
    /// A directory of programs, such as a rustup toolchain, that sandboxes see too: read-only, and its bin first in PATH; may be
    /// repeated.
    #[arg(long, env = "CALLBOARD_TOOLS", value_name = "DIR", value_delimiter = ',')]
    tools: Vec<PathBuf>,
}

/// What the operator puts up with.
#[derive(Debug, Args)]
pub(super) struct AcceptArgs {
    /// A guarantee that builds may do without where this host can't give it, such as `memory`; may be repeated.
    #[arg(long = "accept", env = "CALLBOARD_ACCEPT", value_delimiter = ',')]
    accept: Vec<Guarantee>,
}

/// What a build may take of its host.
#[derive(Debug, Args)]
pub(super) struct LimitArgs {
    /// Memory of a build's running step, in MiB.
    #[arg(long, env = "CALLBOARD_MEMORY_MIB", default_value_t = 4096, value_parser = clap::value_parser!(u32).range(16..))]
    memory_mib: u32,
    /// Processes and threads of a build at once.
    #[arg(long, env = "CALLBOARD_PROCESSES", default_value_t = 1024, value_parser = clap::value_parser!(u32).range(8..=4_000_000))]
    processes: u32,
    /// CPUs of a build, in thousandths: 1500 is one and a half.
    #[arg(long, env = "CALLBOARD_CPU_MILLIS", default_value_t = 2000, value_parser = clap::value_parser!(u32).range(10..=1_000_000))]
    cpu_millis: u32,
    /// What a build's directory may hold, in MiB.
    #[arg(long, env = "CALLBOARD_DISK_MIB", default_value_t = 20 * 1024, value_parser = clap::value_parser!(u32).range(16..))]
    disk_mib: u32,
}

/// What steps run in.
#[derive(Debug, Args)]
pub(super) struct IsolationArgs {
    /// What steps run in; auto: bubblewrap for `image: host`, containers for images, whichever works here.
    #[arg(long, env = "CALLBOARD_ISOLATION", value_enum, default_value = "auto")]
    pub(super) isolation: Choice,
    /// The container daemon's socket.
    #[arg(long, env = "DOCKER_HOST", default_value = "unix:///var/run/docker.sock", value_parser = socket)]
    docker_host: PathBuf,
    /// When an image is asked for at its registry.
    #[arg(long, env = "CALLBOARD_PULL", value_enum, default_value = "missing")]
    pull: PullWhen,
    /// The image that clones where bubblewrap does not; it needs /bin/sh and git.
    #[arg(long, env = "CALLBOARD_CLONE_IMAGE", default_value = "docker.io/alpine/git:latest")]
    clone_image: String,
    #[command(flatten)]
    ecs: EcsArgs,
}

impl PlaceArgs {
    /// The same, checked.
    ///
    /// # Errors
    ///
    /// What is wrong with it.
    pub fn place(&self) -> anyhow::Result<Place> {
        let binary = std::env::current_exe().context("this program's own file can't be found")?;
        let builds_root = std::path::absolute(&self.builds_root)?;
        for directory in &self.tools {
            tools::check(directory, &builds_root).with_context(|| format!("--tools {}", directory.display()))?;
        }
        Ok(Place { builds_root, first_uid: self.first_uid, tools: self.tools.clone(), binary })
    }
}

impl IsolationArgs {
    pub(super) fn containers(&self) -> Containers {
        let Self { docker_host, pull, clone_image, .. } = self;
        Containers { socket: docker_host.clone(), pull: *pull, clone_image: clone_image.clone() }
    }

    pub(super) fn tasks(&self) -> Tasks {
        self.ecs.settings()
    }
}

impl LimitArgs {
    pub(super) fn limits(&self) -> Limits {
        let bytes = |mib: u32| u64::from(mib) * 1024 * 1024;
        Limits {
            memory_bytes: bytes(self.memory_mib),
            processes: self.processes,
            cpu_millis: self.cpu_millis,
            disk_bytes: bytes(self.disk_mib),
        }
    }
}

impl AcceptArgs {
    pub(super) fn accepted(&self) -> BTreeSet<Guarantee> {
        self.accept.iter().copied().collect()
    }
}
