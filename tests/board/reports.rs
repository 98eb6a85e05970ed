//! How a runner says that its build went, and how the build's worker gets to know it (docs/decisions/0017).

mod cases;
mod kept;

use crate::Board;
use crate::faults::Doomed;
use crate::fetches::Held;
use crate::scenario::Answer;
use axum::body::Body;
use futures::future::join_all;
use http::{Method, Request};
use protocol::admin::TokenKind;
use serde_json::{Value, json};
use uuid::Uuid;

fn path(build: Uuid) -> String {
    format!("/internal/worker/builds/{build}/report")
}

pub(crate) async fn report_by(
    board: &Board,
    build: Uuid,
    token: &str,
    fetcher: Option<&str>,
    report: &Value,
) -> Answer {
    let mut request = Request::put(path(build)).header("authorization", format!("Bearer {token}"));
    if let Some(fetcher) = fetcher {
        request = request.header("fetch-id", fetcher);
    }
    let request = request.header("content-type", "application/json").body(Body::from(report.to_string()));
    board.send(request.expect("a request")).await
}

/// What the worker with this token is told.
pub(crate) async fn told(board: &Board, build: Uuid, worker: &str) -> Answer {
    board.call(Method::GET, &path(build), worker, &Value::Null).await
}

/// A build whose job a runner has.
struct Run {
    held: Held,
    fetcher: Uuid,
}

impl Run {
    async fn new(board: &Board) -> Self {
        let (held, fetcher) = (Held::new(board).await, Uuid::new_v4());
        let _ = held.fetch(board, fetcher).await.ok();
        Self { held, fetcher }
    }

    async fn report(&self, board: &Board, report: &Value) -> Answer {
        report_by(board, self.held.build, self.held.token(), Some(&self.fetcher.to_string()), report).await
    }

    async fn told(&self, board: &Board) -> Answer {
        told(board, self.held.build, &board.worker).await
    }
}

/// A report with all that there can be in one.
fn whole() -> Value {
    json!({
        "outcome": "failed", "end_reason": "step_failed", "error_message": "step \"test\" ended with exit code 1",
        "commit": "7fd1a60b01f91b314f59955a4e4d4e80d8edf11d", "last_seq": 2, "logs_lost": true, "tidied_ms": 12,
        "steps": [{ "name": "test", "status": "failed", "exit_code": 1, "duration_ms": 2100 }] })
}

const STORED: &str = "select count(*) from reports";

#[tokio::test]
async fn what_a_runner_reports_its_worker_is_told_and_the_build_runs_on() {
    let board = Board::new().await;
    let run = Run::new(&board).await;
    assert_eq!(run.told(&board).await.said(), (204, ""), "not yet");
    assert_eq!(run.report(&board, &whole()).await.said(), (204, ""));
    assert_eq!(run.told(&board).await.ok(), whole());
    assert_eq!(board.build(run.held.build).await["status"], "running");
    let other = Run::new(&board).await;
    assert_eq!(other.told(&board).await.said(), (204, ""), "of another build");
    let end = json!({ "status": "failed", "end_reason": "step_failed", "ran_ms": 1 });
    let _ = board.complete(run.held.build, &end).await.ok();
    board.holds_together().await;
}

#[tokio::test]
async fn the_same_report_again_is_taken_however_it_is_written_and_another_is_not() {
    let board = Board::new().await;
    let run = Run::new(&board).await;
    let _ = run.report(&board, &json!({ "outcome": "success" })).await.ok();
    for again in [
        json!({ "outcome": "success" }),
        json!({ "steps": [], "last_seq": 0, "logs_lost": false, "outcome": "success", "end_reason": null }),
        json!({ "outcome": "success", "colour": "red" }),
    ] {
        assert_eq!(run.report(&board, &again).await.said(), (204, ""), "{again}");
    }
    for other in [json!({ "outcome": "stopped" }), json!({ "outcome": "success", "last_seq": 1 })] {
        assert_eq!(run.report(&board, &other).await.said(), (409, "conflict"), "{other}");
    }
    assert_eq!(run.told(&board).await.ok()["outcome"], "success");
}

#[tokio::test]
async fn a_build_that_has_ended_takes_no_report_and_tells_none_but_knows_the_one_it_has() {
    let board = Board::new().await;
    let (reported, silent) = (Run::new(&board).await, Run::new(&board).await);
    let _ = reported.report(&board, &whole()).await.ok();
    for run in [&reported, &silent] {
        let _ = board.complete(run.held.build, &json!({ "status": "success", "ran_ms": 1 })).await.ok();
        let answer = run.told(&board).await;
        assert_eq!((answer.said(), &answer.body["build_status"]), ((409, "build_ended"), &json!("success")));
        let answer = run.report(&board, &json!({ "outcome": "success" })).await;
        assert_eq!((answer.said(), &answer.body["build_status"]), ((409, "build_ended"), &json!("success")));
    }
    assert_eq!(reported.report(&board, &whole()).await.said(), (204, ""), "its first answer may have been lost");
    assert_eq!(silent.report(&board, &whole()).await.said(), (409, "build_ended"));
    assert_eq!(board.number(STORED).await, 1);
}

