//! `callboard up` as a process: how it ends, whoever ends it, and whom it runs for.

use nix::sys::signal::{Signal, kill};
use nix::unistd::{Pid, Uid, User};
use std::fs;
use std::io::{BufRead as _, BufReader, Read as _};
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// A user that no system has.
const NOBODYS: u32 = 54_321;
/// How long a server may take to end, and what is asked to end it before that.
const ENDS: Duration = Duration::from_secs(60);

/// A directory that other users can come to.
pub(crate) fn directory(mode: u32) -> TempDir {
    let dir = tempfile::Builder::new().prefix("callboard-test.").tempdir().expect("a directory");
    fs::set_permissions(dir.path(), fs::Permissions::from_mode(mode)).expect("open to others");
    dir
}

pub(crate) fn up(program: &Path, dir: &Path) -> Command {
    let mut command = Command::new(program);
    command.args(["up", "--no-worker", "--port", "0", "--dir"]).arg(dir).current_dir("/");
    command.env_remove("DATABASE_URL").env("HOME", "/nonexistent").stdin(Stdio::null()).stdout(Stdio::piped());
    command
}

pub(crate) fn callboard() -> &'static Path {
    Path::new(env!("CARGO_BIN_EXE_callboard"))
}

/// Starts it, and waits until it says that it is up.
pub(crate) fn started(mut command: Command) -> (Child, BufReader<ChildStdout>) {
    let mut child = command.spawn().expect("it runs");
    let mut said = BufReader::new(child.stdout.take().expect("its output"));
    let mut line = String::new();
    while !line.contains("Ctrl-C") {
        line.clear();
        assert!(said.read_line(&mut line).expect("text") > 0, "it ended before it was up");
    }
    (child, said)
}

pub(crate) fn signal(child: &Child, signal: Signal) {
    kill(Pid::from_raw(i32::try_from(child.id()).expect("a pid")), signal).expect("signalled");
}

#[test]
fn one_that_is_killed_takes_its_postgres_along_and_its_data_stay() {
    let root = directory(0o711);
    let dir = root.path().join("board");
    let (mut child, _said) = started(up(callboard(), &dir));
    assert!(!localstack::leftovers::processes(&dir.join("postgres")).is_empty(), "its Postgres runs");
    signal(&child, Signal::SIGKILL);
    child.wait().expect("ended");
    let begun = Instant::now();
    while !localstack::leftovers::processes(&dir).is_empty() {
        assert!(begun.elapsed() < ENDS, "its Postgres outlived it");
        std::thread::sleep(Duration::from_millis(50));
    }
    let log = fs::read_to_string(dir.join("postgres.log")).expect("its log");
    assert!(log.contains("database system is shut down"), "it was ended, not killed: {log}");
    let tokens = fs::read_to_string(dir.join("callboard.env")).expect("its tokens");
    let token = tokens.lines().find(|line| line.starts_with("CALLBOARD_API_TOKEN=")).expect("a token");
    let (mut child, mut said) = started(up(callboard(), &dir));
    assert!(fs::read_to_string(dir.join("callboard.env")).expect("there").contains(token), "the board knows it still");
    signal(&child, Signal::SIGTERM);
    let mut rest = String::new();
    said.read_to_string(&mut rest).expect("text");
    assert_eq!(child.wait().expect("ended").code(), Some(0));
    assert!(rest.contains(&format!("Stopping on SIGTERM; the data stay in {}.", dir.display())), "{rest}");
    assert_eq!(localstack::leftovers::processes(&dir), Vec::<u32>::new());
}

/// The program where the user can read it.
fn copied(to: &Path) -> std::path::PathBuf {
    let program = to.join("callboard");
    fs::copy(callboard(), &program).expect("copied");
    fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).expect("set");
    program
}

/// `up` as a user without an entry in the user database.
fn up_as_nobodys(root: &Path) -> Command {
    let mut command = up(&copied(root), &root.join("theirs/board"));
    fs::create_dir(root.join("theirs")).expect("made");
    std::os::unix::fs::chown(root.join("theirs"), Some(NOBODYS), Some(NOBODYS)).expect("given");
    command.uid(NOBODYS).gid(NOBODYS);
    command
}

fn can_be_anybody() -> bool {
    let is_free = User::from_uid(Uid::from_raw(NOBODYS)).is_ok_and(|user| user.is_none());
    let can = Uid::effective().is_root() && is_free;
    if !can {
        crate::skipped::skip("root", "only root can run a board as a user that the system does not know");
    }
    can
}

#[test]
fn a_user_that_the_system_does_not_know_runs_a_board() {
    if !can_be_anybody() {
        return;
    }
    let mut sandbox = Command::new("bwrap");
    sandbox.args(["--bind", "/", "/", "true"]).uid(NOBODYS).gid(NOBODYS);
    if !sandbox.output().is_ok_and(|ended| ended.status.success()) {
        return crate::skipped::skip("sandbox", "initdb sees a user that the system does not know in a sandbox alone");
    }
    let root = directory(0o711);
    let (mut child, mut said) = started(up_as_nobodys(root.path()));
    signal(&child, Signal::SIGINT);
    let mut rest = String::new();
    said.read_to_string(&mut rest).expect("text");
    assert!(rest.contains("Stopping on SIGINT"), "{rest}");
    assert_eq!(child.wait().expect("ended").code(), Some(0));
    assert!(!root.path().join("theirs/board/postgres.passwd").exists());
}

#[test]
fn where_that_cant_be_it_says_why_and_what_to_do_before_anything_is_made() {
    if !can_be_anybody() {
        return;
    }
    let root = directory(0o711);
    let mut command = up_as_nobodys(root.path());
    let ended = command.env("PATH", "/nonexistent").output().expect("it ends");
    let said = String::from_utf8_lossy(&ended.stderr);
    assert_eq!(ended.status.code(), Some(2), "{said}");
    for words in ["uid 54321", "/etc/passwd", "bubblewrap", "callboard:x:54321:54321::/:/bin/sh", "DATABASE_URL"] {
        assert!(said.contains(words), "{said}");
    }
    assert!(!root.path().join("theirs/board").exists());
}
