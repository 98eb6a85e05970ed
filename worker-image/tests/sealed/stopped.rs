//! A stop for every reason, at every moment, of steps that will not: the right status and reason, and nothing left.

use crate::board::{job, step};
use crate::fleet::{Worker, eventually};
use crate::{BackEnd, Board, Forge, set_up, set_up_in};
use nix::sys::signal::Signal;
use protocol::build::StepStatus;
use protocol::{CancelReason, EndReason, Status};
use std::time::{Duration, Instant};

in_both! {
    a_step_that_waits_for_a_fifo_is_ended,
    a_step_that_daemonized_twice_is_ended,
    a_step_that_forks_without_end_is_ended,
    a_silent_step_is_ended_by_a_cancel,
    a_cancel_between_steps_starts_no_other,
    a_cancel_ends_a_clone_from_a_host_that_hangs,
    a_cancel_that_comes_once_the_steps_have_ended_leaves_the_decision_to_the_board,
    a_cancel_beside_a_success_is_reported_as_one_of_them_once,
    a_deadline_that_came_first_is_no_cancel,
    a_step_that_writes_nothing_for_too_long_is_ended,
}

/// More than the last words (5 s) and the grace, less than the time that logs may hold a build.
const SOON: Duration = Duration::from_secs(15);

async fn stopped_by(back_end: BackEnd, cancel_at: &str, command: &str) {
    let Some((board, forge, worker)) = set_up_in(back_end, &[]).await else { return };
    let build = board.offer(job(&forge.url(), vec![step("long", &[command]), step("after", &["true"])]));
    board.until_log(cancel_at).await;
    board.heard().cancel = Some(CancelReason::User);
    let report = board.report(build).await;
    assert_eq!((report.status, report.end_reason), (Status::Cancelled, Some(EndReason::User)), "{}", board.log());
    assert_eq!([report.steps[0].status, report.steps[1].status], [StepStatus::Cancelled, StepStatus::Skipped]);
    worker.is_tidy();
}

async fn a_step_that_waits_for_a_fifo_is_ended(back_end: BackEnd) {
    stopped_by(back_end, "waiting\n", "mkfifo fifo; echo waiting; trap '' TERM; cat fifo").await;
}

async fn a_step_that_daemonized_twice_is_ended(back_end: BackEnd) {
    let daemon = "perl -e 'use POSIX; $SIG{TERM} = q(IGNORE); for (1..2) { exit if fork; setsid } sleep 100'";
    stopped_by(back_end, "gone\n", &format!("{daemon}; echo gone; while :; do sleep 1; done")).await;
}

async fn a_step_that_forks_without_end_is_ended(back_end: BackEnd) {
    stopped_by(
        back_end,
        "forking\n",
        "perl -e '$| = 1; print qq(forking\\n); while (1) { fork // select undef, undef, undef, 0.1 }'",
    )
    .await;
}

async fn a_silent_step_is_ended_by_a_cancel(back_end: BackEnd) {
    stopped_by(back_end, "hush\n", "echo hush; exec >/dev/null 2>&1; trap '' TERM; while :; do sleep 1; done").await;
}

async fn a_cancel_between_steps_starts_no_other(back_end: BackEnd) {
    let Some((board, forge, worker)) = set_up_in(back_end, &[]).await else { return };
    let steps = (1..=200).map(|number| step(&format!("s{number}"), &["true"])).collect();
    let build = board.offer(job(&forge.url(), steps));
    board.until_log("Step 3/200").await;
    board.heard().cancel = Some(CancelReason::Superseded);
    let report = board.report(build).await;
    assert_eq!((report.status, report.end_reason), (Status::Cancelled, Some(EndReason::Superseded)));
    assert_eq!(report.steps[199].status, StepStatus::Skipped);
    worker.is_tidy();
}

