//! Builds that end before their steps are through: why, how fast, and that nothing is left.

use crate::board::{job, step};
use crate::fleet::eventually;
use crate::{BackEnd, set_up, set_up_in};
use nix::sys::signal::Signal;
use protocol::build::StepStatus;
use protocol::{CancelReason, EndReason, Status};
use std::time::{Duration, Instant};

in_both! {
    a_step_that_ignores_the_signal_is_killed_at_its_timeout,
    a_step_that_cleans_up_gets_its_grace,
    a_background_child_that_keeps_the_output_does_not_delay_the_result,
    the_deadline_ends_a_build,
    a_cancel_ends_a_build,
    a_cancelled_build_tidies_up_and_that_counts_for_nothing,
    a_build_that_is_lost_while_it_tidies_up_ends_at_once,
    a_recovery_charges_nothing_of_what_a_build_tidied_up,
    nothing_is_tidied_up_but_after_a_cancel,
    a_build_that_is_not_ours_any_more_is_ended_and_not_reported,
    the_first_signal_drains_and_the_second_stops,
    a_draining_worker_sees_its_build_through,
    a_draining_worker_whose_last_report_is_refused_says_so,
    a_draining_worker_whose_heartbeat_is_refused_says_so,
    a_build_that_the_board_does_not_answer_for_keeps_no_other_waiting,
}

/// Ignores what can be ignored, in a session of its own, and keeps the output.
const STUBBORN: &str = "trap '' TERM HUP INT; setsid sh -c 'trap \"\" TERM HUP; while :; do sleep 1; done' & \
                        echo running; while :; do sleep 1; done";

async fn a_step_that_ignores_the_signal_is_killed_at_its_timeout(back_end: BackEnd) {
    let Some((board, forge, worker)) = set_up_in(back_end, &[]).await else { return };
    let mut stubborn = step("stubborn", &[STUBBORN]);
    stubborn.timeout_seconds = Some(1);
    let report = board.report(board.offer(job(&forge.url(), vec![stubborn, step("after", &["true"])]))).await;
    assert_eq!((report.status, report.end_reason), (Status::Failed, Some(EndReason::StepTimeout)));
    assert_eq!([report.steps[0].status, report.steps[1].status], [StepStatus::TimedOut, StepStatus::Skipped]);
    assert!((1000..2500).contains(&report.steps[0].duration_ms), "{:?}", report.steps);
    worker.is_tidy();
}

async fn a_step_that_cleans_up_gets_its_grace(back_end: BackEnd) {
    let Some((board, forge, worker)) = set_up_in(back_end, &["--kill-grace-ms", "5000"]).await else { return };
    let child = "sh -c 'trap \"sleep 0.5; echo cleaned up; exit 0\" TERM; echo running; while :; do sleep 0.1; done'";
    let mut polite = step("polite", &[child]);
    polite.timeout_seconds = Some(3);
    let report = board.report(board.offer(job(&forge.url(), vec![polite]))).await;
    assert_eq!(report.end_reason, Some(EndReason::StepTimeout));
    assert!(board.log().contains("cleaned up\n"), "{}", board.log());
    assert!(report.steps[0].duration_ms < 7000, "{:?}", report.steps);
    worker.is_tidy();
}

async fn a_background_child_that_keeps_the_output_does_not_delay_the_result(back_end: BackEnd) {
    let Some((board, forge, worker)) = set_up_in(back_end, &[]).await else { return };
    let begun = Instant::now();
    let leaves = step("leaves", &["setsid sleep 100 &", "(setsid sleep 100 & ) &", "echo done"]);
    let report = board.report(board.offer(job(&forge.url(), vec![leaves]))).await;
    assert_eq!(report.status, Status::Success);
    assert!(report.steps[0].duration_ms < 2000 && begun.elapsed() < Duration::from_secs(10));
    worker.is_tidy();
}

async fn the_deadline_ends_a_build(back_end: BackEnd) {
    let Some((board, forge, worker)) = set_up_in(back_end, &[]).await else { return };
    let mut short = job(&forge.url(), vec![step("long", &[STUBBORN])]);
    // Where a clone is in a container as well, the step begins late.
    short.deadline_in_ms = 5000;
    let report = board.report(board.offer(short)).await;
    assert_eq!((report.status, report.end_reason), (Status::TimedOut, Some(EndReason::Deadline)));
    assert!((5000..7000).contains(&report.ran_ms), "{}", report.ran_ms);
    assert_eq!(report.steps[0].status, StepStatus::TimedOut);
    worker.is_tidy();
}

