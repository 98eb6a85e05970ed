//! A build that is followed while the network does what it wants.

use crate::{ID, TOKEN, build, command, run};
use axum::Router;
use axum::extract::{Query, State};
use axum::http::header::{ACCEPT, CONTENT_TYPE};
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse as _, Response};
use axum::routing::{get, post};
use serde_json::{Value, json};
use std::collections::{HashMap, VecDeque};
use std::process::Stdio;
use std::sync::{Arc, Mutex};

/// What the board does with one request for a log.
#[derive(Clone)]
enum Answer {
    /// A stream of this, which breaks off after it.
    Stream(String),
    /// A page of this, whatever was asked for.
    Page(Value),
    /// A load balancer's page.
    Down,
}

/// A board whose log answers are laid out before.
#[derive(Clone, Default)]
struct Fake {
    answers: Arc<Mutex<VecDeque<Answer>>>,
    asked: Arc<Mutex<Vec<(String, String)>>>,
    keys: Arc<Mutex<Vec<String>>>,
}

fn chunk(seq: u64, text: &str) -> Value {
    json!({ "seq": seq, "step": "test", "stream": "stdout", "at_ms": seq, "text": text })
}

fn event(seq: u64, text: &str) -> String {
    format!("id: {seq}\nevent: chunk\ndata: {}\n\n", chunk(seq, text))
}

const END: &str = "id: 3\nevent: end\ndata: {\"status\":\"success\",\"end_reason\":null,\"capped\":true}\n\n";

async fn log(State(fake): State<Fake>, Query(query): Query<HashMap<String, String>>, headers: HeaderMap) -> Response {
    let header = |name| headers.get(name).map(|value| value.to_str().expect("text").to_owned()).unwrap_or_default();
    let after = query.get("after").cloned().unwrap_or_else(|| header("last-event-id"));
    fake.asked.lock().expect("asked").push((header(ACCEPT.as_str()), after));
    let answer = fake.answers.lock().expect("answers").pop_front();
    match answer.unwrap_or(Answer::Stream(END.into())) {
        Answer::Stream(events) => ([(CONTENT_TYPE, "text/event-stream")], events).into_response(),
        Answer::Page(page) => axum::Json(page).into_response(),
        Answer::Down => (StatusCode::BAD_GATEWAY, "<html>bad gateway</html>").into_response(),
    }
}

async fn read(State(fake): State<Fake>) -> axum::Json<Value> {
    let over = fake.answers.lock().expect("answers").is_empty();
    axum::Json(build(if over { "success" } else { "running" }))
}

/// Takes a submission at the third try.
async fn submit(State(fake): State<Fake>, headers: HeaderMap) -> Response {
    let mut keys = fake.keys.lock().expect("keys");
    keys.push(headers["idempotency-key"].to_str().expect("text").to_owned());
    if keys.len() < 3 {
        return (StatusCode::BAD_GATEWAY, "<html>bad gateway</html>").into_response();
    }
    (StatusCode::CREATED, axum::Json(build("running"))).into_response()
}

async fn list(Query(query): Query<HashMap<String, String>>) -> axum::Json<Value> {
    let count = query["limit"].parse::<usize>().expect("a number");
    let page = json!({ "builds": vec![build("success"); count], "next_cursor": "more/&" });
    assert!(query.get("cursor").is_none_or(|cursor| cursor == "more/&"));
    axum::Json(page)
}

async fn board(answers: &[Answer]) -> (Fake, String) {
    let fake = Fake { answers: Arc::new(Mutex::new(answers.iter().cloned().collect())), ..Fake::default() };
    let app = Router::new()
        .route("/api/v1/builds", post(submit).get(list))
        .route("/api/v1/builds/{id}", get(read))
        .route("/api/v1/builds/{id}/logs", get(log))
        .with_state(fake.clone());
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let url = format!("http://{}", listener.local_addr().expect("an address"));
    tokio::spawn(async move { axum::serve(listener, app).await });
    (fake, url)
}

