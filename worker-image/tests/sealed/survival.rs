//! What happens to a build when its worker is killed, stopped or broken.

use crate::board::{job, step};
use crate::fleet::{Worker, eventually};
use crate::{BackEnd, Board, set_up, set_up_in};
use callboard_worker::proc;
use nix::sys::signal::Signal;
use protocol::{EndReason, Status};
use std::time::{Duration, Instant};

in_both! {
    a_killed_workers_sandbox_is_ended_by_its_guard,
    the_next_start_ends_a_sandbox_whose_guard_is_slow,
    a_killed_guard_takes_its_sandbox_along,
    a_worker_that_is_killed_with_its_guards_leaves_no_process_and_the_rest_to_the_next,
    two_workers_on_one_host_touch_nothing_of_each_other,
    a_killed_proxy_is_named_and_ends_no_step,
    a_stopped_workers_sandbox_is_ended_at_the_fence,
    a_worker_cut_off_from_its_board_ends_its_steps_and_says_so_afterwards,
    directories_nested_ever_so_deep_are_no_trouble,
    a_build_of_many_files_is_reported_before_they_are_removed,
    a_step_that_closes_its_workspace_keeps_neither_the_next_step_nor_the_next_build,
}

const STUBBORN: &str = "trap '' TERM; echo running; while :; do sleep 0.2; done";

async fn a_killed_workers_sandbox_is_ended_by_its_guard(back_end: BackEnd) {
    let Some((board, forge, mut worker)) = set_up_in(back_end, &[]).await else { return };
    let (offered, build) = (Instant::now(), board.offer(job(&forge.url(), vec![step("long", &[STUBBORN])])));
    board.until_log("running\n").await;
    assert!(!worker.left().is_empty());
    let killed = Instant::now();
    worker.process.kill().unwrap();
    worker.process.wait().unwrap();
    eventually("the end of sandbox and proxy", || worker.all_left().is_empty().then_some(()));
    assert!(killed.elapsed() < Duration::from_secs(3), "{:?}", killed.elapsed());
    assert_eq!(worker.sites(), [build.to_string()]);
    let ran_ms_at_most = u64::try_from(offered.elapsed().as_millis()).unwrap() + 50;
    tokio::time::sleep(Duration::from_secs(2)).await;

    let next = board.offer(job(&forge.url(), vec![step("next", &["true"])]));
    let worker = worker.again(&board, &forge);
    let report = board.report(build).await;
    assert_eq!((report.status, report.end_reason), (Status::Failed, Some(EndReason::Recovery)));
    assert!(report.logs_lost && report.ran_ms > 0);
    assert!(report.ran_ms < ran_ms_at_most, "{} ms are more than until its steps ended", report.ran_ms);
    assert_eq!(board.report(next).await.status, Status::Success);
    worker.is_tidy();
}

async fn the_next_start_ends_a_sandbox_whose_guard_is_slow(back_end: BackEnd) {
    let Some((board, forge, mut worker)) = set_up_in(back_end, &["--kill-grace-ms", "60000"]).await else { return };
    let build = board.offer(job(&forge.url(), vec![step("long", &[STUBBORN])]));
    board.until_log("running\n").await;
    worker.process.kill().unwrap();
    worker.process.wait().unwrap();
    assert!(!worker.left().is_empty());
    let worker = worker.again(&board, &forge);
    assert_eq!(board.report(build).await.end_reason, Some(EndReason::Recovery));
    worker.is_tidy();
}

async fn a_killed_guard_takes_its_sandbox_along(back_end: BackEnd) {
    let Some((board, forge, worker)) = set_up_in(back_end, &[]).await else { return };
    let build = board.offer(job(&forge.url(), vec![step("long", &[STUBBORN])]));
    board.until_log("running\n").await;
    proc::signal(worker.guard_of_step(), Signal::SIGKILL);
    let report = board.report(build).await;
    assert_eq!((report.status, report.end_reason), (Status::Failed, Some(EndReason::Internal)));
    worker.is_tidy();
}