async fn a_cancel_ends_a_clone_from_a_host_that_hangs(back_end: BackEnd) {
    if !back_end.is_here() {
        return;
    }
    let (board, forge) = (Board::start_for(back_end.image()).await, Forge::start().await);
    let silent = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = silent.local_addr().unwrap().to_string();
    let worker = Worker::start_for(back_end, &board, &forge, &["--egress-allow", &address]);
    let build = board.offer(job(&format!("https://{address}/app.git"), vec![step("never", &["true"])]));
    let (_connection, _) = silent.accept().await.unwrap();
    board.heard().cancel = Some(CancelReason::User);
    let report = board.report(build).await;
    assert_eq!((report.status, report.end_reason), (Status::Cancelled, Some(EndReason::User)));
    assert_eq!(report.steps[0].status, StepStatus::Skipped);
    worker.is_tidy();
}

async fn a_cancel_that_comes_once_the_steps_have_ended_leaves_the_decision_to_the_board(back_end: BackEnd) {
    let Some((board, forge, worker)) = set_up_in(back_end, &[]).await else { return };
    let build = board.offer(job(&forge.url(), vec![step("quick", &["touch ran; sleep 0.5"])]));
    board.until_log("Step 1/1").await;
    board.heard().unanswered = Some(build);
    eventually("a first report", || worker.log().contains("end not reported yet").then_some(()));
    board.heard().cancel = Some(CancelReason::User);
    let beats = board.heard().heartbeats.len();
    board.until("heartbeats that tell of it", |heard| (heard.heartbeats.len() > beats + 2).then_some(())).await;
    board.heard().unanswered = None;
    assert_eq!(board.report(build).await.status, Status::Success, "what a worker has said it says again");
    worker.is_tidy();
    assert_eq!(board.heard().completed.len(), 1);
}

async fn a_cancel_beside_a_success_is_reported_as_one_of_them_once(back_end: BackEnd) {
    let Some((board, forge, worker)) = set_up_in(back_end, &["--slots", "1"]).await else { return };
    for wait_ms in [0, 1, 2, 3, 4, 5, 7, 10, 15, 20, 30, 40, 60] {
        board.heard().chunks.clear();
        let mut quick = job(&forge.url(), vec![step("quick", &["sleep 0.05"])]);
        quick.heartbeat_every_ms = 10;
        let build = board.offer(quick);
        board
            .until("the step", |heard| {
                heard.heartbeats.iter().any(|beat| beat.phase.as_deref() == Some("quick")).then_some(())
            })
            .await;
        tokio::time::sleep(Duration::from_millis(wait_ms)).await;
        board.heard().cancel = Some(CancelReason::User);
        let report = board.report(build).await;
        let is_one = matches!(
            (report.status, report.end_reason),
            (Status::Success, None) | (Status::Cancelled, Some(EndReason::User))
        );
        assert!(is_one, "{report:?}");
        worker.is_tidy();
        let mut heard = board.heard();
        assert_eq!(heard.completed.iter().filter(|(id, _)| *id == build).count(), 1);
        heard.cancel = None;
        heard.heartbeats.clear();
    }
}

async fn a_deadline_that_came_first_is_no_cancel(back_end: BackEnd) {
    let Some((board, forge, worker)) = set_up_in(back_end, &["--kill-grace-ms", "2000"]).await else { return };
    let stubborn = "trap 'echo asked to end' TERM; echo running; while :; do sleep 0.1; done";
    let build = board.offer(job(&forge.url(), vec![step("long", &[stubborn])]));
    board.until_log("running\n").await;
    board.heard().given.values_mut().for_each(|job| job.deadline_in_ms = 0);
    board.until_log("asked to end\n").await;
    board.heard().cancel = Some(CancelReason::User);
    let report = board.report(build).await;
    assert_eq!((report.status, report.end_reason), (Status::TimedOut, Some(EndReason::Deadline)));
    assert_eq!(report.steps[0].status, StepStatus::TimedOut);
    worker.is_tidy();
}

async fn a_step_that_writes_nothing_for_too_long_is_ended(back_end: BackEnd) {
    let Some((board, forge, worker)) = set_up_in(back_end, &["--silent-timeout", "2"]).await else { return };
    let talks = "for i in 1 2 3 4 5 6; do echo $i; sleep 0.5; done";
    let hush = "echo hush; trap '' TERM; while :; do sleep 1; done";
    let build = board.offer(job(&forge.url(), vec![step("talks", &[talks]), step("silent", &[hush])]));
    let report = board.report(build).await;
    assert_eq!((report.status, report.end_reason), (Status::Failed, Some(EndReason::SilentTimeout)), "{}", board.log());
    assert_eq!([report.steps[0].status, report.steps[1].status], [StepStatus::Success, StepStatus::TimedOut]);
    assert!(report.steps[1].duration_ms >= 2000, "{:?}", report.steps);
    let ages: Vec<u64> = board.heard().heartbeats.iter().filter_map(|beat| beat.last_output_age_ms).collect();
    assert!(ages.iter().any(|age| *age > 1000), "{ages:?}");
    worker.is_tidy();
}

