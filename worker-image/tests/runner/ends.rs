//! Stops, losses, silences: whatever happens, nothing runs on, and what can be told is.

use crate::board::{Board, job, step};
use crate::forge::Forge;
use crate::stage::{Stage, eventually, pid};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use protocol::build::StepStatus;
use protocol::runner::Outcome;
use protocol::{CancelReason, EndReason};

/// A fence that comes five and a half seconds after the last sign of life.
const QUICK: [(&str, &str); 3] =
    [("CALLBOARD_LEASE_TTL_MS", "2000"), ("CALLBOARD_LEASE_GRACE_MS", "4000"), ("CALLBOARD_KILL_GRACE_MS", "300")];

/// Says its process, and goes on until it is asked to end.
const LASTS: &str = "trap 'echo last words; exit 7' TERM; echo \"at $$\"; while :; do sleep 0.1; done";

/// The process that a step said it is.
fn process(stage: &Stage) -> Pid {
    let log = stage.board.log();
    let number = log.split("\nat ").nth(1).unwrap().lines().next().unwrap().parse().unwrap();
    Pid::from_raw(number)
}

fn is_gone(process: Pid) {
    eventually("the step's end", || kill(process, None).is_err().then_some(()));
}

async fn lasting(variables: &[(&str, &str)]) -> (Stage, Pid) {
    let forge = Forge::start().await;
    let stage = Stage::set_with(job(&forge.url(), vec![step("lasts", &[LASTS])]), &forge, variables).await;
    stage.board.until_log("\nat ").await;
    let process = process(&stage);
    (stage, process)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stopped_runner_has_its_step_end_and_keeps_the_last_lines() {
    let (mut stage, process) = lasting(&[]).await;
    stage.signal(Signal::SIGTERM);
    let report = stage.report();
    assert_eq!((report.outcome, report.end_reason), (Outcome::Stopped, Some(EndReason::WorkerShutdown)));
    assert_eq!((report.steps[0].status, report.steps[0].exit_code), (StepStatus::Failed, Some(7)));
    assert!(stage.board.log().contains("last words\n") && !report.logs_lost, "{}", stage.board.log());
    is_gone(process);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_step_that_does_not_heed_is_ended_after_the_grace() {
    let forge = Forge::start().await;
    let deaf = "trap '' TERM; echo \"at $$\"; while :; do sleep 0.1; done";
    let job = job(&forge.url(), vec![step("deaf", &[deaf])]);
    let mut stage = Stage::set_with(job, &forge, &[("CALLBOARD_KILL_GRACE_MS", "300")]).await;
    stage.board.until_log("\nat ").await;
    stage.signal(Signal::SIGTERM);
    let report = stage.report();
    assert_eq!((report.outcome, report.steps[0].exit_code), (Outcome::Stopped, Some(137)));
    is_gone(process(&stage));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_build_ends_at_its_deadline_whatever_becomes_of_its_worker() {
    let forge = Forge::start().await;
    let mut job = job(&forge.url(), vec![step("lasts", &[LASTS])]);
    job.deadline_in_ms = 8000;
    let mut stage = Stage::set(job, &forge).await;
    let report = stage.report();
    assert_eq!((report.outcome, report.end_reason), (Outcome::Failed, Some(EndReason::Deadline)));
    assert_eq!(report.steps[0].status, StepStatus::TimedOut, "{}", stage.board.log());
    is_gone(process(&stage));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_runner_that_is_stopped_before_its_rooms_are_there_says_so() {
    let forge = Forge::start().await;
    let mut stage = Stage::of(job(&forge.url(), vec![step("never", &["echo never"])]), &forge, 1, &[]).await;
    stage.room(0);
    stage.board.until("a sign of life", |heard| (heard.empty_batches > 0).then_some(())).await;
    stage.signal(Signal::SIGTERM);
    let report = stage.report();
    assert_eq!((report.outcome, report.end_reason), (Outcome::Stopped, Some(EndReason::WorkerShutdown)));
    assert_eq!((report.commit, report.steps[0].status), (None, StepStatus::Skipped));
    assert_eq!(stage.codes(), [Some(125)]);
}

#[tokio::test(flavor = "multi_thread")]
async fn rooms_that_do_not_come_end_the_build_after_a_while() {
    let forge = Forge::start().await;
    let within = [("CALLBOARD_RUNNER_ROOMS_WITHIN_MS", "500")];
    let mut stage = Stage::of(job(&forge.url(), vec![step("never", &["echo never"])]), &forge, 1, &within).await;
    let report = stage.report();
    assert_eq!((report.outcome, report.end_reason), (Outcome::Failed, Some(EndReason::NeverStarted)));
    assert!(stage.board.log().contains("not all containers were there"), "{}", stage.board.log());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cancelled_build_is_told_so_by_its_log_and_tidies_up() {
    let forge = Forge::start().await;
    let mut job = job(&forge.url(), vec![step("lasts", &[LASTS]), step("never", &["echo never"])]);
    job.on_cancel = vec![step("tidy", &["cat hello.txt"])];
    // No batch but those with something in them, until one is asked for.
    let mut stage = Stage::set_with(job, &forge, &[("CALLBOARD_HEARTBEAT_EVERY_MS", "60000")]).await;
    stage.board.until_log("\nat ").await;
    stage.board.heard().cancel = Some(CancelReason::Superseded);
    stage.signal(Signal::SIGTERM);
    let report = stage.report();
    assert_eq!((report.outcome, report.end_reason), (Outcome::Stopped, Some(EndReason::Superseded)));
    assert!(report.tidied_ms.is_some() && stage.board.log().contains("hello from the repository\n"));
    assert_eq!(stage.codes(), [Some(0), Some(7), Some(0), Some(0)]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_room_that_dies_ends_the_build() {
    let (mut stage, process) = lasting(&[]).await;
    kill(pid(&stage.rooms[1]), Signal::SIGKILL).unwrap();
    // Of a container the kernel ends all with its first process.
    kill(process, Signal::SIGKILL).unwrap();
    let report = stage.report();
    assert_eq!((report.outcome, report.end_reason), (Outcome::Failed, Some(EndReason::Internal)));
    assert_eq!(report.error_message.as_deref(), Some("the step's container was lost"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_runner_that_dies_takes_all_rooms_with_it() {
    let (mut stage, process) = lasting(&[]).await;
    stage.signal(Signal::SIGKILL);
    assert_eq!(stage.codes(), [Some(0), Some(125)]);
    is_gone(process);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_runner_that_is_stopped_by_whomever_does_not_keep_its_step_going() {
    let (mut stage, process) = lasting(&QUICK).await;
    stage.signal(Signal::SIGSTOP);
    is_gone(process);
    assert_eq!(stage.codes(), [Some(0), Some(125)]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_board_that_is_silent_past_the_fence_ends_everything_from_within() {
    let (mut stage, process) = lasting(&QUICK).await;
    stage.board.heard().away = true;
    assert_eq!(stage.code(), Some(75));
    is_gone(process);
    assert!(stage.board.heard().reports.is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_build_that_has_ended_without_the_runner_is_dropped() {
    let (mut stage, process) = lasting(&[]).await;
    stage.board.heard().ended = true;
    assert_eq!(stage.code(), Some(75));
    is_gone(process);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_step_that_writes_nothing_is_kept_by_empty_batches() {
    let forge = Forge::start().await;
    let steps = vec![step("waits", &["until [ -e go ]; do sleep 0.1; done"])];
    // Without them its fence would come.
    let mut stage = Stage::set_with(job(&forge.url(), steps), &forge, &QUICK).await;
    stage.board.until_log("Step 1/1").await;
    stage
        .board
        .until("empty batches for longer than the lease", |heard| (heard.empty_batches > 40).then_some(()))
        .await;
    std::fs::write(stage.path("workspace/go"), "").unwrap();
    assert_eq!(stage.report().outcome, Outcome::Success, "{}", stage.board.log());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_job_whose_answer_is_lost_is_fetched_again_by_the_same_number() {
    let forge = Forge::start().await;
    let board = Board::start(job(&forge.url(), vec![step("one", &["true"])])).await;
    board.heard().answers_lost = 2;
    let mut stage = Stage::on(board, &forge, 1, &[]);
    (0..=1).for_each(|number| stage.room(number));
    assert_eq!(stage.report().outcome, Outcome::Success);
    let fetches = stage.board.heard().fetches.clone();
    assert_eq!(fetches.len(), 3);
    assert!(fetches.iter().all(|id| *id == fetches[0]), "{fetches:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_report_whose_answer_is_lost_is_said_again_as_it_was() {
    let forge = Forge::start().await;
    let mut stage =
        Stage::set(job(&forge.url(), vec![step("one", &["until [ -e go ]; do sleep 0.1; done"])]), &forge).await;
    stage.board.until_log("Step 1/1").await;
    stage.board.heard().answers_lost = 2;
    std::fs::write(stage.path("workspace/go"), "").unwrap();
    assert_eq!(stage.code(), Some(0));
    let reports = stage.board.heard().reports.clone();
    assert_eq!(reports.len(), 3);
    assert!(reports.iter().all(|report| *report == reports[0]));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_job_that_another_has_is_not_run() {
    let forge = Forge::start().await;
    let board = Board::start(job(&forge.url(), vec![step("one", &["true"])])).await;
    board.heard().taken = true;
    let mut stage = Stage::on(board, &forge, 1, &[]);
    assert_eq!(stage.code(), Some(69), "{}", stage.said());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_runner_that_is_told_too_little_says_so() {
    let forge = Forge::start().await;
    let mut stage =
        Stage::of(job(&forge.url(), vec![step("one", &["true"])]), &forge, 1, &[("CALLBOARD_ROOMS", "")]).await;
    assert_eq!(stage.code(), Some(64));
    assert!(stage.said().contains("CALLBOARD_ROOMS is not set"));
}
