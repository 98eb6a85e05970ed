//! Where steps run. A back end starts a task in isolation; the loops of the worker know nothing but this trait.
//!
//! Running a step without isolation is not offered.

pub mod bubblewrap;
pub mod cgroup;
pub mod guarantees;
pub mod init;
mod limits;
pub mod plan;
pub mod seccomp;
pub mod trial;
mod trials;

use crate::clock::Boot;
use crate::network::WayOut;
use futures::future::BoxFuture;
use guarantees::Trying;
pub use limits::{Exceeded, Limits};
use plan::{Env, PlanFile};
use std::fmt;
use std::path::PathBuf;
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
    /// Files that only this task sees, under `/run/callboard`.
    pub files: Vec<PlanFile>,
    /// The build's own directory on this host.
    pub directory: PathBuf,
    /// The slot that the build is in.
    pub slot: u32,
    /// The way into its build's network; without one it has loopback of its own, and no more.
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

/// A back end.
pub trait Isolation: fmt::Debug + Send + Sync {
    /// Its name, as a claim says it.
    fn name(&self) -> &'static str;

    /// Whether it could run `image`; what is to be said about it if not.
    ///
    /// # Errors
    ///
    /// [`StartError::Image`].
    fn takes(&self, image: &str) -> Result<(), StartError>;

    /// What it gives on this host, each tried for real in a sandbox that is gone afterwards. In no particular order.
    fn guarantees(&self) -> Trying<'_>;

    /// Starts a task.
    fn start(&self, task: Task) -> BoxFuture<'_, Result<Running, StartError>>;
}
