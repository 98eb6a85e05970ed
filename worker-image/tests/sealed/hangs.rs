//! What becomes of a step when the daemon of its container hangs: it must not outlive its build.

use crate::between::Between;
use crate::board::{job, step};
use crate::fleet::{Worker, eventually};
use crate::{BackEnd, Board, Forge};
use protocol::{CancelReason, EndReason, Status};
use std::time::{Duration, Instant};

/// Of a step.
const STUBBORN: &str = "trap '' TERM; echo running; while :; do sleep 0.2; done";
/// A twentieth of the rule's numbers: lease 60 s, grace 120 s.
const LEASE: Duration = Duration::from_millis(3000);
const GRACE: Duration = Duration::from_millis(6000);

async fn set_up() -> Option<(Board, Forge, Between, Worker)> {
    if !BackEnd::Docker.is_here() {
        return None;
    }
    let (board, forge) = (Board::start_for(BackEnd::Docker.image()).await, Forge::start().await);
    let between = Between::start();
    let worker = Worker::start_by(&between.socket(), &board, &forge, &["--fence-margin-ms", "1500"]);
    Some((board, forge, between, worker))
}

/// The processes of the containers, as the daemon itself knows them.
fn processes(worker: &Worker) -> Vec<i32> {
    BackEnd::Docker.left(&worker.root).into_iter().filter(|pid| *pid > 0).collect()
}

/// A build whose step runs, and the instant since when neither its daemon nor its board answers.
async fn cut_off(board: &Board, forge: &Forge, between: &Between) -> (uuid::Uuid, Instant) {
    let mut short = job(&forge.url(), vec![step("long", &[STUBBORN])]);
    short.lease_ttl_ms = u64::try_from(LEASE.as_millis()).unwrap();
    short.lease_grace_ms = u64::try_from(GRACE.as_millis()).unwrap();
    let build = board.offer(short);
    board.until_log("running\n").await;
    between.hangs(true);
    board.heard().away = true;
    (build, Instant::now())
}

fn are_dead_in_time(worker: &Worker, cut_off_at: Instant) {
    eventually("the end of all processes", || processes(worker).is_empty().then_some(()));
    let late = cut_off_at.elapsed().saturating_sub(LEASE + GRACE);
    assert!(late.is_zero(), "{late:?} later than the reaper");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_step_whose_daemon_hangs_is_dead_before_the_reaper_may_say_so() {
    let Some((board, forge, between, worker)) = set_up().await else { return };
    let (build, cut_off_at) = cut_off(&board, &forge, &between).await;
    are_dead_in_time(&worker, cut_off_at);
    between.hangs(false);
    board.heard().away = false;
    let report = board.report(build).await;
    assert_eq!((report.status, report.end_reason), (Status::Failed, Some(EndReason::Internal)), "{report:?}");
    assert!(report.error_message.unwrap().contains("lease could not be renewed"));
    worker.is_tidy();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_step_that_only_a_hanging_daemon_is_left_of_ends_by_itself_in_time() {
    let Some((board, forge, between, mut worker)) = set_up().await else { return };
    let (build, cut_off_at) = cut_off(&board, &forge, &between).await;
    worker.kill_with_guards();
    tokio::time::sleep(Duration::from_millis(500)).await;
    assert!(!processes(&worker).is_empty(), "nobody has told the daemon");
    are_dead_in_time(&worker, cut_off_at);
    between.hangs(false);
    board.heard().away = false;
    let worker = worker.again(&board, &forge);
    assert_eq!(board.report(build).await.end_reason, Some(EndReason::Recovery));
    worker.is_tidy();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cancel_ends_a_step_whose_daemon_hangs() {
    let Some((board, forge, between, worker)) = set_up().await else { return };
    let build = board.offer(job(&forge.url(), vec![step("long", &[STUBBORN])]));
    board.until_log("running\n").await;
    between.hangs(true);
    board.heard().cancel = Some(CancelReason::User);
    let report = board.report(build).await;
    assert_eq!((report.status, report.end_reason), (Status::Cancelled, Some(EndReason::User)), "{report:?}");
    assert!(processes(&worker).is_empty(), "what is reported has ended");
    between.hangs(false);
    worker.is_tidy();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cancel_ends_a_build_whose_container_the_daemon_does_not_make() {
    let Some((board, forge, between, worker)) = set_up().await else { return };
    board.until("a first claim", |heard| (!heard.claims.is_empty()).then_some(())).await;
    let build = board.offer(job(&forge.url(), vec![step("first", &["echo first; sleep 2"]), step("never", &["true"])]));
    board.until_log("first\n").await;
    between.hangs(true);
    tokio::time::sleep(Duration::from_secs(3)).await;
    board.heard().cancel = Some(CancelReason::User);
    let report = board.report(build).await;
    assert_eq!((report.status, report.end_reason), (Status::Cancelled, Some(EndReason::User)), "{report:?}");
    assert!(processes(&worker).is_empty(), "what is reported has ended");
    // Whoever had asked for the container is gone by the time that the daemon makes it.
    eventually("a try to remove it", || worker.log().contains("it is tried again").then_some(()));
    between.hangs(false);
    worker.is_tidy();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_container_that_has_done_its_worst_before_its_daemon_says_that_it_runs_has_run() {
    if !BackEnd::Docker.is_here() {
        return;
    }
    let (board, forge) = (Board::start_for(BackEnd::Docker.image()).await, Forge::start().await);
    let between = Between::start();
    between.says_late(true);
    // The trials at its start fill a disk faster than that.
    let worker = Worker::start_by(&between.socket(), &board, &forge, &[]);
    let report = board.report(board.offer(job(&forge.url(), vec![step("one", &["true"])]))).await;
    assert_eq!(report.status, Status::Success, "{}", board.log());
    worker.is_tidy();
}