async fn a_cancel_ends_a_build(back_end: BackEnd) {
    let Some((board, forge, worker)) = set_up_in(back_end, &[]).await else { return };
    let build = board.offer(job(&forge.url(), vec![step("long", &[STUBBORN])]));
    board.until_log("running\n").await;
    board.heard().cancel = Some(CancelReason::User);
    let report = board.report(build).await;
    assert_eq!((report.status, report.end_reason), (Status::Cancelled, Some(EndReason::User)));
    assert_eq!(report.steps[0].status, StepStatus::Cancelled);
    worker.is_tidy();
}

/// Waits until its build is cancelled; then tidies up, in the same workspace.
fn tidying(forge: &crate::Forge, tidy: &[&str]) -> protocol::worker::Job {
    let mut tidying = job(&forge.url(), vec![step("long", &["echo made > made", "echo running", "sleep 600"])]);
    tidying.on_cancel = vec![step("broken", &["exit 3"]), step("tidy", tidy)];
    tidying
}

async fn a_cancelled_build_tidies_up_and_that_counts_for_nothing(back_end: BackEnd) {
    let Some((board, forge, worker)) = set_up_in(back_end, &[]).await else { return };
    let tidying = tidying(&forge, &["sleep 3", "cat made", "echo tidy"]);
    let build = board.offer(tidying);
    board.until_log("running\n").await;
    let asked_at = Instant::now();
    board.heard().cancel = Some(CancelReason::User);
    let report = board.report(build).await;
    assert_eq!((report.status, report.end_reason), (Status::Cancelled, Some(EndReason::User)));
    assert!(board.log().contains("On cancel: tidy\n") && board.log().contains("\nmade\n"), "{}", board.log());
    let (claimed_at, took) = (board.heard().claimed_at[&build], asked_at.elapsed());
    let all = u64::try_from(claimed_at.elapsed().as_millis()).unwrap();
    assert!(took >= Duration::from_secs(3) && report.ran_ms + 3000 <= all, "{} of {all}", report.ran_ms);
    assert_eq!(report.steps.len(), 1, "what tidies up is no step");
    worker.is_tidy();
}

async fn a_build_that_is_lost_while_it_tidies_up_ends_at_once(back_end: BackEnd) {
    let Some((board, forge, worker)) = set_up_in(back_end, &[]).await else { return };
    let tidying = tidying(&forge, &["echo begun", "sleep 600"]);
    board.offer(tidying);
    board.until_log("running\n").await;
    board.heard().cancel = Some(CancelReason::User);
    board.until_log("begun\n").await;
    board.heard().gone = true;
    worker.is_tidy();
}

async fn a_recovery_charges_nothing_of_what_a_build_tidied_up(back_end: BackEnd) {
    let Some((board, forge, mut worker)) = set_up_in(back_end, &[]).await else { return };
    let tidying = tidying(&forge, &["echo begun", "sleep 600"]);
    let (offered, build) = (Instant::now(), board.offer(tidying));
    board.until_log("running\n").await;
    board.heard().cancel = Some(CancelReason::User);
    board.until_log("begun\n").await;
    let ran_ms_at_most = u64::try_from(offered.elapsed().as_millis()).unwrap();
    tokio::time::sleep(Duration::from_secs(2)).await;
    worker.kill_with_guards();
    let worker = worker.again(&board, &forge);
    let report = board.report(build).await;
    assert_eq!((report.status, report.end_reason), (Status::Failed, Some(EndReason::Recovery)));
    assert!((1..=ran_ms_at_most).contains(&report.ran_ms), "{} of {ran_ms_at_most}", report.ran_ms);
    worker.is_tidy();
}

async fn nothing_is_tidied_up_but_after_a_cancel(back_end: BackEnd) {
    let Some((board, forge, worker)) = set_up_in(back_end, &[]).await else { return };
    for (command, status) in [("true", Status::Success), ("false", Status::Failed)] {
        let mut ends = job(&forge.url(), vec![step("only", &[command])]);
        ends.on_cancel = vec![step("tidy", &["true"])];
        assert_eq!(board.report(board.offer(ends)).await.status, status);
    }
    assert!(!board.log().contains("tidy"), "{}", board.log());
    worker.is_tidy();
}

async fn a_build_that_is_not_ours_any_more_is_ended_and_not_reported(back_end: BackEnd) {
    let Some((board, forge, worker)) = set_up_in(back_end, &[]).await else { return };
    board.offer(job(&forge.url(), vec![step("long", &[STUBBORN])]));
    board.until_log("running\n").await;
    board.heard().gone = true;
    worker.is_tidy();
    board.heard().gone = false;
    let next = board.report(board.offer(job(&forge.url(), vec![step("next", &["true"])]))).await;
    assert_eq!(next.status, Status::Success);
    assert_eq!(board.heard().completed.len(), 1);
}

