//! What the worker hands a guard, and a guard hands the first process of its sandbox.
//!
//! Both travel through descriptors without a name (a socket, a memory file), since arguments and environments of
//! processes can be read by others.

use super::cgroup::Group;
use super::docker::{self, Address};
use super::{Exceeded, Limits};
use crate::clock::Boot;
use crate::network::{Inside, Joined};
use bollard::models::ContainerCreateBody;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;
use tokio::task::spawn_blocking;

/// Variables by name.
pub type Env = BTreeMap<String, String>;

/// Where a plan's files and the certificates are inside a sandbox.
pub const INSIDE: &str = "/run/callboard";

/// A file that the first process writes before it starts the program.
#[derive(Clone, Serialize, Deserialize)]
pub struct PlanFile {
    /// Its name under [`INSIDE`].
    pub name: String,
    /// Its permissions.
    pub mode: u32,
    /// What is in it.
    pub content: String,
}

/// A way in: connections to a Unix socket are carried to a port on loopback.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Door {
    /// The socket, as the first process finds it; nothing must be there.
    pub socket: PathBuf,
    /// The port.
    pub port: u16,
}

/// What the first process of a sandbox does.
#[derive(Clone, Serialize, Deserialize)]
pub struct Plan {
    /// The program and its arguments.
    pub argv: Vec<String>,
    /// All of its environment, but for the proxy's variables, over which it wins.
    pub env: Env,
    /// What to write before.
    pub files: Vec<PlanFile>,
    /// The port on loopback where the build's network has the proxy; without one there is no way out.
    pub proxy_port: Option<u16>,
    /// The way in to a service, which its first process opens where no network has it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub door: Option<Door>,
    /// How many processes and threads its user may have.
    pub processes_max: u32,
    /// How long the others may take to end once the program was asked to and did.
    pub linger_ms: u64,
}

impl fmt::Debug for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Plan").field("argv", &self.argv).finish_non_exhaustive()
    }
}

/// What a guard is for: the first line it reads.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Errand {
    /// A sandbox of bubblewrap's.
    Sandbox(Box<Orders>),
    /// A container.
    Container(Box<ContainerOrders>),
}

impl Errand {
    /// Puts a sandbox into a network that was not there yet when its orders were made.
    pub fn enter(&mut self, inside: Inside) {
        match self {
            Self::Sandbox(orders) => {
                orders.inside = Some(inside.process);
                orders.plan.proxy_port = Some(inside.proxy_port);
            }
            Self::Container(_) => {}
        }
    }

    /// The same for a container.
    pub fn join(&mut self, joined: &Joined) {
        match self {
            Self::Container(orders) => orders.join(joined),
            Self::Sandbox(_) => {}
        }
    }

    /// Ends what a guard that was killed could not end, and what it was to leave.
    pub async fn end(&self) {
        match self {
            Self::Sandbox(orders) => {
                if let Some(group) = orders.group.clone() {
                    spawn_blocking(move || group.end()).await.ok();
                }
            }
            Self::Container(orders) => docker::remove_soon(&orders.daemon, &orders.name).await,
        }
    }

    /// Whether something stopped is left of it, as evidence.
    #[must_use]
    pub fn is_kept(&self) -> bool {
        match self {
            Self::Sandbox(_) => false,
            Self::Container(orders) => orders.is_kept,
        }
    }
}

/// What a guard of a container does.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ContainerOrders {
    /// Whose container it is.
    pub daemon: Address,
    /// Its name, which is nobody else's.
    pub name: String,
    /// What it is made of.
    pub body: ContainerCreateBody,
    /// The mark of when it was over.
    pub ended_mark: PathBuf,
    /// Whether it stays, stopped, when it has ended.
    #[serde(default)]
    pub is_kept: bool,
    /// What its first process does.
    pub plan: Plan,
    /// The directories of this host that `disk_bytes` bounds together; none if they are not on this host.
    pub bounded: Vec<PathBuf>,
    /// How much they may hold.
    pub disk_bytes: u64,
    /// When it must begin to end unless renewed.
    pub fence_at: Boot,
    /// Whether its first process is told of the fence as well.
    pub tells_fence: bool,
    /// Between asking its processes to end and ending them.
    pub kill_grace_ms: u64,
}

impl ContainerOrders {
    /// Puts the container into a network. Its name is then that of the container which has the network.
    pub fn join(&mut self, joined: &Joined) {
        self.plan.proxy_port = Some(joined.proxy_port);
        (self.body.network_disabled, self.body.hostname) = (None, None);
        let host = self.body.host_config.get_or_insert_default();
        host.network_mode = Some(format!("container:{}", joined.container));
    }
}

/// What a guard of a sandbox does.
#[derive(Debug, Serialize, Deserialize)]
pub struct Orders {
    /// The program that makes the sandbox.
    pub program: PathBuf,
    /// Its arguments.
    pub args: Vec<String>,
    /// The process whose user and network namespaces it is made in; in the guard's own if absent.
    pub inside: Option<u32>,
    /// Whom it runs as, user and group; as the guard itself if absent.
    pub run_as: Option<u32>,
    /// The mark of when it was over.
    pub ended_mark: PathBuf,
    /// What the sandbox's first process does.
    pub plan: Plan,
    /// What it may take.
    pub limits: Limits,
    /// The control group that holds it to that, if this host has any.
    pub group: Option<Group>,
    /// The directories that `limits` bounds together.
    pub bounded: Vec<PathBuf>,
    /// When the sandbox must begin to end unless renewed.
    pub fence_at: Boot,
    /// Between asking its processes to end and ending them.
    pub kill_grace_ms: u64,
}

/// What a guard hears after its orders, a line each.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Word {
    /// The sandbox may go on until then.
    FenceAt(Boot),
    /// Ask all processes to end, and end them after the grace.
    Terminate,
    /// End all processes.
    Kill,
}

/// What a guard says at last.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Report {
    /// Whether the sandbox came up.
    pub started: bool,
    /// The exit code of its first process; 128 + N for a signal N.
    pub exit_code: Option<i32>,
    /// The limit that it met, if any.
    pub exceeded: Option<Exceeded>,
    /// Whether the guard ended it because its fence was reached.
    pub fenced: bool,
    /// What went wrong with the guard itself.
    pub trouble: Option<String>,
}
