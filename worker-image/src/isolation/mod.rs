//! Where steps run. A back end starts a task in isolation; the loops of the worker know nothing but this trait.
//!
//! Running a step without isolation is not offered.

pub mod ask;
pub mod attempt;
pub mod auto;
pub mod bubblewrap;
pub mod cgroup;
mod choose;
pub mod docker;
pub mod ecs;
pub mod guarantees;
pub mod init;
mod limits;
pub mod plan;
pub mod trial;
mod trials;

use crate::clock::Boot;
use crate::egress::{Proxy, Refusals, Way};
use crate::network::WayOut;
pub use choose::{Choice, Unusable, choose, end_containers, end_containers_of, tasks};
use futures::FutureExt as _;
use futures::future::BoxFuture;
use guarantees::Trying;
pub use limits::{Exceeded, Limits};
use plan::{ContainerOrders, Env, Errand, PlanFile};
use protocol::worker::Secret;
use serde::{Deserialize, Serialize};
pub use shim::seccomp;
use std::collections::BTreeMap;
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use tokio::io::AsyncRead;

/// Something to run in isolation.
#[derive(Clone)]
pub struct Task {
    /// What it runs in; `host` is this host's own system, read-only.
    pub image: String,
    /// The program and its arguments. Visible to other processes, so never a secret.
    pub argv: Vec<String>,
    /// All of its environment.
    pub env: Env,
    /// Files that only this task sees, in [`Isolation::inside`].
    pub files: Vec<PlanFile>,
    /// The build's own directory on this host.
    pub directory: PathBuf,
    /// The slot that the build is in.
    pub slot: u32,
    /// Its number among the build's: 0 for the clone, then the steps in their order, then those that tidy up in theirs.
    pub number: usize,
    /// Its way out; without one it has loopback of its own, and no more.
    pub way_out: Option<WayOut>,
    /// What it may take.
    pub limits: Limits,
    /// When it must begin to end unless renewed.
    pub fence_at: Boot,
    /// Between asking it to end and ending it.
    pub kill_grace: Duration,
}

impl fmt::Debug for Task {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Task").field("argv", &self.argv).field("slot", &self.slot).finish_non_exhaustive()
    }
}

/// A task that was started.
pub struct Running {
    /// What it writes to its standard output.
    pub stdout: Box<dyn AsyncRead + Send + Unpin>,
    /// What it writes to its standard error.
    pub stderr: Box<dyn AsyncRead + Send + Unpin>,
    /// The way to end it.
    pub control: Arc<dyn Control>,
    /// Waits until all of its processes are gone.
    pub ended: BoxFuture<'static, Ended>,
}

impl fmt::Debug for Running {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Running").field("control", &self.control).finish_non_exhaustive()
    }
}

/// The way to end a running task, from any thread. None of these waits.
pub trait Control: fmt::Debug + Send + Sync {
    /// It may go on until `fence_at`.
    fn renew(&self, fence_at: Boot);
    /// Asks all of its processes to end; what is left after the grace is ended.
    fn terminate(&self);
    /// Ends all of its processes now.
    fn kill(&self);
}

/// How a task ended. None of its processes is left.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ended {
    /// Its first process ended.
    Exited {
        /// With this code; 128 + N for a signal N.
        code: i32,
        /// The limit that it met on the way, if any.
        exceeded: Option<Exceeded>,
    },
    /// Its fence was reached.
    Fenced,
    /// It never came up, and why.
    NeverStarted(String),
    /// Nobody can say how it ended, and why.
    Broken(String),
}

impl Ended {
    /// The same for a person.
    #[must_use]
    pub fn told(&self) -> String {
        match self {
            Self::Exited { code, exceeded: None } => format!("it ended with exit code {code}"),
            Self::Exited { exceeded: Some(Exceeded::Memory), .. } => "it ran out of memory".into(),
            Self::Exited { exceeded: Some(Exceeded::Disk), .. } => "it filled its disk".into(),
            Self::Fenced => "its time was over".into(),
            Self::NeverStarted(why) | Self::Broken(why) => why.clone(),
        }
    }
}

/// Why a task can't be started.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StartError {
    /// This back end has no such image; what is to be said about it.
    Image(String),
    /// The back end itself is at fault.
    Trouble(String),
}

impl fmt::Display for StartError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Image(why) | Self::Trouble(why) => f.write_str(why),
        }
    }
}

