//! Clone, steps in order, the report.

use crate::board::{job, step};
use crate::fleet::{STUCK, Worker, can_seal, command, is_root};
use crate::{BackEnd, Board, Forge, set_up, set_up_in};
use nix::sys::signal::Signal;
use protocol::build::StepStatus;
use protocol::log::Stream;
use protocol::{EndReason, Status};

in_both! {
    a_build_is_cloned_run_logged_and_reported,
    the_first_step_that_fails_is_the_last,
    a_step_that_ends_by_a_signal_has_a_code_for_it,
    two_builds_run_at_once_in_two_slots,
}

async fn a_build_is_cloned_run_logged_and_reported(back_end: BackEnd) {
    let Some((board, forge, worker)) = set_up_in(back_end, &[]).await else { return };
    let steps = vec![step("read", &["cat hello.txt", "echo to stderr >&2", "touch made"]), step("list", &["ls made"])];
    let report = board.report(board.offer(job(&forge.url(), steps))).await;
    assert_eq!((report.status, report.end_reason), (Status::Success, None), "{}", board.log());
    assert_eq!(report.commit.as_deref(), Some(forge.commit.as_str()));
    assert!(report.steps.iter().all(|step| step.status == StepStatus::Success && step.exit_code == Some(0)));
    assert_eq!(report.last_seq, u64::try_from(board.heard().chunks.len()).unwrap());
    assert!(report.ran_ms > 0 && !report.logs_lost);
    assert_eq!(board.log_of(Stream::Stdout), "hello from the repository\nmade\n");
    assert_eq!(board.log_of(Stream::Stderr), "to stderr\n");
    let system = board.log_of(Stream::System);
    for line in ["Cloning https://", "Step 1/2: read", "$ cat hello.txt\n$ echo", "Step 2/2: list", "exit code 0 after"]
    {
        assert!(system.contains(line), "{line:?} is not in {system}");
    }
    worker.is_tidy();
}

async fn the_first_step_that_fails_is_the_last(back_end: BackEnd) {
    let Some((board, forge, worker)) = set_up_in(back_end, &[]).await else { return };
    let steps = vec![step("good", &["true"]), step("bad", &["exit 3", "echo never"]), step("after", &["true"])];
    let report = board.report(board.offer(job(&forge.url(), steps))).await;
    assert_eq!((report.status, report.end_reason), (Status::Failed, Some(EndReason::StepFailed)));
    assert_eq!(report.error_message.as_deref(), Some("step \"bad\" ended with exit code 3"));
    let went: Vec<_> = report.steps.iter().map(|step| (step.status, step.exit_code)).collect();
    let expected = [(StepStatus::Success, Some(0)), (StepStatus::Failed, Some(3)), (StepStatus::Skipped, None)];
    assert_eq!(went, expected);
    assert!(!board.log().contains("never\n$") && board.log().contains("exit code 3 after"));
    worker.is_tidy();
}

async fn a_step_that_ends_by_a_signal_has_a_code_for_it(back_end: BackEnd) {
    let Some((board, forge, worker)) = set_up_in(back_end, &[]).await else { return };
    let report = board.report(board.offer(job(&forge.url(), vec![step("dies", &["kill -9 $$"])]))).await;
    assert_eq!((report.end_reason, report.steps[0].exit_code), (Some(EndReason::StepFailed), Some(137)));
    worker.is_tidy();
}

