//! A build's trace: from whoever submits it to its job, to the calls about it, and to the log lines of all of them
//! (docs/decisions/0019).

use crate::Board;
use crate::scenario::Answer;
use crate::silence::Lines;
use axum::body::Body;
use http::{HeaderValue, Method, Request};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use tracing::subscriber::DefaultGuard;
use uuid::Uuid;

const GIVEN: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
const GIVEN_ID: &str = "0af7651916cd43dd8448eb211c80319c";
const OTHER: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-00";

/// A call with these `traceparent`s.
async fn call(board: &Board, path: &str, token: &str, body: &Value, traceparents: &[&[u8]]) -> Answer {
    let mut request = Request::post(path).header("authorization", format!("Bearer {token}"));
    for traceparent in traceparents {
        request = request.header("traceparent", HeaderValue::from_bytes(traceparent).expect("a header"));
    }
    let request = request.header("content-type", "application/json").body(Body::from(body.to_string()));
    board.send(request.expect("a request")).await
}

async fn submit(board: &Board, traceparents: &[&[u8]]) -> Value {
    call(board, "/api/v1/builds", &board.api, &json!({ "pipeline": "main" }), traceparents).await.ok()
}

/// Log lines as they are where they are read by machines.
fn listen() -> (Lines, DefaultGuard) {
    let lines = Lines::default();
    let json = tracing_subscriber::fmt().json().flatten_event(true).with_max_level(tracing::Level::DEBUG);
    let guard = tracing::subscriber::set_default(json.with_writer(lines.clone()).finish());
    (lines, guard)
}

/// The traces that a line belongs to: that of what it is about, and that of the request.
fn traces(line: &Value) -> BTreeSet<&str> {
    [&line["trace.id"], &line["span"]["trace.id"]].into_iter().filter_map(Value::as_str).collect()
}

/// The messages of all lines about a build, each of which must belong to `trace`.
fn said_about(lines: &Lines, build: &str, trace: &str) -> BTreeSet<String> {
    let text = lines.text();
    let lines = text.lines().map(|line| serde_json::from_str::<Value>(line).expect("a line of JSON"));
    let about: Vec<Value> = lines.filter(|line| line["build.id"] == build || line["id"] == build).collect();
    for line in &about {
        assert!(traces(line).contains(trace), "{line}");
    }
    about.iter().filter_map(|line| line["message"].as_str().map(str::to_owned)).collect()
}

#[tokio::test]
async fn a_callers_trace_is_in_the_job_in_the_runners_job_and_in_every_log_line_about_the_build() {
    let (lines, _guard) = listen();
    let board = Board::new().await;
    let submitted = submit(&board, &[GIVEN.as_bytes()]).await;
    assert_eq!(submitted["trace_id"], GIVEN_ID);
    let build = submitted["id"].as_str().expect("an id");
    let claim = Uuid::new_v4();
    for time in ["claimed", "asked again"] {
        let job = board.claim_as(&board.worker, claim).await.ok();
        assert_eq!((&job["build_id"], &job["traceparent"]), (&submitted["id"], &json!(GIVEN)), "{time}");
    }
    let id: Uuid = build.parse().expect("an id");
    let log_token = board.shell.seal.log_token(id, &edge::WorkerToken::of(&board.worker).id);
    let fetched = crate::fetches::fetch_by(&board, id, &log_token, Some(&Uuid::new_v4().to_string())).await.ok();
    assert_eq!(fetched["traceparent"], GIVEN);
    let second = crate::fetches::fetch_by(&board, id, &log_token, Some(&Uuid::new_v4().to_string())).await;
    assert_eq!(second.said(), (409, "conflict"));
    // As a worker says it, with each call.
    let about = |what: &str| format!("/internal/worker/builds/{build}/{what}");
    let said: &[&[u8]] = &[GIVEN.as_bytes()];
    let _ = call(&board, &about("heartbeat"), &board.worker, &json!({}), said).await.ok();
    let chunks = json!({ "chunks": [{ "seq": 1, "stream": "stdout", "text": "hi\n" }] });
    let _ = call(&board, &about("logs"), &log_token, &chunks, said).await.ok();
    let report = json!({ "status": "success", "ran_ms": 1, "last_seq": 1 });
    let _ = call(&board, &about("complete"), &board.worker, &report, said).await.ok();
    let said = said_about(&lines, build, GIVEN_ID);
    let fetches = ["job fetched", "job refused to a second fetcher"];
    for message in ["build admitted", "build claimed", "lease renewed", "build ended"].into_iter().chain(fetches) {
        assert!(said.contains(message), "{message} is not among {said:?}");
    }
    assert_eq!(board.get(&format!("/api/v1/builds/{build}")).await.ok()["trace_id"], GIVEN_ID);
}