async fn the_first_signal_drains_and_the_second_stops(back_end: BackEnd) {
    let Some((board, forge, mut worker)) = set_up_in(back_end, &[]).await else { return };
    let build = board.offer(job(&forge.url(), vec![step("long", &["echo running; sleep 100"])]));
    board.until_log("running\n").await;
    worker.signal(Signal::SIGTERM);
    board.offer(job(&forge.url(), vec![step("never", &["true"])]));
    let beats = board.heard().heartbeats.len();
    board.until("heartbeats while draining", |heard| (heard.heartbeats.len() > beats + 3).then_some(())).await;
    assert_eq!(board.heard().jobs.len(), 1, "a draining worker claims nothing");
    worker.signal(Signal::SIGTERM);
    let report = board.report(build).await;
    assert_eq!((report.status, report.end_reason), (Status::Failed, Some(EndReason::WorkerShutdown)));
    assert_eq!(worker.end().code(), Some(0));
    worker.is_tidy();
}

async fn a_draining_worker_sees_its_build_through(back_end: BackEnd) {
    let Some((board, forge, mut worker)) = set_up_in(back_end, &[]).await else { return };
    let build = board.offer(job(&forge.url(), vec![step("short", &["echo running; sleep 1; echo through"])]));
    board.until_log("running\n").await;
    worker.signal(Signal::SIGTERM);
    assert_eq!(board.report(build).await.status, Status::Success);
    assert_eq!(worker.end().code(), Some(0));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_worker_that_recovers_without_a_board_drains_as_well() {
    let Some((board, forge, mut worker)) = set_up(&[]).await else { return };
    let build = board.offer(job(&forge.url(), vec![step("long", &["echo running; sleep 100"])]));
    board.until_log("running\n").await;
    board.heard().away = true;
    worker.process.kill().unwrap();
    worker.process.wait().unwrap();
    for signal in [Signal::SIGTERM, Signal::SIGINT] {
        worker = worker.again(&board, &forge);
        eventually("a try to report", || worker.log().contains("end not reported yet").then_some(()));
        worker.signal(signal);
        assert_eq!(worker.end().code(), Some(76), "what it could not report is told by its exit code");
        assert_eq!(worker.sites(), [build.to_string()]);
    }
    board.heard().away = false;
    let worker = worker.again(&board, &forge);
    assert_eq!(board.report(build).await.end_reason, Some(EndReason::Recovery));
    worker.is_tidy();
}

async fn a_draining_worker_whose_last_report_is_refused_says_so(back_end: BackEnd) {
    let Some((board, forge, mut worker)) = set_up_in(back_end, &[]).await else { return };
    let build = board.offer(job(&forge.url(), vec![step("short", &["echo running; sleep 1"])]));
    board.until_log("running\n").await;
    board.heard().revoked = true;
    worker.signal(Signal::SIGTERM);
    assert_eq!(worker.end().code(), Some(76), "{}", worker.log());
    assert_eq!(worker.sites(), [build.to_string()]);
    board.heard().revoked = false;
    let worker = worker.again(&board, &forge);
    assert_eq!(board.report(build).await.end_reason, Some(EndReason::Recovery));
    worker.is_tidy();
}

async fn a_draining_worker_whose_heartbeat_is_refused_says_so(back_end: BackEnd) {
    let Some((board, forge, mut worker)) = set_up_in(back_end, &[]).await else { return };
    board.offer(job(&forge.url(), vec![step("long", &["echo running; sleep 100"])]));
    board.until_log("running\n").await;
    worker.signal(Signal::SIGTERM);
    eventually("draining", || worker.log().contains("no more claims").then_some(()));
    board.heard().renews_nobody = true;
    assert_eq!(worker.end().code(), Some(77), "{}", worker.log());
    worker.is_tidy();
}

async fn a_build_that_the_board_does_not_answer_for_keeps_no_other_waiting(back_end: BackEnd) {
    let Some((board, forge, mut worker)) = set_up_in(back_end, &[]).await else { return };
    let build = board.offer(job(&forge.url(), vec![step("long", &["echo running; sleep 100"])]));
    board.until_log("running\n").await;
    worker.process.kill().unwrap();
    worker.process.wait().unwrap();
    board.heard().unanswered = Some(build);
    board.heard().chunks.clear();
    let next = board.offer(job(&forge.url(), vec![step("next", &["true"])]));
    let worker = worker.again(&board, &forge);
    assert_eq!(board.report(next).await.status, Status::Success);
    board.heard().unanswered = None;
    assert_eq!(board.report(build).await.end_reason, Some(EndReason::Recovery));
    worker.is_tidy();
}
