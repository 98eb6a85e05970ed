//! The embedded back end: a sandbox over this host's own system, made by bubblewrap without root.
//!
//! As root, the worker gives each slot a user of its own, who owns nothing on the host but the build's directory, so
//! that root inside would be nobody outside. As a plain user it just runs.

mod abilities;
mod host;

use super::plan::{Errand, INSIDE, Orders, Plan};
use super::{Isolation, Running, StartError, Task};
use crate::clock::millis;
use crate::config::Place;
use crate::guard::client;
use crate::site::Site;
use crate::workplace::{ETC, has};
use futures::FutureExt as _;
use futures::future::BoxFuture;
use protocol::pipeline::Network;
use std::path::{Path, PathBuf};

pub use abilities::Abilities;
pub use host::{find, path_variable};

/// Where a sandbox can write besides the build's own directories, and how much. That is memory: 3 GiB a sandbox at most. The
/// rest of /dev can't be written.
const MEMORY_MIB: [(&str, u64); 4] = [("/tmp", 2048), ("/var/tmp", 512), ("/dev/shm", 448), ("/run", 64)];

/// Names inside a build's directory.
pub mod names {
    /// What is `/workspace` in the sandbox.
    pub const WORKSPACE: &str = "workspace";
    /// What is `/home/build` in the sandbox.
    pub const HOME: &str = "home";
    /// The proxy's socket.
    pub const EGRESS: &str = "egress.sock";
    /// The certificates that the clone trusts.
    pub const CERTIFICATES: &str = "certificates.pem";
}

/// The back end.
#[derive(Debug)]
pub struct Bubblewrap {
    program: PathBuf,
    place: Place,
    abilities: Abilities,
}

impl Bubblewrap {
    /// A back end that calls `program`.
    #[must_use]
    pub fn new(program: PathBuf, place: Place) -> Self {
        let abilities = Abilities::of(&program);
        Self { program, place, abilities }
    }

    fn orders(&self, task: &Task) -> Orders {
        let egress = (task.network == Network::Isolated).then(|| Path::new(INSIDE).join(names::EGRESS));
        let kill_grace_ms = millis(task.kill_grace);
        let args = self.args(task, egress.is_some());
        let plan = Plan {
            argv: task.argv.clone(),
            env: task.env.clone(),
            files: task.files.clone(),
            egress,
            linger_ms: kill_grace_ms,
        };
        let (program, run_as) = (self.program.clone(), self.place.run_as(task.slot));
        let ended_mark = Site::ended_mark(&task.directory);
        Orders { program, args, run_as, ended_mark, plan, limits: task.limits, fence_at: task.fence_at, kill_grace_ms }
    }

    fn args(&self, task: &Task, with_egress: bool) -> Vec<String> {
        let mut args = Args::default();
        args.all(&["--unshare-user", "--unshare-all", "--die-with-parent", "--new-session"]);
        args.all(if self.abilities.no_nesting { &["--disable-userns"] } else { &[] });
        args.all(&["--as-pid-1", "--clearenv", "--cap-drop", "ALL", "--hostname", "callboard"]);
        args.all(&["--uid", "1000", "--gid", "1000"]);
        args.extend(host::system());
        args.extend(host::etc(&self.place.builds_root.join(ETC)));
        args.all(&["--proc", "/proc", "--dev", "/dev"]);
        for (directory, mib) in MEMORY_MIB {
            if self.abilities.tmpfs_size {
                args.all(&["--size", &(mib * 1024 * 1024).to_string()]);
            }
            args.all(&["--tmpfs", directory]);
        }
        args.all(&["--dir", INSIDE]);
        args.bind("--bind", &task.directory.join(names::WORKSPACE), "/workspace");
        args.bind("--bind", &task.directory.join(names::HOME), "/home/build");
        args.bind("--ro-bind", &self.place.installed(), &format!("{INSIDE}/init"));
        if with_egress {
            args.bind("--bind", &task.directory.join(names::EGRESS), &format!("{INSIDE}/{}", names::EGRESS));
        }
        let certificates = task.directory.join(names::CERTIFICATES);
        if has(&certificates) {
            args.bind("--ro-bind", &certificates, &format!("{INSIDE}/{}", names::CERTIFICATES));
        }
        args.all(&["--remount-ro", "/dev", "--remount-ro", "/", "--chdir", "/workspace"]);
        args.0
    }
}

/// The arguments of the sandbox's first process, after all options.
pub fn first_process() -> [String; 3] {
    ["--".into(), format!("{INSIDE}/init"), "sandbox-init".into()]
}

#[derive(Default)]
struct Args(Vec<String>);

impl Args {
    fn all(&mut self, args: &[&str]) {
        self.0.extend(args.iter().map(|arg| (*arg).to_owned()));
    }

    fn extend(&mut self, args: Vec<String>) {
        self.0.extend(args);
    }

    fn bind(&mut self, how: &str, from: &Path, to: &str) {
        self.0.extend([how.to_owned(), from.to_string_lossy().into_owned(), to.to_owned()]);
    }
}

impl Isolation for Bubblewrap {
    fn name(&self) -> &'static str {
        "bubblewrap"
    }

    fn takes(&self, image: &str) -> Result<(), StartError> {
        if image == "host" {
            return Ok(());
        }
        let why = "this worker has the bubblewrap back end alone, which runs `image: host`";
        Err(StartError::Image(format!("image {image:?} can't be run: {why}")))
    }

    fn start(&self, task: Task) -> BoxFuture<'_, Result<Running, StartError>> {
        async move {
            self.takes(&task.image)?;
            let build = task.directory.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
            let orders = self.orders(&task);
            let started = client::start(&self.place.installed(), &build, Errand::Sandbox(Box::new(orders))).await;
            started.map_err(|error| StartError::Trouble(format!("the guard could not be started: {error}")))
        }
        .boxed()
    }
}