#[tokio::test]
async fn a_call_that_is_put_off_or_refused_is_in_its_builds_trace_too() {
    let (lines, _guard) = listen();
    let board = Board::new().await;
    let build = board.running().await;
    let path = format!("/internal/worker/builds/{build}/complete");
    let chunks_missing = json!({ "status": "success", "ran_ms": 1, "last_seq": 7 });
    let answer = call(&board, &path, &board.worker, &chunks_missing, &[OTHER.as_bytes()]).await;
    assert_eq!(answer.said(), (409, "logs_missing"));
    let answered = lines.text();
    let line = answered.lines().rfind(|line| line.contains("answered")).expect("the call's line");
    assert!(line.contains("4bf92f3577b34da6a3ce929d0e0e4736"), "{line}");
}

#[tokio::test]
async fn a_build_without_a_trace_is_given_one_of_its_own_and_its_lines_have_it() {
    let (lines, _guard) = listen();
    let board = Board::new().await;
    let (first, second) = (submit(&board, &[]).await, submit(&board, &[]).await);
    assert_ne!(first["trace_id"], second["trace_id"]);
    for build in [&first, &second] {
        let trace = build["trace_id"].as_str().expect("a trace");
        assert!(said_about(&lines, build["id"].as_str().expect("an id"), trace).contains("build admitted"));
        let job = board.claim_as(&board.worker, Uuid::new_v4()).await.ok();
        assert!(job["traceparent"].as_str().is_some_and(|said| said.starts_with(&format!("00-{trace}-"))), "{job}");
    }
}

#[tokio::test]
async fn what_is_no_traceparent_is_ignored_and_refuses_nothing() {
    let board = Board::new().await;
    let long = [GIVEN.as_bytes(), &[b'-'; 8000]].concat();
    let mut seen = BTreeSet::new();
    let hostile: &[&[&[u8]]] = &[
        &[b""],
        &[b"00"],
        &[&GIVEN.as_bytes()[..54]],
        &[&long],
        &[b"00-0AF7651916CD43DD8448EB211C80319C-B7AD6B7169203331-01"],
        &[b"00-00000000000000000000000000000000-b7ad6b7169203331-01"],
        &[b"00-0af7651916cd43dd8448eb211c80319c-0000000000000000-01"],
        &[b"ff-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"],
        &[b"00-'; drop table builds; --\"}{%n${x}319c-b7ad6b7169203331-01"],
        &[b"\xff\xfe\x80"],
        &["00-é".as_bytes()],
        &[GIVEN.as_bytes(), OTHER.as_bytes()],
        &[GIVEN.as_bytes(), GIVEN.as_bytes()],
    ];
    for said in hostile {
        let build = submit(&board, said).await;
        let trace = build["trace_id"].as_str().expect("a trace").to_owned();
        assert_eq!((trace.len(), trace == GIVEN_ID), (32, false), "{said:?}");
        assert!(seen.insert(trace), "{said:?}");
        let _ = board.claim().await;
    }
    board.holds_together().await;
}