#[tokio::test(flavor = "multi_thread")]
async fn an_image_that_this_worker_has_not_got_is_told_as_such() {
    let Some((board, forge, worker)) = set_up(&[]).await else { return };
    let mut other = step("compile", &["true"]);
    other.image = "rust:1.95".into();
    let report = board.report(board.offer(job(&forge.url(), vec![other]))).await;
    assert_eq!(report.end_reason, Some(EndReason::ImageFailed));
    assert!(report.error_message.unwrap().contains("rust:1.95"));
    worker.is_tidy();
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_build_is_at_is_told_before_the_usual_heartbeat() {
    let Some((board, forge, worker)) = set_up(&[]).await else { return };
    let mut slow = job(&forge.url(), vec![step("short", &["true"]), step("long", &["sleep 3"])]);
    slow.heartbeat_every_ms = 30_000;
    assert_eq!(board.report(board.offer(slow)).await.status, Status::Success);
    let phases: Vec<_> = board.heard().heartbeats.iter().map(|beat| beat.phase.clone().unwrap()).collect();
    assert!(phases.contains(&"long".to_owned()) && phases.len() <= 3, "{phases:?}");
    worker.is_tidy();
}

async fn two_builds_run_at_once_in_two_slots(back_end: BackEnd) {
    let Some((board, forge, worker)) = set_up_in(back_end, &["--slots", "2"]).await else { return };
    let meet = |mine: &str, other: &str| {
        let url = forge.url();
        job(&url, vec![step(mine, &[&format!("echo {mine} is here"), "sleep 3", &format!("echo {other}")])])
    };
    let (one, two) = (board.offer(meet("one", "x")), board.offer(meet("two", "y")));
    board
        .until("two builds at once", |heard| (heard.given.len() == 2 && heard.completed.is_empty()).then_some(()))
        .await;
    assert_eq!((board.report(one).await.status, board.report(two).await.status), (Status::Success, Status::Success));
    worker.is_tidy();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_claim_whose_answer_was_lost_is_asked_again_with_the_same_number() {
    let Some((board, forge, worker)) = set_up(&[]).await else { return };
    board.heard().answers_lost = 1;
    let report = board.report(board.offer(job(&forge.url(), vec![step("only", &["true"])]))).await;
    assert_eq!(report.status, Status::Success);
    let heard = board.heard();
    let claim = heard.given.keys().next().unwrap();
    assert_eq!(heard.claims.iter().filter(|request| request.claim_id == *claim).count(), 2);
    drop(heard);
    worker.is_tidy();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_plain_user_runs_builds_too() {
    if !can_seal() || !is_root() {
        return;
    }
    let (board, forge) = (Board::start().await, Forge::start().await);
    let worker = Worker::start_as(299_999, &board, &forge);
    let report = board.report(board.offer(job(&forge.url(), vec![step("only", &["cat hello.txt", "id -u"])]))).await;
    assert_eq!(report.status, Status::Success, "{}", board.log());
    worker.is_tidy_but_for(&[STUCK.into()]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_directory_that_can_not_be_removed_is_in_nobodys_way() {
    if !can_seal() || !is_root() {
        return;
    }
    let (board, forge) = (Board::start().await, Forge::start().await);
    let mut worker = Worker::start_as(299_999, &board, &forge);
    let mut stuck = vec![STUCK.to_owned()];
    for number in 0..4 {
        board.heard().chunks.clear();
        let waits = step("wait", &["echo waits; until test -e go; do sleep 0.1; done"]);
        let build = board.offer(job(&forge.url(), vec![waits]));
        board.until_log("waits\n").await;
        let site = worker.root.join(build.to_string());
        std::fs::create_dir_all(site.join("theirs/not-ours")).unwrap();
        std::fs::write(site.join("workspace/go"), "").unwrap();
        assert_eq!(board.report(build).await.status, Status::Success, "build {number}");
        stuck.push(build.to_string());
    }
    worker.is_tidy_but_for(&stuck);
    assert_eq!(worker.sites().len(), 5);
    assert!(worker.log().contains("can't be removed; it is tried again"), "{}", worker.log());
    worker.signal(Signal::SIGTERM);
    assert_eq!(worker.end().code(), Some(0));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_second_worker_on_one_builds_root_is_refused() {
    let Some((board, forge, worker)) = set_up(&[]).await else { return };
    board.until("a first claim", |heard| (!heard.claims.is_empty()).then_some(())).await;
    let second = command(&board, &forge, &worker.root, "run").output().unwrap();
    assert_eq!(second.status.code(), Some(75));
    assert!(String::from_utf8_lossy(&second.stderr).contains("another worker runs on"));
    let recover = command(&board, &forge, &worker.root, "recover").output().unwrap();
    assert_eq!(recover.status.code(), Some(0));
}
