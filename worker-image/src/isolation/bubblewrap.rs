//! The embedded back end: a sandbox over this host's own system, made by bubblewrap without root.
//!
//! As root, the worker gives each slot a user of its own, who owns nothing on the host but the build's directory, so
//! that root inside would be nobody outside. As a plain user it just runs.

mod abilities;
mod guarantees;
mod host;

use super::cgroup::{Controller, Group, Parent};
use super::guarantees::Trying;
use super::plan::{Errand, INSIDE, Orders, Plan};
use super::{Ended, Isolation, Running, Service, ServiceNetwork, ServiceOf, StartError, Task};
use crate::clock::millis;
use crate::config::Place;
use crate::guard::client;
use crate::site::Site;
use crate::workplace::{ETC, has};
use futures::FutureExt as _;
use futures::future::BoxFuture;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use tokio::task::spawn_blocking;
use tracing::error;

pub use abilities::Abilities;
pub use host::{find, path_variable};

/// Where a sandbox can write besides the build's own directories, and how much. That is memory: 3 GiB a sandbox at most. The
/// rest of /dev can't be written.
const MEMORY_MIB: [(&str, u64); 4] = [("/tmp", 2048), ("/var/tmp", 512), ("/dev/shm", 448), ("/run", 64)];

/// How many processes a user may have where something else limits them.
const PROCESSES_MAX: u32 = 4096;

/// Names inside a build's directory.
pub mod names {
    /// What is `/workspace` in the sandbox.
    pub const WORKSPACE: &str = "workspace";
    /// What is `/home/build` in the sandbox.
    pub const HOME: &str = "home";
    /// The proxy's socket.
    pub const EGRESS: &str = "egress.sock";
    /// The way in to a preview's service.
    pub const DOOR: &str = "door.sock";
    /// The certificates that the clone trusts.
    pub const CERTIFICATES: &str = "certificates.pem";
}

/// The back end.
#[derive(Debug)]
pub struct Bubblewrap {
    program: PathBuf,
    place: Place,
    abilities: Abilities,
    /// The control groups of its tasks, or why there are none.
    groups: Result<Parent, String>,
    started: AtomicU64,
}

impl Bubblewrap {
    /// A back end that calls `program`, on a builds root that is there.
    #[must_use]
    pub fn new(program: PathBuf, place: Place) -> Self {
        let (abilities, groups) = (Abilities::of(&program), Parent::make(&place.builds_root));
        Self { program, place, abilities, groups, started: AtomicU64::new(0) }
    }

    fn group(&self, name: &str) -> Option<Group> {
        self.groups.as_ref().ok().map(|groups| groups.group(name))
    }

    fn numbered(&self, build: &str) -> String {
        format!("{build}.{}", self.started.fetch_add(1, Ordering::Relaxed))
    }

    /// Where a group counts processes, the user's own count is but a backstop: older kernels count those of all sandboxes.
    fn processes_max(&self, task: &Task) -> u32 {
        let is_counted = self.groups.as_ref().is_ok_and(|groups| groups.has(Controller::Pids));
        task.limits.processes.max(if is_counted { PROCESSES_MAX } else { 0 })
    }

    fn orders(&self, task: &Task, group: Option<Group>) -> Orders {
        let kill_grace_ms = millis(task.kill_grace);
        let args = self.args(task);
        let network = task.way_out.as_ref().and_then(|way| way.sandboxes);
        let plan = Plan {
            argv: task.argv.clone(),
            env: host::with_tools(task.env.clone(), &self.place.tools),
            files: task.files.clone(),
            proxy_port: network.map(|network| network.proxy_port),
            door: None,
            processes_max: self.processes_max(task),
            linger_ms: kill_grace_ms,
        };
        let (program, run_as) = (self.program.clone(), self.place.run_as(task.slot));
        let ended_mark = Site::ended_mark(&task.directory);
        let inside = network.map(|network| network.process);
        let (limits, fence_at) = (task.limits, task.fence_at);
        let bounded = [names::WORKSPACE, names::HOME].map(|name| task.directory.join(name)).into();
        Orders { program, args, inside, run_as, ended_mark, plan, limits, group, bounded, fence_at, kill_grace_ms }
    }

    fn args(&self, task: &Task) -> Vec<String> {
        let mut args = Args::default();
        args.all(&[
            "--unshare-user",
            "--unshare-ipc",
            "--unshare-pid",
            "--unshare-uts",
            "--unshare-cgroup-try",
            "--die-with-parent",
            "--new-session",
        ]);
        args.all(if task.way_out.as_ref().and_then(|way| way.sandboxes).is_none() { &["--unshare-net"] } else { &[] });
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
        args.extend(host::tools(&self.place.tools));
        args.all(&["--dir", INSIDE]);
        args.bind("--bind", &task.directory.join(names::WORKSPACE), "/workspace");
        args.bind("--bind", &task.directory.join(names::HOME), "/home/build");
        args.bind("--ro-bind", &self.place.installed(), &format!("{INSIDE}/init"));
        let certificates = task.directory.join(names::CERTIFICATES);
        if has(&certificates) {
            args.bind("--ro-bind", &certificates, &format!("{INSIDE}/{}", names::CERTIFICATES));
        }
        args.all(&["--remount-ro", "/dev", "--remount-ro", "/", "--chdir", "/workspace"]);
        args.0
    }
}

/// The build, as its directory is called.
fn build_of(task: &Task) -> String {
    task.directory.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default()
}

/// A guard ends its group; one that was killed could not.
async fn all_ended(ended: BoxFuture<'static, Ended>, group: Option<Group>) -> Ended {
    let mut unended = Unended(group);
    let ended = ended.await;
    if let Some(group) = unended.0.take() {
        spawn_blocking(move || end(&group)).await.ok();
    }
    ended
}

/// The group of a task whose end nobody may wait for any more: it ends all the same.
struct Unended(Option<Group>);

impl Drop for Unended {
    fn drop(&mut self) {
        if let Some(group) = self.0.take() {
            std::thread::spawn(move || end(&group));
        }
    }
}

fn end(group: &Group) {
    if let Err(error) = group.end() {
        error!(%error, "a sandbox is left");
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

    fn guarantees(&self) -> Trying<'_> {
        self.given().boxed()
    }

    fn holds_previews(&self, image: &str) -> bool {
        self.takes(image).is_ok()
    }

    fn service(&self, task: Task, _of: ServiceOf) -> BoxFuture<'_, Result<Service, StartError>> {
        async move {
            self.takes(&task.image)?;
            let group = self.group(&format!("{}.preview", build_of(&task)));
            let errand = Errand::Sandbox(Box::new(self.orders(&task, group)));
            Ok(Service { errand, door: task.directory.join(names::DOOR), network: ServiceNetwork::Process })
        }
        .boxed()
    }

    fn start(&self, task: Task) -> BoxFuture<'_, Result<Running, StartError>> {
        async move {
            self.takes(&task.image)?;
            let build = build_of(&task);
            let group = self.group(&self.numbered(&build));
            let orders = Errand::Sandbox(Box::new(self.orders(&task, group.clone())));
            let started = client::start(&self.place.installed(), &build, &orders).await;
            let Running { stdout, stderr, control, ended } =
                started.map_err(|error| StartError::Trouble(format!("the guard could not be started: {error}")))?;
            Ok(Running { stdout, stderr, control, ended: all_ended(ended, group).boxed() })
        }
        .boxed()
    }
}
