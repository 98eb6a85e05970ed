//! A worker as a process of its own, with a builds root of its own; gone when the test is.

use crate::back_ends::BackEnd;
use crate::board::{Board, TOKEN};
use crate::forge::Forge;
use crate::skipped::skip;
use callboard_worker::proc;
use nix::mount::{MntFlags, MsFlags, mount, umount2};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use std::collections::BTreeSet;
use std::fs::{self, File, Permissions};
use std::os::unix::fs::{PermissionsExt as _, chown};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus};
use std::time::{Duration, Instant};
use tempfile::TempDir;

pub(crate) const BINARY: &str = env!("CARGO_BIN_EXE_callboard-worker");

/// What a plain user's worker can't give everywhere. Tests about these see for themselves.
pub(crate) const ACCEPTED: &str = "memory,processes,cpu";

/// Where no daemon is: this host's own has nothing to do with the tests.
pub(crate) const NOBODY: &str = "unix:///nowhere/docker.sock";

/// A build whose directory a plain user can't remove.
pub(crate) const STUCK: &str = "00000000-0000-7000-8000-000000000000";

pub(crate) struct Worker {
    pub(crate) process: Child,
    pub(crate) root: PathBuf,
    directory: TempDir,
    back_end: BackEnd,
    args: Vec<String>,
}

/// Whether a sandbox works here; if not, the calling test is skipped.
pub(crate) fn can_seal() -> bool {
    if std::env::var_os("CALLBOARD_TEST_SANDBOX").is_some() {
        return true;
    }
    let fit = Command::new(BINARY)
        .args(["doctor", "--isolation", "bubblewrap", "--builds-root", "/tmp", "--accept", ACCEPTED])
        .output()
        .unwrap();
    if !fit.status.success() {
        let found = String::from_utf8_lossy(&fit.stdout);
        let bad: Vec<&str> = found.lines().filter(|line| line.contains(" MISSING ")).collect();
        skip("sandbox", &bad.join("\n"));
    }
    fit.status.success()
}

/// Whether this is root; if not, the calling test is skipped.
pub(crate) fn is_root() -> bool {
    let is_root = nix::unistd::geteuid().is_root();
    if !is_root {
        skip("root", "only root can become somebody else");
    }
    is_root
}

impl Worker {
    /// That runs steps in bubblewrap alone.
    pub(crate) fn start(board: &Board, forge: &Forge, args: &[&str]) -> Self {
        Self::start_for(BackEnd::Bubblewrap, board, forge, args)
    }

    pub(crate) fn start_for(back_end: BackEnd, board: &Board, forge: &Forge, args: &[&str]) -> Self {
        let directory = tempfile::tempdir().unwrap();
        fs::set_permissions(directory.path(), Permissions::from_mode(0o755)).unwrap();
        Self::start_in(directory, board, forge, args, None, (back_end, back_end.args()))
    }

    /// That knows the daemon by another socket than the tests do.
    pub(crate) fn start_by(socket: &Path, board: &Board, forge: &Forge, args: &[&str]) -> Self {
        let directory = tempfile::tempdir().unwrap();
        fs::set_permissions(directory.path(), Permissions::from_mode(0o755)).unwrap();
        let back_end = BackEnd::Docker;
        Self::start_in(directory, board, forge, args, None, (back_end, back_end.args_by(Some(socket))))
    }

    /// On a file system of its own that holds so many MiB, where one can be mounted; if not, the calling test is skipped.
    pub(crate) fn start_on(mib: u32, board: &Board, forge: &Forge) -> Option<Self> {
        let directory = tempfile::tempdir().unwrap();
        fs::set_permissions(directory.path(), Permissions::from_mode(0o755)).unwrap();
        let root = directory.path().join("builds");
        fs::create_dir(&root).unwrap();
        let size = format!("size={mib}m,mode=755");
        if let Err(error) = mount(Some("tmpfs"), &root, Some("tmpfs"), MsFlags::empty(), Some(size.as_str())) {
            skip("mount", &format!("no file system of a test's own: {error}"));
            return None;
        }
        Some(Self::start_in(directory, board, forge, &[], None, (BackEnd::Bubblewrap, BackEnd::Bubblewrap.args())))
    }