async fn a_worker_that_is_killed_with_its_guards_leaves_no_process_and_the_rest_to_the_next(back_end: BackEnd) {
    let Some((board, forge, mut worker)) = set_up_in(back_end, &["--kill-grace-ms", "60000"]).await else { return };
    let build = board.offer(job(&forge.url(), vec![step("long", &[STUBBORN])]));
    board.until_log("running\n").await;
    worker.kill_with_guards();
    eventually("the end of all processes", || worker.is_dead().then_some(()));
    let worker = worker.again(&board, &forge);
    assert_eq!(board.report(build).await.end_reason, Some(EndReason::Recovery));
    worker.is_tidy();
}

async fn two_workers_on_one_host_touch_nothing_of_each_other(back_end: BackEnd) {
    let Some((board, forge, mut dead)) = set_up_in(back_end, &[]).await else { return };
    let left = board.offer(job(&forge.url(), vec![step("long", &[STUBBORN])]));
    board.until_log("running\n").await;
    let other_board = Board::start_for(back_end.image()).await;
    let other = Worker::start_for(back_end, &other_board, &forge, &[]);
    let going = other_board.offer(job(&forge.url(), vec![step("long", &["echo going; sleep 8"])]));
    other_board.until_log("going\n").await;
    let of_other = other.left();
    dead.kill_with_guards();
    let again = dead.again(&board, &forge);
    assert_eq!(board.report(left).await.end_reason, Some(EndReason::Recovery));
    again.is_tidy();
    assert_eq!(other.left(), of_other, "the recovery of one is not for the other's");
    assert_eq!(other_board.report(going).await.status, Status::Success, "{}", other_board.log());
    other.is_tidy();
}

async fn a_killed_proxy_is_named_and_ends_no_step(back_end: BackEnd) {
    let Some((board, forge, worker)) = set_up_in(back_end, &[]).await else { return };
    let build = board.offer(job(&forge.url(), vec![step("long", &["echo running; sleep 3"])]));
    board.until_log("running\n").await;
    for pid in worker.all_left().into_iter().filter(|pid| !worker.left().contains(pid)) {
        proc::signal(pid, Signal::SIGKILL);
    }
    board.until_log("network: the proxy of this build broke").await;
    assert_eq!(board.report(build).await.status, Status::Success);
    worker.is_tidy();
}

async fn a_stopped_workers_sandbox_is_ended_at_the_fence(back_end: BackEnd) {
    let Some((board, forge, worker)) = set_up_in(back_end, &["--fence-margin-ms", "1500"]).await else { return };
    let mut short = job(&forge.url(), vec![step("long", &[STUBBORN])]);
    (short.lease_ttl_ms, short.lease_grace_ms) = (3000, 3000);
    board.offer(short);
    board.until_log("running\n").await;
    tokio::time::sleep(Duration::from_secs(7)).await;
    assert!(!worker.left().is_empty(), "a lease that is renewed lets the step run");
    let stopped = Instant::now();
    worker.signal(Signal::SIGSTOP);
    eventually("the sandbox's end", || worker.is_dead().then_some(()));
    // Before lease and grace are over, with the margin in hand for a busy host.
    assert!(stopped.elapsed() < Duration::from_secs(6), "{:?}", stopped.elapsed());
    board.heard().gone = true;
    worker.signal(Signal::SIGCONT);
    eventually("the directory's end", || worker.sites().is_empty().then_some(()));
    assert!(board.heard().completed.is_empty());
}

async fn a_worker_cut_off_from_its_board_ends_its_steps_and_says_so_afterwards(back_end: BackEnd) {
    let Some((board, forge, worker)) = set_up_in(back_end, &[]).await else { return };
    let mut short = job(&forge.url(), vec![step("long", &[STUBBORN])]);
    (short.lease_ttl_ms, short.lease_grace_ms) = (1000, 1000);
    let build = board.offer(short);
    board.until_log("running\n").await;
    board.heard().away = true;
    eventually("the sandbox's end", || worker.left().is_empty().then_some(()));
    board.heard().away = false;
    let report = board.report(build).await;
    assert_eq!((report.status, report.end_reason), (Status::Failed, Some(EndReason::Internal)));
    assert!(report.error_message.unwrap().contains("lease could not be renewed"));
    worker.is_tidy();
}