/// A build whose steps have ended, and whose end nobody answers for.
async fn unreported(args: &[&str]) -> Option<(Board, Forge, Worker, uuid::Uuid)> {
    let (board, forge, worker) = set_up(args).await?;
    let build = board.offer(job(&forge.url(), vec![step("only", &["echo running; sleep 1"])]));
    board.until_log("running\n").await;
    board.heard().away = true;
    eventually("the end of the step", || worker.left().is_empty().then_some(()));
    Some((board, forge, worker, build))
}

async fn is_reported_by_the_next(board: &Board, forge: &Forge, worker: Worker, build: uuid::Uuid) {
    assert_eq!(worker.sites(), [build.to_string()]);
    board.heard().away = false;
    let worker = worker.again(board, forge);
    assert_eq!(board.report(build).await.end_reason, Some(EndReason::Recovery));
    worker.is_tidy();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_second_signal_ends_a_worker_whose_board_is_away() {
    let Some((board, forge, mut worker, build)) = unreported(&[]).await else { return };
    worker.signal(Signal::SIGTERM);
    tokio::time::sleep(Duration::from_millis(300)).await;
    assert!(worker.process.try_wait().unwrap().is_none(), "the first lets it try on");
    let begun = Instant::now();
    worker.signal(Signal::SIGTERM);
    assert_eq!(worker.end().code(), Some(76), "{}", worker.log());
    assert!(begun.elapsed() < SOON, "{:?}", begun.elapsed());
    is_reported_by_the_next(&board, &forge, worker, build).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_drain_timeout_ends_a_worker_whose_board_is_away() {
    let Some((board, forge, mut worker, build)) = unreported(&["--drain-timeout", "1"]).await else { return };
    let begun = Instant::now();
    worker.signal(Signal::SIGTERM);
    assert_eq!(worker.end().code(), Some(76), "{}", worker.log());
    assert!(begun.elapsed() < SOON, "{:?}", begun.elapsed());
    is_reported_by_the_next(&board, &forge, worker, build).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_worker_that_is_told_to_stop_before_it_could_report_what_was_left_says_so() {
    let Some((board, forge, mut worker, build)) = unreported(&[]).await else { return };
    worker.process.kill().unwrap();
    worker.process.wait().unwrap();
    let before = worker.log().len();
    let mut worker = worker.again(&board, &forge);
    eventually("the next try", || worker.log()[before..].contains("end not reported yet").then_some(()));
    worker.signal(Signal::SIGTERM);
    assert_eq!(worker.end().code(), Some(76), "{}", worker.log());
    is_reported_by_the_next(&board, &forge, worker, build).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_recovery_with_a_token_that_is_not_known_leaves_the_record_and_says_so() {
    let Some((board, forge, mut worker, build)) = unreported(&[]).await else { return };
    worker.process.kill().unwrap();
    worker.process.wait().unwrap();
    board.heard().away = false;
    let recover = || crate::fleet::command(&board, &forge, &worker.root, "recover");
    board.heard().syncs = 0;
    let output = recover().env("CALLBOARD_WORKER_TOKEN", "an-unknown-one").output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(76), "{said}");
    assert!(said.contains("the ends of 1 builds could not be reported") && !said.contains("an-unknown-one"), "{said}");
    assert_eq!(board.heard().syncs, 1, "who is refused does not ask again");
    assert_eq!(worker.sites(), [build.to_string()]);
    for _ in 0..2 {
        assert_eq!(recover().output().unwrap().status.code(), Some(0));
        assert!(worker.sites().is_empty());
    }
    assert_eq!(board.report(build).await.end_reason, Some(EndReason::Recovery));
    assert_eq!(board.heard().completed.len(), 1);
}