    /// As somebody else; only root can do that. In the builds root is the directory of a build that is not theirs to remove.
    pub(crate) fn start_as(id: u32, board: &Board, forge: &Forge) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let root = directory.path().join("builds");
        fs::create_dir_all(root.join(STUCK).join("workspace")).unwrap();
        for theirs in [directory.path(), &root] {
            chown(theirs, Some(id), Some(id)).unwrap();
        }
        fs::set_permissions(forge.directory.path(), Permissions::from_mode(0o755)).unwrap();
        Self::start_in(directory, board, forge, &[], Some(id), (BackEnd::Bubblewrap, BackEnd::Bubblewrap.args()))
    }

    fn start_in(
        directory: TempDir,
        board: &Board,
        forge: &Forge,
        args: &[&str],
        id: Option<u32>,
        (back_end, its_args): (BackEnd, Vec<String>),
    ) -> Self {
        let root = directory.path().join("builds");
        let mut command = command(board, forge, &root, "run");
        command.args(&its_args).args(args).stderr(File::create(directory.path().join("worker.log")).unwrap());
        if let Some(id) = id {
            command.uid(id).gid(id);
        }
        Self { process: command.spawn().unwrap(), root, directory, back_end, args: its_args }
    }

    /// Another worker on the same builds root.
    pub(crate) fn again(mut self, board: &Board, forge: &Forge) -> Self {
        self.process = command(board, forge, &self.root, "run")
            .args(&self.args)
            .stderr(File::create(self.directory.path().join("worker-2.log")).unwrap())
            .spawn()
            .unwrap();
        self
    }

    /// A recovery of this builds root.
    pub(crate) fn recovery(&self, board: &Board, forge: &Forge) -> Command {
        let mut recover = command(board, forge, &self.root, "recover");
        recover.args(&self.args);
        recover
    }

    /// Ends it and its guards in one instant, so that none can see the others go.
    pub(crate) fn kill_with_guards(&mut self) {
        let root = self.root.to_string_lossy().into_owned();
        let is_guard = |process: &proc::Process| {
            let verb = process.args.get(1).is_some_and(|verb| verb == "guard");
            verb && process.args[0].starts_with(&root)
        };
        let guards: Vec<i32> = proc::all().into_iter().filter(is_guard).map(|guard| guard.pid).collect();
        assert!(!guards.is_empty(), "nothing runs");
        for signal in [Signal::SIGSTOP, Signal::SIGKILL] {
            guards.iter().for_each(|guard| proc::signal(*guard, signal));
            self.signal(signal);
        }
        self.process.wait().unwrap();
    }

    pub(crate) fn signal(&self, signal: Signal) {
        kill(self.pid(), signal).unwrap();
    }

    pub(crate) fn pid(&self) -> Pid {
        Pid::from_raw(i32::try_from(self.process.id()).unwrap())
    }

    /// Waits for its own end.
    pub(crate) fn end(&mut self) -> ExitStatus {
        eventually("the worker's end", || self.process.try_wait().unwrap())
    }

    /// What this worker said, and whoever was here before.
    pub(crate) fn log(&self) -> String {
        let logs = ["worker.log", "worker-2.log"].map(|name| fs::read_to_string(self.directory.path().join(name)));
        logs.into_iter().flatten().collect()
    }

    /// The guards, sandboxes and steps of this builds root.
    pub(crate) fn left(&self) -> Vec<i32> {
        self.with_containers(left(&self.root, &["run", "egress", "network"]))
    }

    /// The same, and the networks and their proxies: they end with the worker, not with a sandbox.
    pub(crate) fn all_left(&self) -> Vec<i32> {
        self.with_containers(left(&self.root, &["run"]))
    }

    /// Whether no process of a step is there: a container that has ended may still be.
    pub(crate) fn is_dead(&self) -> bool {
        self.left().iter().all(|pid| *pid == 0)
    }

    /// The same, and the processes of this builds root's containers; 0 stands for a container without any.
    fn with_containers(&self, mut left: Vec<i32>) -> Vec<i32> {
        left.extend(self.back_end.left(&self.root));
        left
    }

    /// The directories of builds.
    pub(crate) fn sites(&self) -> Vec<String> {
        let names = fs::read_dir(&self.root).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
        names.filter(|name| !name.starts_with('.')).collect()
    }

    /// The directories of this builds root's control groups, if it has any.
    pub(crate) fn groups(&self) -> Vec<PathBuf> {
        let lines = fs::read_to_string(self.root.join(".groups")).unwrap_or_default();
        lines.lines().map(PathBuf::from).filter(|group| group.exists()).collect()
    }

    /// The control groups of tasks.
    pub(crate) fn tasks(&self) -> Vec<PathBuf> {
        let entries = self.groups().into_iter().flat_map(|group| fs::read_dir(group).into_iter().flatten().flatten());
        entries.map(|entry| entry.path()).filter(|path| path.is_dir()).collect()
    }

    /// Nothing of any build is left, neither a process, nor a control group, nor a directory.
    pub(crate) fn is_tidy(&self) {
        self.is_tidy_but_for(&[]);
    }

    pub(crate) fn is_tidy_but_for(&self, sites: &[String]) {
        let is_tidy = || {
            self.all_left().is_empty()
                && self.tasks().is_empty()
                && self.sites().iter().all(|site| sites.contains(site))
        };
        let what = || {
            let (left, tasks, sites) = (self.all_left(), self.tasks(), self.sites());
            format!("a tidy builds root, without {left:?}, {tasks:?} and {sites:?},")
        };
        eventually_or(&what, || is_tidy().then_some(()));
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        if std::thread::panicking() {
            println!("the worker said:\n{}", self.log());
        }
        self.process.kill().ok();
        self.process.wait().ok();
        for pid in self.all_left() {
            proc::signal(pid, Signal::SIGKILL);
        }
        callboard_worker::isolation::cgroup::end_leftovers(&self.root, &BTreeSet::new()).ok();
        umount2(&self.root, MntFlags::MNT_DETACH).ok();
        self.back_end.clear(&self.root);
    }
}

