//! What a keeper is told by the worker that starts it: the one line that it reads.

use crate::egress::{Allowed, Way};
use crate::isolation::ServiceNetwork;
use crate::isolation::plan::Errand;
use crate::previews::folder::Folder;
use crate::previews::settings::Settings;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::net::SocketAddr;
use std::path::PathBuf;
use uuid::Uuid;

/// What to keep, and how.
#[derive(Serialize, Deserialize)]
pub struct Orders {
    /// The build.
    pub build: Uuid,
    /// The build's directory.
    pub site: PathBuf,
    /// The worker's binary, where the build's user can start it.
    pub binary: PathBuf,
    /// The number of the build's user.
    pub slot: u32,
    /// That user; the keeper's own if absent.
    pub run_as: Option<u32>,
    /// What runs the service. It is put into a network that the keeper makes.
    pub errand: Errand,
    /// That network.
    pub network: ServiceNetwork,
    /// Where the back end takes connections to the service.
    pub door: PathBuf,
    /// What may be reached besides public addresses.
    pub allowed: Vec<Allowed>,
    /// The resolver; the host's first if absent.
    pub resolver: Option<SocketAddr>,
    /// The service's port, inside.
    pub port: u16,
    /// What is asked of the service until it answers.
    pub health_path: String,
    /// What is masked in what it writes.
    pub secrets: Vec<String>,
    /// How the host holds previews.
    pub settings: Settings,
    /// Between asking the service to end and ending it.
    pub kill_grace_ms: u64,
}

impl fmt::Debug for Orders {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Orders").field("build", &self.build).finish_non_exhaustive()
    }
}

impl Orders {
    pub(super) fn folder(&self) -> Folder {
        Folder { build: self.build, site: self.site.clone() }
    }

    /// The service's way out, at `socket`.
    pub(super) fn way(&self, socket: PathBuf) -> Way<'_> {
        Way {
            binary: &self.binary,
            build: self.build.to_string(),
            socket,
            allowed: &self.allowed,
            resolver: self.resolver,
            run_as: self.run_as,
            slot: self.slot,
        }
    }
}
