//! A worker says which trace a build belongs to, with each call about it and in its own log (docs/decisions/0019).

use crate::board::{job, step};
use crate::set_up;
use protocol::trace::Traceparent;
use protocol::{EndReason, Status};

const GIVEN: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";

#[tokio::test(flavor = "multi_thread")]
async fn each_call_about_a_build_says_its_trace_and_so_does_each_line_about_it() {
    let Some((board, forge, worker)) = set_up(&["--log-format", "json"]).await else { return };
    let mut traced = job(&forge.url(), vec![step("long", &["echo hello; sleep 1"])]);
    traced.traceparent = Traceparent::parse(GIVEN);
    let build = board.offer(traced);
    assert_eq!(board.report(build).await.status, Status::Success);
    let said = board.heard().traceparents.clone();
    assert!(said.len() > 4 && said.iter().all(|said| said.as_deref() == Some(GIVEN)), "{said:?}");
    let log = worker.log();
    let about: Vec<&str> = log.lines().filter(|line| line.contains(&build.to_string())).collect();
    let id = "\"trace.id\":\"0af7651916cd43dd8448eb211c80319c\"";
    assert!(about.len() > 3 && about.iter().all(|line| line.contains(id)), "{log}");
    assert!(log.lines().any(|line| line.contains("worker ready") && !line.contains("trace.id")), "{log}");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_end_of_a_build_that_a_killed_worker_left_is_told_in_its_trace() {
    let Some((board, forge, mut worker)) = set_up(&[]).await else { return };
    let mut traced = job(&forge.url(), vec![step("long", &["echo running; sleep 600"])]);
    traced.traceparent = Traceparent::parse(GIVEN);
    let build = board.offer(traced);
    board.until_log("running\n").await;
    worker.kill_with_guards();
    board.heard().traceparents.clear();
    let worker = worker.again(&board, &forge);
    assert_eq!(board.report(build).await.end_reason, Some(EndReason::Recovery));
    let said = board.heard().traceparents.clone();
    assert_eq!(said, [Some(GIVEN.to_owned())]);
    worker.is_tidy();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_build_of_no_trace_has_none_in_its_calls() {
    let Some((board, forge, worker)) = set_up(&[]).await else { return };
    let build = board.offer(job(&forge.url(), vec![step("only", &["true"])]));
    assert_eq!(board.report(build).await.status, Status::Success);
    let said = board.heard().traceparents.clone();
    assert!(!said.is_empty() && said.iter().all(Option::is_none), "{said:?}");
    worker.is_tidy();
}