fn left(root: &Path, but_for: &[&str]) -> Vec<i32> {
    let (processes, root) = (proc::all(), format!("{}/", root.display()));
    let ours = processes.iter().filter(|process| {
        let is_other = process.args.get(1).is_some_and(|arg| but_for.contains(&arg.as_str()));
        !is_other && process.args.iter().any(|arg| arg.starts_with(&root))
    });
    let mut left: Vec<i32> = ours.map(|process| process.pid).collect();
    left.extend(proc::descendants(&processes, &left));
    left
}

pub(crate) fn command(board: &Board, forge: &Forge, root: &Path, verb: &str) -> Command {
    command_with(1024, board, forge, root, verb)
}

/// A worker that may not have more than so many descriptors.
pub(crate) fn command_with(descriptors: u32, board: &Board, forge: &Forge, root: &Path, verb: &str) -> Command {
    // Whoever starts a worker may leave a descriptor open: 9 here, of a file that no step may see. And many hosts give a
    // process no more descriptors than this.
    let mut command = Command::new("/bin/sh");
    command.args(["-c", &format!("ulimit -n {descriptors}; exec 9</etc/passwd; exec \"$0\" \"$@\""), BINARY]);
    command.arg(verb).args(["--api-url", &board.url, "--name", "tester", "--builds-root"]).arg(root);
    command.args(["--egress-allow", &forge.address, "--ca-bundle"]).arg(forge.ca());
    command.args(["--kill-grace-ms", "300", "--fence-margin-ms", "200", "--free-mib-min", "1"]);
    command.env("CALLBOARD_WORKER_TOKEN", TOKEN).env("CALLBOARD_ACCEPT", ACCEPTED).env("DOCKER_HOST", NOBODY);
    command
}

/// A port of loopback that nobody has just now.
pub(crate) fn free_port() -> u16 {
    std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

pub(crate) fn eventually<T>(what: &str, found: impl FnMut() -> Option<T>) -> T {
    eventually_or(&|| what.to_owned(), found)
}

/// The same; what it is is asked once it did not come.
fn eventually_or<T>(what: &dyn Fn() -> String, mut found: impl FnMut() -> Option<T>) -> T {
    let begun = Instant::now();
    while begun.elapsed() < Duration::from_secs(30) {
        if let Some(it) = found() {
            return it;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    panic!("{} did not come", what());
}
