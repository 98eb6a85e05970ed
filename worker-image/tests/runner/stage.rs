//! A task without ECS: a runner, and a room for each number, in directories of this host; gone when the test is.

use crate::board::{Board, TOKEN};
use crate::forge::Forge;
use crate::shims::shim;
use nix::sys::signal::{Signal, kill, killpg};
use nix::unistd::Pid;
use protocol::runner::{Report, RunnerJob};
use std::fs::{self, File};
use std::os::unix::process::CommandExt as _;
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus};
use std::time::{Duration, Instant};
use tempfile::TempDir;

const WORKER: &str = env!("CARGO_BIN_EXE_callboard-worker");

pub(crate) struct Stage {
    pub(crate) board: Board,
    pub(crate) runner: Child,
    pub(crate) rooms: Vec<Child>,
    pub(crate) directory: TempDir,
    /// What makes a room, if it is not this host as it is.
    within: Vec<String>,
    shim: PathBuf,
}

impl Stage {
    /// A runner for `job` that waits for so many rooms of steps, with these variables over the usual ones.
    pub(crate) async fn of(job: RunnerJob, forge: &Forge, rooms: usize, variables: &[(&str, &str)]) -> Self {
        Self::on(Board::start(job).await, forge, rooms, variables)
    }

    /// The same, on a board that was told what to do.
    pub(crate) fn on(board: Board, forge: &Forge, rooms: usize, variables: &[(&str, &str)]) -> Self {
        // It is built first: the runner's time counts.
        let (shim, directory) = (shim(), tempfile::tempdir().unwrap());
        let path = |name: &str| directory.path().join(name);
        fs::create_dir(path("workspace")).unwrap();
        let mut runner = Command::new(WORKER);
        runner.arg("runner").env_clear().stderr(File::create(path("runner.log")).unwrap());
        runner.env("CALLBOARD_URL", &board.url).env("CALLBOARD_BUILD", board.build().to_string());
        runner.env("CALLBOARD_LOG_TOKEN", TOKEN).env("CALLBOARD_ROOMS", rooms.to_string());
        runner.env("CALLBOARD_CA_PEM", fs::read_to_string(forge.ca()).unwrap());
        runner.env("CALLBOARD_RUNNER_SOCKET", path("socket")).env("CALLBOARD_RUNNER_DIRECTORY", path("own"));
        runner.env("CALLBOARD_RUNNER_WORKSPACE", path("workspace")).env("CALLBOARD_RUNNER_INSIDE", path("inside"));
        let usual = [
            ("CALLBOARD_LEASE_TTL_MS", "60000"),
            ("CALLBOARD_LEASE_GRACE_MS", "120000"),
            ("CALLBOARD_HEARTBEAT_EVERY_MS", "200"),
            ("CALLBOARD_KILL_GRACE_MS", "2000"),
            ("CALLBOARD_FENCE_MARGIN_MS", "200"),
        ];
        runner.envs(usual).envs(variables.iter().copied());
        let runner = runner.spawn().unwrap();
        Self { board, runner, rooms: Vec::new(), directory, within: Vec::new(), shim }
    }

    /// The same with all its rooms.
    pub(crate) async fn set(job: RunnerJob, forge: &Forge) -> Self {
        Self::set_with(job, forge, &[]).await
    }

    pub(crate) async fn set_with(job: RunnerJob, forge: &Forge, variables: &[(&str, &str)]) -> Self {
        let rooms = job.steps.len() + job.on_cancel.len();
        let mut stage = Self::of(job, forge, rooms, variables).await;
        (0..=rooms).for_each(|number| stage.room(number));
        stage
    }

    /// Rooms are made by this program from now on.
    pub(crate) fn within(&mut self, program: &[&str]) {
        self.within = program.iter().map(|word| (*word).to_owned()).collect();
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// One more room.
    pub(crate) fn room(&mut self, number: usize) {
        let words: Vec<String> =
            [self.shim.display().to_string(), number.to_string(), self.path("socket").display().to_string()].into();
        let line: Vec<String> = self.within.iter().cloned().chain(words).collect();
        let log = File::create(self.path(&format!("room-{number}.log"))).unwrap();
        let room = Command::new(&line[0]).args(&line[1..]).process_group(0).stderr(log).spawn().unwrap();
        self.rooms.push(room);
    }

    pub(crate) fn signal(&self, signal: Signal) {
        kill(pid(&self.runner), signal).unwrap();
    }

    /// Its exit code, once it has ended.
    pub(crate) fn code(&mut self) -> Option<i32> {
        eventually("the runner's end", || self.runner.try_wait().unwrap()).code()
    }

    /// The exit codes of all rooms, once they have ended.
    pub(crate) fn codes(&mut self) -> Vec<Option<i32>> {
        let end = |room: &mut Child| -> ExitStatus { eventually("a room's end", || room.try_wait().unwrap()) };
        self.rooms.iter_mut().map(|room| end(room).code()).collect()
    }

    /// The only report, once the runner has ended well.
    pub(crate) fn report(&mut self) -> Report {
        assert_eq!(self.code(), Some(0), "{}", self.board.log());
        let reports = std::mem::take(&mut self.board.heard().reports);
        assert_eq!(reports.len(), 1);
        reports.into_iter().next().unwrap()
    }

    pub(crate) fn said(&self) -> String {
        fs::read_to_string(self.path("runner.log")).unwrap()
    }
}

impl Drop for Stage {
    fn drop(&mut self) {
        if std::thread::panicking() {
            println!("the runner said:\n{}", self.said());
        }
        self.runner.kill().ok();
        self.runner.wait().ok();
        for room in &mut self.rooms {
            killpg(pid(room), Signal::SIGKILL).ok();
            room.wait().ok();
        }
    }
}

pub(crate) fn pid(process: &Child) -> Pid {
    Pid::from_raw(i32::try_from(process.id()).unwrap())
}

pub(crate) fn eventually<T>(what: &str, mut found: impl FnMut() -> Option<T>) -> T {
    let begun = Instant::now();
    while begun.elapsed() < Duration::from_secs(60) {
        if let Some(it) = found() {
            return it;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    panic!("{what} did not come");
}