#[tokio::test]
async fn only_the_runner_that_fetched_the_job_reports() {
    let board = Board::new().await;
    let (run, unfetched) = (Run::new(&board).await, Held::new(&board).await);
    let (build, token) = (run.held.build, run.held.token());
    let (own, other) = (run.fetcher.to_string(), Uuid::new_v4().to_string());
    let forged = format!("{}{}", &token[..token.len() - 2], "zz");
    for (token, fetcher, expected) in [
        (token, Some(other.as_str()), (409, "conflict")),
        (token, None, (400, "bad_request")),
        (token, Some("seven"), (400, "bad_request")),
        (board.worker.as_str(), Some(own.as_str()), (401, "unauthorized")),
        (board.api.as_str(), Some(own.as_str()), (401, "unauthorized")),
        (unfetched.token(), Some(own.as_str()), (404, "not_found")),
        (forged.as_str(), Some(own.as_str()), (404, "not_found")),
    ] {
        let answer = report_by(&board, build, token, fetcher, &whole()).await;
        assert_eq!(answer.said(), expected, "{token} {fetcher:?}");
    }
    let early = report_by(&board, unfetched.build, unfetched.token(), Some(&other), &whole()).await;
    assert_eq!(early.said(), (409, "conflict"), "nobody has fetched it");
    assert_eq!(board.number(STORED).await, 0);
    board.execute("update tokens set revoked_at = now() where kind = 'worker'").await;
    for fetcher in [Some(own.as_str()), None] {
        assert_eq!(report_by(&board, build, token, fetcher, &whole()).await.said(), (401, "unauthorized"));
    }
}

#[tokio::test]
async fn only_the_worker_that_holds_the_build_is_told() {
    let board = Board::new().await;
    let run = Run::new(&board).await;
    let _ = run.report(&board, &whole()).await.ok();
    let other = board.token(TokenKind::Worker, None).await;
    let mut unknown = told(&board, Uuid::new_v4(), &board.worker).await.body;
    for build in [run.held.build, Uuid::new_v4()] {
        let mut answer = told(&board, build, &other).await;
        assert_eq!(answer.said(), (404, "not_found"));
        answer.body["request_id"] = Value::Null;
        unknown["request_id"] = Value::Null;
        assert_eq!(answer.body, unknown, "the same as of no build");
    }
    for token in [run.held.token(), &board.api, &board.operator, "cbw_nonsense"] {
        assert_eq!(told(&board, run.held.build, token).await.said(), (401, "unauthorized"), "{token}");
    }
    board.execute("update tokens set revoked_at = now() where kind = 'worker'").await;
    assert_eq!(run.told(&board).await.said(), (401, "unauthorized"));
}

#[tokio::test]
async fn a_report_is_taken_while_the_lease_has_lapsed_for_when_it_is_renewed() {
    let board = Board::new().await;
    let run = Run::new(&board).await;
    board.age(run.held.build, 61).await;
    let _ = run.report(&board, &whole()).await.ok();
    let _ = board.work(&format!("builds/{}/heartbeat", run.held.build), &json!({})).await.ok();
    assert_eq!(run.told(&board).await.ok(), whole());
}

#[tokio::test]
async fn a_report_that_died_before_its_answer_is_there_for_the_repeat() {
    let board = Board::new().await;
    let run = Run::new(&board).await;
    let header = format!("fetch-id: {}\r\n", run.fetcher);
    let doomed = Doomed::at(&board, "report.stored");
    doomed.last_words(&Method::PUT, &path(run.held.build), run.held.token(), &header, &whole()).await;
    assert_eq!(run.told(&board).await.ok(), whole());
    let _ = run.report(&board, &whole()).await.ok();
    assert_eq!(run.report(&board, &json!({ "outcome": "success" })).await.said(), (409, "conflict"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_reports_at_once_one_is_stored_and_whoever_said_the_same_is_told_so() {
    let board = Board::new().await;
    for _ in 0..20 {
        let run = Run::new(&board).await;
        let said: Vec<Value> = (0..6).map(|number| json!({ "outcome": "success", "last_seq": number % 2 })).collect();
        let answers = join_all(said.iter().map(|report| run.report(&board, report))).await;
        let stored = run.told(&board).await.ok()["last_seq"].clone();
        for (report, answer) in said.iter().zip(answers) {
            let expected = if report["last_seq"] == stored { (204, "") } else { (409, "conflict") };
            assert_eq!(answer.said(), expected, "{report}, and {stored} is stored");
        }
    }
    board.holds_together().await;
}