fn asked(fake: &Fake) -> Vec<(String, String)> {
    fake.asked.lock().expect("asked").clone()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stream_that_breaks_off_is_taken_up_again_and_no_chunk_is_lost_or_doubled() {
    let cut = event(2, "two\n");
    let answers = [
        Answer::Stream(event(1, "one\n") + &cut[..cut.len() / 2]),
        Answer::Stream(event(1, "one\n") + &event(2, "two\n")),
        Answer::Stream(event(3, "three\n") + END),
    ];
    let (fake, url) = board(&answers).await;
    let (exit, stdout, _) = run(command(&url, &["build", "logs", "-f", ID])).await;
    assert_eq!((exit, stdout.as_str()), (0, "one\ntwo\nthree\n"));
    let stream = |after: &str| ("text/event-stream".to_owned(), after.to_owned());
    assert_eq!(asked(&fake), [stream("0"), stream("1"), stream("2")]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_board_that_is_away_for_a_while_is_waited_for() {
    let answers =
        [Answer::Stream(event(1, "one\n")), Answer::Down, Answer::Down, Answer::Stream(event(2, "two\n") + END)];
    let (_, url) = board(&answers).await;
    let (exit, stdout, stderr) = run(command(&url, &["build", "logs", "-f", ID])).await;
    assert_eq!((exit, stdout.as_str()), (0, "one\ntwo\n"));
    assert!(stderr.contains("the build goes on, trying again") && stderr.contains("has reached its cap"), "{stderr}");
}

#[tokio::test(flavor = "multi_thread")]
async fn where_no_stream_gets_through_the_log_comes_in_pages() {
    let page = |seq: u64, complete: bool| {
        Answer::Page(json!({ "chunks": [chunk(seq, "x\n")], "last_seq": seq, "complete": complete, "capped": false }))
    };
    let (fake, url) = board(&[page(1, false), page(1, false), page(2, true)]).await;
    let (exit, stdout, _) = run(command(&url, &["build", "logs", "-f", ID])).await;
    assert_eq!((exit, stdout.as_str()), (0, "x\nx\n"));
    let kinds: Vec<_> =
        asked(&fake).into_iter().map(|(accept, after)| (accept.contains("event-stream"), after)).collect();
    assert_eq!(kinds, [(true, "0".into()), (false, "0".into()), (false, "1".into())]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_refusal_ends_it_at_once() {
    let (_, url) = board(&[]).await;
    let missing = "01a2308a-c2ff-7509-a0e1-a6168fbb6d21/none";
    let (exit, _, stderr) = run(command(&url, &["build", "logs", "-f", missing])).await;
    assert_eq!((exit, stderr.contains("error: invalid value")), (2, true), "{stderr}");
    let (exit, _, stderr) = run(command(&format!("{url}/elsewhere"), &["build", "logs", "-f", ID])).await;
    assert_eq!(exit, 5, "{stderr}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_log_into_a_pipe_is_the_bytes_of_the_steps() {
    let bytes = "\u{1b}[31mred\u{1b}[0m \u{1b}]0;title\u{7}\r\n";
    let page = json!({ "chunks": [chunk(1, bytes)], "last_seq": 1, "complete": true, "capped": false });
    let (_, url) = board(&[Answer::Page(page.clone())]).await;
    let (exit, stdout, _) = run(command(&url, &["build", "logs", ID])).await;
    assert_eq!((exit, stdout.as_str()), (0, bytes));
    let (_, url) = board(&[Answer::Page(page)]).await;
    let (_, stdout, _) = run(command(&url, &["build", "logs", ID, "--json"])).await;
    assert_eq!(serde_json::from_str::<Value>(&stdout).expect("one line of JSON"), chunk(1, bytes));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_submission_that_is_sent_again_carries_the_same_key() {
    let (fake, url) = board(&[]).await;
    let (exit, stdout, stderr) = run(command(&url, &["build", "submit", "app", "--json"])).await;
    assert_eq!(exit, 0, "{stderr}");
    assert_eq!(serde_json::from_str::<Value>(&stdout).expect("JSON")["id"], ID);
    let keys = fake.keys.lock().expect("keys").clone();
    assert!(keys.len() == 3 && keys[0].len() == 36 && keys.iter().all(|key| *key == keys[0]), "{keys:?}");
    let args = ["build", "submit", "app", "--idempotency-key", "mine"];
    assert_eq!(run(command(&url, &args)).await.0, 0);
    assert_eq!(fake.keys.lock().expect("keys").last().map(String::as_str), Some("mine"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_long_list_is_read_page_by_page_and_its_json_is_one() {
    let (_, url) = board(&[]).await;
    let (exit, stdout, stderr) = run(command(&url, &["build", "list", "--limit", "230", "--json"])).await;
    assert_eq!(exit, 0, "{stderr}");
    let all: Value = serde_json::from_str(&stdout).expect("JSON");
    assert_eq!((all["builds"].as_array().map(Vec::len), &all["next_cursor"]), (Some(230), &json!("more/&")));
}

#[tokio::test(flavor = "multi_thread")]
async fn output_that_nobody_reads_is_no_success() {
    let page = json!({ "chunks": [chunk(1, &"x".repeat(1 << 20))], "last_seq": 1, "complete": true, "capped": false });
    let (_, url) = board(&[Answer::Page(page)]).await;
    let mut command = command(&url, &["build", "logs", ID]);
    let ended = tokio::task::spawn_blocking(move || {
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("it runs");
        drop(child.stdout.take());
        child.wait_with_output().expect("it ends")
    });
    let ended = ended.await.expect("joined");
    assert_eq!((ended.status.code(), ended.stderr.as_slice()), (Some(141), &b""[..]));
    assert!(!String::from_utf8_lossy(&ended.stderr).contains(TOKEN));
}