#[tokio::test]
async fn a_repeat_of_a_submit_keeps_the_first_trace_and_a_retry_has_another() {
    let board = Board::new().await;
    let repeated = |traceparent: &'static str| {
        let request = Request::post("/api/v1/builds")
            .header("authorization", format!("Bearer {}", board.api))
            .header("content-type", "application/json")
            .header("idempotency-key", "k")
            .header("traceparent", traceparent);
        request.body(Body::from(r#"{"pipeline":"main"}"#)).expect("a request")
    };
    let first = board.send(repeated(GIVEN)).await.ok();
    let again = board.send(repeated(OTHER)).await.ok();
    assert_eq!((&again["id"], &again["trace_id"]), (&first["id"], &json!(GIVEN_ID)));
    let build = board.claim().await.expect("a build");
    let _ = board.complete(build, &json!({ "status": "failed", "ran_ms": 1 })).await.ok();
    let path = format!("/api/v1/builds/{build}/retry");
    let without = call(&board, &path, &board.api, &json!({}), &[]).await.ok();
    assert!(without["trace_id"].is_string() && without["trace_id"] != GIVEN_ID, "{without}");
    let with = call(&board, &path, &board.api, &json!({}), &[OTHER.as_bytes()]).await.ok();
    assert_eq!(with["trace_id"], "4bf92f3577b34da6a3ce929d0e0e4736");
}

#[tokio::test]
async fn what_is_cancelled_reaped_or_never_started_is_in_its_trace_whoever_says_so() {
    let (lines, _guard) = listen();
    let board = Board::new().await;
    let _ = submit(&board, &[GIVEN.as_bytes()]).await;
    let lost = board.claim().await.expect("a build");
    let cancel = format!("/api/v1/builds/{lost}/cancel");
    let _ = call(&board, &cancel, &board.api, &json!({}), &[OTHER.as_bytes()]).await.ok();
    let waiting = submit(&board, &[GIVEN.as_bytes()]).await;
    let waiting = waiting["id"].as_str().expect("an id");
    board.age(lost, 300).await;
    board
        .execute(&format!("update builds set created_at = created_at - interval '2 days' where id = '{waiting}'"))
        .await;
    let _ = board.sweep().await;
    let said = said_about(&lines, &lost.to_string(), GIVEN_ID);
    assert!(said.contains("cancel asked for") && said.contains("build reaped"), "{said:?}");
    assert!(said_about(&lines, waiting, GIVEN_ID).contains("build never started"));
}

#[tokio::test]
async fn a_build_from_before_there_were_traces_runs_as_ever() {
    let board = Board::new().await;
    let build = board.submit().await;
    board.execute("update build_specs set traceparent = null").await;
    let shown = board.get(&format!("/api/v1/builds/{build}")).await.ok();
    assert!(shown.get("trace_id").is_none(), "{shown}");
    let job = board.claim_as(&board.worker, Uuid::new_v4()).await.ok();
    assert!(job.get("traceparent").is_none(), "{job}");
    let _ = board.complete(build, &json!({ "status": "success", "ran_ms": 1 })).await.ok();
    let retry = board.call(Method::POST, &format!("/api/v1/builds/{build}/retry"), &board.api, &Value::Null).await.ok();
    assert!(retry["trace_id"].is_string(), "{retry}");
}

#[tokio::test]
async fn a_trace_is_written_once_beside_what_never_changes_and_in_no_index() {
    let board = Board::new().await;
    let indexed = "select count(*) from pg_indexes where indexdef like '%traceparent%'";
    assert_eq!(board.number(indexed).await, 0);
    let of_builds = "select count(*) from information_schema.columns where column_name = 'traceparent' and table_name <> 'build_specs'";
    assert_eq!(board.number(of_builds).await, 0);
    let build = board.running().await;
    let version = format!("select xmin::text::bigint from build_specs where build_id = '{build}'");
    let written = board.number(&version).await;
    let _ = board.work(&format!("builds/{build}/heartbeat"), &json!({})).await.ok();
    let _ = board.complete(build, &json!({ "status": "success", "ran_ms": 1 })).await.ok();
    assert_eq!(board.number(&version).await, written);
}