/// An image that is to be made ready.
pub struct Fetch<'a> {
    /// Its name.
    pub image: &'a str,
    /// What its registry may be shown, by registry.
    pub secrets: &'a BTreeMap<String, Secret>,
    /// Says what a person may want to know of it.
    pub say: &'a (dyn Fn(&str) + Send + Sync),
    /// The way out of what is to run in it, which is awaited as well.
    pub way_out: Option<&'a WayOut>,
}

/// Whose network is to be made.
#[derive(Clone, Copy, Debug)]
pub struct NetworkOf<'a> {
    /// The build.
    pub build: &'a str,
    /// Its directory on this host, with the proxy's socket.
    pub directory: &'a Path,
    /// The slot that it is in.
    pub slot: u32,
    /// The images that its tasks with a way out run in.
    pub images: &'a [&'a str],
    /// When it must end unless renewed.
    pub fence_at: Boot,
}

/// A back end.
pub trait Isolation: fmt::Debug + Send + Sync {
    /// Its name.
    fn name(&self) -> &'static str;

    /// The back ends that it has, as a claim says them.
    fn names(&self) -> Vec<&'static str> {
        vec![self.name()]
    }

    /// Whether it could run `image`; what is to be said about it if not.
    ///
    /// # Errors
    ///
    /// [`StartError::Image`].
    fn takes(&self, image: &str) -> Result<(), StartError>;

    /// What it gives on this host, each tried for real in a sandbox that is gone afterwards. In no particular order.
    fn guarantees(&self) -> Trying<'_>;

    /// What runs whole builds away from this host, if this does: then nothing of them is started here.
    fn away(&self) -> Option<&ecs::Ecs> {
        None
    }

    /// Whether it makes sandboxes, which get out by a network that a process has.
    fn has_sandboxes(&self) -> bool {
        true
    }

    /// What makes the network of a build's containers, once its proxy is there; none where it has none in these images.
    fn network(&self, _of: NetworkOf<'_>) -> Option<ContainerOrders> {
        None
    }

    /// An image, and in it this program with `args`.
    fn own(&self, args: &[&str]) -> (String, Vec<String>) {
        let program = format!("{}/init", plan::INSIDE);
        ("host".into(), [program].into_iter().chain(args.iter().map(|arg| (*arg).to_owned())).collect())
    }

    /// Where a task finds its own files.
    fn inside(&self) -> &str {
        plan::INSIDE
    }

    /// The image that clones.
    fn clone_image(&self) -> &str {
        "host"
    }

    /// An image, and in it a program with its arguments, that does nothing and succeeds.
    fn probe(&self) -> (String, Vec<String>) {
        ("host".into(), vec!["/bin/true".into()])
    }

    /// Makes an image ready, and waits for the network, which may take long. The future may be dropped.
    fn fetch<'a>(&'a self, _fetch: Fetch<'a>) -> BoxFuture<'a, Result<(), StartError>> {
        async { Ok(()) }.boxed()
    }

    /// Makes a build's way out, and what else it needs before its first task.
    fn way_out<'a>(&'a self, way: Way<'a>, refusals: Refusals) -> BoxFuture<'a, io::Result<Proxy>> {
        Proxy::start(way, refusals).boxed()
    }

    /// Removes what is kept of a build outside of its directory, and what may have been left of its tasks.
    fn clear<'a>(&'a self, _build: &'a str) -> BoxFuture<'a, Result<(), String>> {
        async { Ok(()) }.boxed()
    }

    /// Starts a task.
    fn start(&self, task: Task) -> BoxFuture<'_, Result<Running, StartError>>;

    /// Whether it could run a preview's service in `image`.
    fn holds_previews(&self, _image: &str) -> bool {
        false
    }

    /// What a keeper is to start for a preview's service, and where that is reached. The task's way out stands for one that the
    /// keeper makes, if the back end has networks.
    fn service(&self, task: Task, _of: ServiceOf) -> BoxFuture<'_, Result<Service, StartError>> {
        async move { Err(StartError::Image(format!("image {:?} can't be a preview's here", task.image))) }.boxed()
    }
}

/// What a preview's service is, besides a task.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ServiceOf {
    /// The port that it listens on.
    pub port: u16,
    /// Whether what is left of it stays, if it fails.
    pub retain_failed: bool,
}

/// What a keeper starts, and where it finds it.
#[derive(Debug)]
pub struct Service {
    /// What its guard is for.
    pub errand: Errand,
    /// A Unix socket of this host's at which connections to the service's port are taken, once it runs.
    pub door: PathBuf,
    /// The network that the keeper is to make for it.
    pub network: ServiceNetwork,
}

/// The network of a preview's service.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ServiceNetwork {
    /// A process, which then has the door.
    Process,
    /// A container.
    Container(Box<ContainerOrders>),
}
