//! What must never be in a log line: tokens, values of secrets and variables, what builds print (SPEC.md, promise 7).

use crate::Board;
use crate::reference::{Manner, Service, TOKEN};
use http::{Method, Request};
use serde_json::{Value, json};
use std::io::Write;
use std::sync::{Arc, Mutex};
use tracing_subscriber::fmt::MakeWriter;
use uuid::Uuid;

#[derive(Clone, Default)]
struct Lines(Arc<Mutex<Vec<u8>>>);

impl Write for Lines {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().expect("lines").write(bytes)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

impl MakeWriter<'_> for Lines {
    type Writer = Self;

    fn make_writer(&self) -> Self {
        self.clone()
    }
}

#[tokio::test]
async fn no_token_secret_variable_or_output_is_in_a_log_line_however_much_is_logged() {
    let lines = Lines::default();
    let subscriber =
        tracing_subscriber::fmt().with_max_level(tracing::Level::TRACE).with_writer(lines.clone()).finish();
    let _guard = tracing::subscriber::set_default(subscriber);
    let board = Board::new().await;
    let put = |name: &str, value: Value| {
        let path = format!("/api/v1/secrets/{name}");
        let board = &board;
        async move { board.call(Method::PUT, &path, &board.api, &value).await }
    };
    let _ = put("TOKEN", json!({ "value": "s3cret-value" })).await.ok();
    let _ = put("BAD", json!({ "value": { "nested": "s3cret-value" } })).await;
    let mut spec = crate::scenario::pipeline();
    spec["secrets"] = json!(["TOKEN"]);
    let _ = board.call(Method::PUT, "/api/v1/pipelines/main", &board.api, &spec).await.ok();
    let submit = json!({ "pipeline": "main", "env": { "A": "env-value" } });
    let _ = board.call(Method::POST, "/api/v1/builds", &board.api, &submit).await.ok();
    let job = board.claim_as(&board.worker, Uuid::new_v4()).await.ok();
    assert_eq!(job["secrets"]["TOKEN"], "s3cret-value");
    let build = job["build_id"].as_str().and_then(|id| id.parse().ok()).expect("an id");
    let log_token = job["log_token"].as_str().expect("a token");
    let fetcher = Uuid::new_v4().to_string();
    let fetched = crate::fetches::fetch_by(&board, build, log_token, Some(&fetcher)).await.ok();
    assert_eq!(fetched["secrets"]["TOKEN"], "s3cret-value");
    let other = crate::fetches::fetch_by(&board, build, log_token, Some(&Uuid::new_v4().to_string())).await;
    assert_eq!(other.said(), (409, "conflict"));
    let _ = board.send_logs(build, &[(1, "output-of-a-build")]).await.ok();
    for message in ["message-of-a-runner", "other-message-of-a-runner"] {
        let report = json!({ "outcome": "failed", "error_message": message });
        let _ = crate::reports::report_by(&board, build, log_token, Some(&fetcher), &report).await;
    }
    let report = json!({ "status": "failed", "ran_ms": 1, "last_seq": 1, "error_message": "message-of-a-build" });
    let _ = board.complete(build, &report).await.ok();
    let stranger = Request::get("/api/v1/builds").header("authorization", "Bearer cba_stranger-token");
    let _ = board.send(stranger.body(axum::body::Body::empty()).expect("a request")).await;
    let text = String::from_utf8(lines.0.lock().expect("lines").clone()).expect("text");
    let refused = ["job refused to a second fetcher", "report refused: another one is stored"];
    for line in ["build claimed", "job fetched", "build reported on", "build ended"].into_iter().chain(refused) {
        assert!(text.contains(line), "what is looked through are our lines: {line}");
    }
    for secret in [
        "s3cret-value",
        "env-value",
        "output-of-a-build",
        "message-of-a-build",
        "message-of-a-runner",
        "stranger-token",
        log_token,
        &board.api,
        &board.worker,
        &board.operator,
    ] {
        let line = text.lines().find(|line| line.contains(secret));
        assert_eq!(line, None, "{secret}");
    }
}

#[tokio::test]
async fn neither_the_billing_services_token_nor_what_it_says_is_in_a_log_line() {
    let lines = Lines::default();
    let subscriber =
        tracing_subscriber::fmt().with_max_level(tracing::Level::TRACE).with_writer(lines.clone()).finish();
    let _guard = tracing::subscriber::set_default(subscriber);
    let service = Service::start().await;
    let timeout = std::time::Duration::from_secs(10);
    let board = Board::with(|config| config.billing = Some(service.settings(timeout))).await;
    let said = "said-by-the-service";
    for (number, manner) in [
        Manner::Says(callboard_tests::billing::plan(1000, 4, 10).replace("Gold", said)),
        Manner::Says(format!("{{\"minutes_per_month\": \"{said}\"}}")),
        Manner::Says(said.into()),
        Manner::Answers(500, "text/plain", said.into()),
        Manner::ClosesMidBody,
        Manner::Redirects,
    ]
    .into_iter()
    .enumerate()
    {
        let slug = format!("t{number}");
        service.set(&slug, manner);
        let api = board.tenant(&slug, Value::Null).await;
        let _ = board.call(Method::POST, "/api/v1/builds", &api, &json!({ "pipeline": "main" })).await;
        assert_eq!(service.asked(&slug), 1);
    }
    let _ = board.sweep().await;
    let text = String::from_utf8(lines.0.lock().expect("lines").clone()).expect("text");
    assert!(text.contains("plan can't be fetched") && text.contains("plan fetched"), "our lines are among them");
    for secret in [TOKEN, said] {
        assert_eq!(text.lines().find(|line| line.contains(secret)), None, "{secret}");
    }
}

#[tokio::test]
async fn a_submit_without_a_plan_is_a_warning_and_no_error() {
    let lines = Lines::default();
    let subscriber = tracing_subscriber::fmt()
        .with_max_level(tracing::Level::WARN)
        .with_ansi(false)
        .with_writer(lines.clone())
        .finish();
    let board = Board::new().await;
    board.workspace("planless", &Value::Null).await;
    let api = board.token(protocol::admin::TokenKind::Api, Some("planless")).await;
    board.pipeline(&api, "main", &crate::scenario::pipeline()).await;
    let _guard = tracing::subscriber::set_default(subscriber);
    let answer = board.call(Method::POST, "/api/v1/builds", &api, &json!({ "pipeline": "main" })).await;
    assert_eq!(answer.said(), (503, "billing_unavailable"));
    let text = String::from_utf8(lines.0.lock().expect("lines").clone()).expect("text");
    assert_eq!((text.lines().count(), text.contains(" WARN "), text.contains("ERROR")), (1, true, false), "{text}");
}
