//! A room's shim as the first process of a PID namespace, which it is in a container.

use crate::board::{job, step};
use crate::forge::Forge;
use crate::skipped::skip;
use crate::stage::{Stage, pid};
use callboard_worker::proc;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use protocol::build::StepStatus;
use protocol::log::Stream;
use protocol::runner::{Outcome, RunnerJob};
use std::process::Command;

const CONTAINER: [&str; 9] =
    ["bwrap", "--dev-bind", "/", "/", "--unshare-pid", "--as-pid-1", "--die-with-parent", "--proc", "/proc"];

/// Rooms in namespaces of their own, where there can be any; if not, the calling test is skipped.
async fn set(job: RunnerJob, forge: &Forge) -> Option<Stage> {
    let tried = Command::new(CONTAINER[0]).args(&CONTAINER[1..]).arg("true").output();
    if !tried.is_ok_and(|tried| tried.status.success()) {
        skip("sandbox", "bubblewrap makes no PID namespace");
        return None;
    }
    let rooms = job.steps.len();
    let mut stage = Stage::of(job, forge, rooms, &[]).await;
    stage.within(&CONTAINER);
    (0..=rooms).for_each(|number| stage.room(number));
    Some(stage)
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_step_has_left_is_gone_before_the_next_begins() {
    let forge = Forge::start().await;
    let leaves = "exec 9>lock; flock 9; setsid sh -c \"trap '' TERM HUP; sleep 1000\" & echo left";
    let steps = vec![step("leaves", &[leaves]), step("finds", &["exec 9>lock; flock -n 9; echo nothing"])];
    let Some(mut stage) = set(job(&forge.url(), steps), &forge).await else { return };
    assert_eq!(stage.report().outcome, Outcome::Success, "{}", stage.board.log());
    assert_eq!(stage.board.log_of(Stream::Stdout), "left\nnothing\n");
}

#[tokio::test(flavor = "multi_thread")]
async fn all_processes_of_a_step_are_asked_to_end() {
    let forge = Forge::start().await;
    let child = "setsid sh -c \"trap 'echo last words; exit' TERM; echo running; while :; do sleep 0.1; done\" & wait";
    let Some(mut stage) = set(job(&forge.url(), vec![step("lasts", &[child])]), &forge).await else { return };
    stage.board.until_log("\nrunning\n").await;
    stage.signal(Signal::SIGTERM);
    let report = stage.report();
    assert_eq!((report.outcome, report.steps[0].status), (Outcome::Stopped, StepStatus::Failed));
    assert!(stage.board.log().contains("last words\n"), "{}", stage.board.log());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_step_can_not_look_into_what_started_it() {
    let forge = Forge::start().await;
    let look = ["cat /proc/1/environ 2>/dev/null || echo no", "ls /proc/1/fd 2>/dev/null || echo no"];
    let looks = [&look[..], &["test \"$(sed -n 's/^Seccomp:.//p' /proc/self/status)\" = 2"]].concat();
    let Some(mut stage) = set(job(&forge.url(), vec![step("looks", &looks)]), &forge).await else { return };
    let outcome = stage.report().outcome;
    // Root may look into what is another's, and so into that.
    let no = if nix::unistd::geteuid().is_root() { "" } else { "no\nno\n" };
    assert_eq!(outcome, Outcome::Success, "{}", stage.board.log());
    assert!(stage.board.log_of(Stream::Stdout).ends_with(no));
}

/// The first process of a room, as this host sees it.
fn first(stage: &Stage, room: usize) -> Pid {
    let processes = proc::all();
    let within = proc::descendants(&processes, &[pid(&stage.rooms[room]).as_raw()]);
    let is_shim =
        |process: &&proc::Process| process.args.first().is_some_and(|program| program.ends_with("callboard-shim"));
    let shims = processes.iter().filter(is_shim).find(|process| within.contains(&process.pid));
    Pid::from_raw(shims.unwrap().pid)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_room_that_is_asked_to_end_from_outside_tells_its_runner_and_from_inside_nobody_is_heard() {
    let forge = Forge::start().await;
    let asks = "trap 'echo last words; exit 7' TERM; kill -TERM 1; echo running; while :; do sleep 0.1; done";
    // ECS asks all rooms; it does not matter which one hears it first, nor whether anything runs there.
    for asked in [1, 2] {
        let steps = vec![step("asks", &[asks]), step("never", &["echo never"])];
        let Some(mut stage) = set(job(&forge.url(), steps), &forge).await else { return };
        stage.board.until_log("\nrunning\n").await;
        stage.board.until("a sign of life later", |heard| (heard.empty_batches > 3).then_some(())).await;
        kill(first(&stage, asked), Signal::SIGTERM).unwrap();
        let report = stage.report();
        assert_eq!((report.outcome, report.steps[0].exit_code), (Outcome::Stopped, Some(7)));
        assert!(stage.board.log().contains("last words\n"), "{}", stage.board.log());
    }
}