#[tokio::test(flavor = "multi_thread")]
async fn three_troubles_of_the_host_in_a_row_and_the_worker_gives_up() {
    let Some((board, forge, mut worker)) = set_up(&["--slots", "1"]).await else { return };
    board.until("a first claim", |heard| (!heard.claims.is_empty()).then_some(())).await;
    std::fs::remove_file(worker.root.join(".bin/callboard-worker")).unwrap();
    for _ in 0..5 {
        board.offer(job(&forge.url(), vec![step("never", &["true"])]));
    }
    assert_eq!(worker.end().code(), Some(70));
    let reasons: Vec<_> = board.heard().completed.iter().map(|(_, report)| report.end_reason).collect();
    assert_eq!(reasons, [Some(EndReason::NeverStarted); 3]);
    assert!(worker.log().contains("callboard-worker doctor"));
}

/// More levels than the worker has descriptors.
const NEST: &str = "perl -e 'for (1..1500) { mkdir \"d\"; chdir \"d\" or die }'";

async fn directories_nested_ever_so_deep_are_no_trouble(back_end: BackEnd) {
    let Some((board, forge, mut worker)) = set_up_in(back_end, &[]).await else { return };
    let report = board.report(board.offer(job(&forge.url(), vec![step("nest", &[NEST])]))).await;
    assert_eq!(report.status, Status::Success, "{}", board.log());
    worker.is_tidy();
    board.heard().chunks.clear();
    let build = board.offer(job(&forge.url(), vec![step("nest", &[NEST, "echo nested; sleep 100"])]));
    board.until_log("nested\n").await;
    worker.process.kill().unwrap();
    worker.process.wait().unwrap();
    let worker = worker.again(&board, &forge);
    assert_eq!(board.report(build).await.end_reason, Some(EndReason::Recovery));
    worker.is_tidy();
}

async fn a_build_of_many_files_is_reported_before_they_are_removed(back_end: BackEnd) {
    let Some((board, forge, mut worker)) = set_up_in(back_end, &["--slots", "1"]).await else { return };
    let makes = "perl -e 'for (1..80000) { open my $f, q(>), qq(f$_) or die; close $f }'; echo made";
    let build = board.offer(job(&forge.url(), vec![step("make", &[makes])]));
    let report = board.report(build).await;
    assert_eq!(report.status, Status::Success, "{}", board.log());
    let record = worker.root.join(build.to_string()).join("record.json");
    eventually("an acknowledged end", || (!record.exists()).then_some(()));
    worker.process.kill().unwrap();
    worker.process.wait().unwrap();
    assert_eq!(worker.sites(), [build.to_string()], "killed before all files were removed");
    board.heard().chunks.clear();
    let next = board.offer(job(&forge.url(), vec![step("next", &["true"])]));
    let worker = worker.again(&board, &forge);
    assert_eq!(board.report(next).await.status, Status::Success);
    worker.is_tidy();
    assert_eq!(board.heard().completed.len(), 2, "nothing is reported twice");
}

async fn a_step_that_closes_its_workspace_keeps_neither_the_next_step_nor_the_next_build(back_end: BackEnd) {
    let Some((board, forge, worker)) = set_up_in(back_end, &["--slots", "1"]).await else { return };
    let steps =
        || vec![step("close", &["chmod 0 /workspace $HOME"]), step("next", &["echo in > /workspace/file", "cat file"])];
    for _ in 0..4 {
        let report = board.report(board.offer(job(&forge.url(), steps()))).await;
        assert_eq!(report.status, Status::Success, "{}", board.log());
    }
    worker.is_tidy();
}
