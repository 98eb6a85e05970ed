//! Where a worker does not work, and what it says then.

use crate::board::{job, step};
use crate::fleet::{BINARY, NOBODY, can_seal, command, command_with, is_root};
use crate::{Board, Forge, set_up};
use std::fs::{Permissions, set_permissions};
use std::os::unix::fs::{PermissionsExt as _, chown};
use std::os::unix::process::CommandExt as _;
use std::process::{Command, Output};

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_builds_root_that_builds_can_not_reach_is_refused_with_the_fix() {
    if !is_root() {
        return;
    }
    let (board, forge, closed) = (Board::start().await, Forge::start().await, tempfile::tempdir().unwrap());
    set_permissions(closed.path(), Permissions::from_mode(0o700)).unwrap();
    let output = command(&board, &forge, &closed.path().join("builds"), "run").output().unwrap();
    assert_eq!(output.status.code(), Some(73));
    assert!(said(&output).contains(&format!("chmod o+x {}", closed.path().display())), "{}", said(&output));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_token_that_the_board_does_not_know_ends_the_worker() {
    if !can_seal() {
        return;
    }
    let (board, forge, root) = (Board::start().await, Forge::start().await, tempfile::tempdir().unwrap());
    set_permissions(root.path(), Permissions::from_mode(0o755)).unwrap();
    let mut command = command(&board, &forge, root.path(), "run");
    let output = command.env("CALLBOARD_WORKER_TOKEN", "an-unknown-one").output().unwrap();
    assert_eq!(output.status.code(), Some(77));
    assert!(said(&output).contains("does not know this worker's token") && !said(&output).contains("an-unknown-one"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_worker_without_a_token_says_where_to_put_one() {
    let (board, forge, root) = (Board::start().await, Forge::start().await, tempfile::tempdir().unwrap());
    let mut command = command(&board, &forge, root.path(), "run");
    let output = command.env_remove("CALLBOARD_WORKER_TOKEN").output().unwrap();
    assert_eq!(output.status.code(), Some(78));
    assert!(said(&output).contains("CALLBOARD_WORKER_TOKEN"), "{}", said(&output));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_worker_with_too_few_descriptors_for_its_slots_says_so() {
    let (board, forge, root) = (Board::start().await, Forge::start().await, tempfile::tempdir().unwrap());
    let mut run = command_with(127, &board, &forge, root.path(), "run");
    let output = run.args(["--slots", "2"]).output().unwrap();
    assert_eq!(output.status.code(), Some(71));
    assert!(said(&output).contains("2 slots take up to 128 descriptors, and the limit is 127"), "{}", said(&output));
    let mut doctor = Command::new("/bin/sh");
    doctor.args(["-c", "ulimit -n 127; exec \"$0\" doctor --slots 2 --builds-root /tmp", BINARY]);
    let output = doctor.output().unwrap();
    assert_eq!(output.status.code(), Some(69));
    assert!(String::from_utf8_lossy(&output.stdout).contains("ulimit -Hn 128"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_host_that_can_not_hold_builds_to_their_limits_is_refused_until_that_is_accepted() {
    if !is_root() || !can_seal() {
        return;
    }
    let (board, forge, directory) = (Board::start().await, Forge::start().await, tempfile::tempdir().unwrap());
    chown(directory.path(), Some(1234), Some(1234)).unwrap();
    set_permissions(forge.directory.path(), Permissions::from_mode(0o755)).unwrap();
    let run = |accepted: &str| {
        let mut command = command(&board, &forge, &directory.path().join("builds"), "run");
        command.env("CALLBOARD_ACCEPT", accepted).uid(1234).gid(1234).output().unwrap()
    };
    let refused = run("processes,disk");
    assert_eq!(refused.status.code(), Some(69), "{}", said(&refused));
    for told in ["  memory: ", "  cpu: ", "fix: no group can be made in /sys/fs/cgroup", "--accept memory,cpu;"] {
        assert!(said(&refused).contains(told), "{told:?} in {}", said(&refused));
    }
    let unknown = run("memory,everything");
    assert!(said(&unknown).contains("must be one of capabilities, "), "{}", said(&unknown));
}

#[test]
fn the_doctor_speaks_json() {
    let output = Command::new(BINARY)
        .args(["doctor", "--json", "--builds-root", "/tmp"])
        .env("DOCKER_HOST", NOBODY)
        .output()
        .unwrap();
    let examined: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let of = |list: &serde_json::Value| list.as_array().unwrap().clone();
    for name in ["bubblewrap", "preview ports", "kept directories"] {
        assert!(of(&examined["host"]).iter().any(|finding| finding["name"] == name), "{name}");
    }
    let is_fit = of(&examined["host"]).iter().all(|finding| finding["ok"] == true || finding["needed"] == false)
        && of(&examined["isolation"])
            .iter()
            .any(|column| of(&column["given"]).iter().all(|given| given["held"] == true));
    assert_eq!(output.status.code(), Some(if is_fit { 0 } else { 69 }));
}

#[tokio::test(flavor = "multi_thread")]
async fn the_workers_own_log_is_json_where_that_is_asked_for() {
    let Some((board, forge, worker)) = set_up(&["--log-format", "json"]).await else { return };
    let build = board.offer(job(&forge.url(), vec![step("only", &["true"])]));
    board.report(build).await;
    worker.is_tidy();
    let lines: Vec<serde_json::Value> = worker.log().lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let told = |message: &str| {
        lines.iter().any(|line| line["fields"]["message"] == message && line["fields"]["build.id"] == build.to_string())
    };
    assert!(told("build claimed") && told("step started") && told("step ended") && told("build ended"));
}
