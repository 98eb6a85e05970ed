//! Everything that can be set about a worker, in one place, with the defaults of SPEC.md.

use crate::egress::Allowed;
use crate::isolation::docker::Settings;
use crate::isolation::ecs;
use crate::isolation::guarantees::Guarantee;
use crate::isolation::{Choice, Limits};
use crate::previews::settings as previews;
use crate::protection;
use std::collections::BTreeSet;
use std::fmt;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

/// The worker's token. Never printed.
#[derive(Clone, PartialEq, Eq)]
pub struct Token(pub String);

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("***")
    }
}

/// How `run` is to run.
#[derive(Clone, Debug)]
pub struct Config {
    /// Where the control plane is: `http(s)://host:port`, without a path's last `/`.
    pub api_url: String,
    /// The worker's token.
    pub token: Token,
    /// Its name, for people.
    pub name: String,
    /// How many builds it holds at once, at least 1.
    pub slots: u32,
    /// Its labels, such as `arch=arm64`.
    pub labels: Vec<String>,
    /// Certificates (PEM) to trust besides the system's: for the control plane and for clones.
    pub ca_bundle: Option<PathBuf>,
    /// What builds may reach besides public addresses.
    pub egress_allow: Vec<Allowed>,
    /// The resolver that builds ask for names; the host's first if absent.
    pub resolver: Option<SocketAddr>,
    /// How long running builds may go on after the first SIGTERM.
    pub drain_timeout: Duration,
    /// What steps run in.
    pub isolation: Choice,
    /// How containers are made.
    pub docker: Settings,
    /// How tasks of ECS are made.
    pub ecs: ecs::Settings,
    /// What a build may take of this host.
    pub limits: Limits,
    /// The guarantees that builds may do without where this host can't give them.
    pub accept: BTreeSet<Guarantee>,
    /// The durations that a test shortens.
    pub grace: Grace,
    /// The host's number, stable over restarts; `<builds_root>/.host-id` if absent.
    pub host_id_file: Option<PathBuf>,
    /// Below this much free space in the builds root nothing is claimed.
    pub free_bytes_min: u64,
    /// Where metrics are served, if anywhere.
    pub metrics_addr: Option<SocketAddr>,
    /// How this host holds previews.
    pub previews: previews::Settings,
    /// Whether previews end with the worker: whoever started it keeps nothing running.
    pub previews_end: bool,
    /// How a task of an ECS service is protected from scale-in.
    pub protection: protection::Settings,
    /// Where and as whom builds run.
    pub place: Place,
}

/// Where and as whom builds run.
#[derive(Clone, Debug)]
pub struct Place {
    /// The directory that holds a directory per build.
    pub builds_root: PathBuf,
    /// As root: slot N's processes run as the user `first_uid` + N, who owns nothing else.
    pub first_uid: u32,
    /// Directories of programs that sandboxes see too, read-only and by the same names: checked by [`tools::check`](crate::tools::check).
    pub tools: Vec<PathBuf>,
    /// The worker's own binary, which is also the guard and the first process of every sandbox.
    pub binary: PathBuf,
}

/// Durations within which things must have ended.
#[derive(Clone, Copy, Debug)]
pub struct Grace {
    /// Between asking a step's processes to end and ending them (10 s).
    pub kill: Duration,
    /// What is kept in hand between the last kill and the reaper (15 s).
    pub fence_margin: Duration,
    /// How long logs may hold a build after its steps ended (60 s).
    pub logs: Duration,
    /// How long output is read after a step's last process ended (2 s).
    pub output: Duration,
    /// How long a step may write nothing; without it, for ever.
    pub silent: Option<Duration>,
}

impl Default for Grace {
    fn default() -> Self {
        let seconds = Duration::from_secs;
        Self { kill: seconds(10), fence_margin: seconds(15), logs: seconds(60), output: seconds(2), silent: None }
    }
}
