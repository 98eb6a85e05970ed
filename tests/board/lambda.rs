//! The same routes behind AWS's Lambda runtime: a small runtime API hands out events as API Gateway makes them.

mod cluster;
mod secret;
mod server;
mod service;
mod tasks;
mod user;

use crate::Board;
use axum::extract::{Path, State};
use axum::response::{IntoResponse as _, Response};
use axum::routing::{get, post};
use axum::{Json, Router};
use serde_json::{Value, json};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use tokio::sync::{Mutex, mpsc};
use uuid::Uuid;

/// Events to hand out, and where answers go.
struct Runtime {
    events: Mutex<mpsc::Receiver<Value>>,
    answers: mpsc::Sender<Value>,
}

async fn next(State(runtime): State<Arc<Runtime>>) -> Response {
    let event = runtime.events.lock().await.recv().await;
    let headers = [
        ("lambda-runtime-aws-request-id", "8476a536-e9f4-11e8-9739-2dfe598c3fcd"),
        ("lambda-runtime-deadline-ms", "4102444800000"),
        ("lambda-runtime-invoked-function-arn", "arn:aws:lambda:us-east-1:123456789012:function:board"),
    ];
    (headers, Json(event.unwrap_or(Value::Null))).into_response()
}

/// An answer, or an error, to an event.
async fn answer(State(runtime): State<Arc<Runtime>>, Path(_): Path<(String, String)>, body: String) -> &'static str {
    let answer = serde_json::from_str(&body).unwrap_or_else(|_| json!({ "not_json": body }));
    let _ = runtime.answers.send(answer).await;
    ""
}

/// A function on a runtime of the test's own.
struct OnLambda {
    process: Child,
    events: mpsc::Sender<Value>,
    answers: mpsc::Receiver<Value>,
}

impl OnLambda {
    /// Every function's routes, by the settings of a board's tests.
    async fn start(database_url: &str) -> Self {
        let key = format!("test:{}", "07".repeat(32));
        Self::run("routes", &[("CALLBOARD_DATABASE_URL", database_url), ("CALLBOARD_SECRETS_KEY", &key)]).await
    }

    /// `what`: `routes`, or `reaper` for that function.
    async fn run(what: &str, settings: &[(&str, &str)]) -> Self {
        let ((events, taken), (given, answers)) = (mpsc::channel(1), mpsc::channel(1));
        let runtime = Arc::new(Runtime { events: Mutex::new(taken), answers: given });
        let app = Router::new()
            .route("/2018-06-01/runtime/invocation/next", get(next))
            .route("/2018-06-01/runtime/invocation/{id}/{what}", post(answer))
            .with_state(runtime);
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = listener.local_addr().expect("an address").to_string();
        tokio::spawn(async move { axum::serve(listener, app).await });
        let process = Command::new(env!("CARGO_BIN_EXE_on_lambda"))
            .env("AWS_LAMBDA_RUNTIME_API", address)
            .env("AWS_LAMBDA_FUNCTION_NAME", "board")
            .env("AWS_LAMBDA_FUNCTION_VERSION", "1")
            .env("AWS_LAMBDA_FUNCTION_MEMORY_SIZE", "128")
            .env("AWS_LAMBDA_LOG_STREAM_NAME", "stream")
            .env("AWS_LAMBDA_LOG_GROUP_NAME", "group")
            .arg(what)
            .envs(settings.iter().copied())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("it starts");
        Self { process, events, answers }
    }

    /// Any event, and what comes of it.
    async fn send(&mut self, event: Value) -> Value {
        self.events.send(event).await.expect("taken");
        self.answers.recv().await.expect("an answer")
    }

    /// An event as API Gateway's HTTP API makes it; the answer's status and its body.
    async fn call(&mut self, method: &str, path: &str, token: &str, body: &Value) -> (u64, Value) {
        let http = json!({ "method": method, "path": path, "protocol": "HTTP/1.1", "sourceIp": "127.0.0.1", "userAgent": "test" });
        let event = json!({
            "version": "2.0", "routeKey": "$default", "rawPath": path, "rawQueryString": "",
            "headers": { "authorization": format!("Bearer {token}"), "content-type": "application/json", "host": "board.example" },
            "requestContext": {
                "accountId": "123456789012", "apiId": "api", "domainName": "board.example", "domainPrefix": "board", "http": http,
                "requestId": "request", "routeKey": "$default", "stage": "$default",
                "time": "01/Dec/2026:00:00:00 +0000", "timeEpoch": 1_796_083_200_000_u64 },
            "body": body.to_string(), "isBase64Encoded": false });
        let answer = self.send(event).await;
        let body = answer["body"].as_str().and_then(|body| serde_json::from_str(body).ok()).unwrap_or(Value::Null);
        (answer["statusCode"].as_u64().unwrap_or(0), body)
    }
}

impl Drop for OnLambda {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_build_goes_from_submit_to_its_end_on_lambda() {
    let board = Board::new().await;
    let mut function = OnLambda::start(&board.shell.config.database_url).await;
    let (status, build) = function.call("POST", "/api/v1/builds", &board.api, &json!({ "pipeline": "main" })).await;
    assert_eq!(status, 201, "{build}");
    let claim = json!({ "claim_id": Uuid::new_v4(), "worker": { "name": "w", "isolation": ["bubblewrap"] } });
    let (status, job) = function.call("POST", "/internal/worker/claim", &board.worker, &claim).await;
    assert_eq!((status, &job["build_id"]), (200, &build["id"]), "{job}");
    let path = |call: &str| format!("/internal/worker/builds/{}/{call}", build["id"].as_str().expect("an id"));
    let (status, _) = function.call("POST", &path("heartbeat"), &board.worker, &json!({})).await;
    assert_eq!(status, 200);
    let chunks = json!({ "chunks": [{ "seq": 1, "stream": "stdout", "text": "hi\n" }] });
    let (status, _) = function.call("POST", &path("logs"), job["log_token"].as_str().expect("a token"), &chunks).await;
    assert_eq!(status, 200);
    let report = json!({ "status": "success", "ran_ms": 1, "last_seq": 1 });
    let (status, done) = function.call("POST", &path("complete"), &board.worker, &report).await;
    assert_eq!((status, &done["status"]), (200, &json!("success")));
    let (status, problem) = function.call("POST", &path("heartbeat"), "nonsense", &json!({})).await;
    assert_eq!((status, &problem["code"]), (401, &json!("unauthorized")));
    board.holds_together().await;
}

/// As EventBridge sends it to a target, and as the queue hands the same on.
fn scheduled() -> [Value; 2] {
    let event = json!({
        "version": "0", "id": "53dc4d37-cffa-4f76-80c9-8b7d4a4d2eaa", "detail-type": "Scheduled Event", "source": "aws.events",
        "account": "123456789012", "time": "2026-12-01T00:00:00Z", "region": "us-east-1", "resources": [], "detail": {} });
    let record = json!({ "messageId": "1", "eventSource": "aws:sqs", "body": event.to_string() });
    [event, json!({ "Records": [record] })]
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_reaper_sweeps_at_its_schedules_events_and_at_a_request_with_an_operators_token_only() {
    let board = Board::new().await;
    let key = format!("test:{}", "07".repeat(32));
    let url = board.shell.config.database_url.as_str();
    let settings = [("CALLBOARD_DATABASE_URL", url), ("CALLBOARD_SECRETS_KEY", key.as_str())];
    let mut reaper = OnLambda::run("reaper", &settings).await;
    for event in scheduled() {
        let swept = reaper.send(event).await;
        assert_eq!((&swept["errors"], &swept["paused"]), (&json!(0), &json!(false)), "{swept}");
    }
    let path = "/api/v1/admin/sweep";
    let (status, problem) = reaper.call("POST", path, &board.api, &Value::Null).await;
    assert_eq!((status, &problem["code"]), (401, &json!("unauthorized")));
    let (status, swept) = reaper.call("POST", path, &board.operator, &Value::Null).await;
    assert_eq!((status, &swept["errors"]), (200, &json!(0)));
    // A request to anything else is no event of the schedule.
    let (status, _) = reaper.call("GET", "/", &board.operator, &Value::Null).await;
    assert_eq!(status, 404);
}

/// Where the one connection of a function is.
const BACKEND: &str = "select pid::bigint from pg_stat_activity
    where datname = current_database() and application_name = 'callboard' and pid <> pg_backend_pid()";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_instance_has_one_connection_opened_at_its_first_call_and_another_when_that_was_ended() {
    let board = Board::new().await;
    let connections = format!("select count(*) from ({BACKEND}) b");
    // Those that the set-up of the board has left.
    board.execute(&format!("select pg_terminate_backend(pid::int) from ({BACKEND}) b")).await;
    let mut function = OnLambda::start(&board.shell.config.database_url).await;
    assert_eq!(function.call("GET", "/healthz", "", &Value::Null).await.0, 200);
    let build = function.call("POST", "/api/v1/builds", &board.api, &json!({ "pipeline": "main" })).await;
    assert_eq!((build.0, board.number(&connections).await), (201, 1));
    for _ in 0..3 {
        let first = board.number(BACKEND).await;
        board.execute(&format!("select pg_terminate_backend({first}::int, 5000)")).await;
        assert_eq!(function.call("GET", "/api/v1/builds", &board.api, &Value::Null).await.0, 200);
        assert_ne!(board.number(BACKEND).await, first);
        assert_eq!(board.number(&connections).await, 1);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_connection_whose_other_side_says_nothing_is_given_up() {
    use nix::sys::signal::{Signal, kill};
    let board = Board::new().await;
    board.execute(&format!("select pg_terminate_backend(pid::int) from ({BACKEND}) b")).await;
    let mut function = OnLambda::start(&board.shell.config.database_url).await;
    assert_eq!(function.call("GET", "/api/v1/builds", &board.api, &Value::Null).await.0, 200);
    let pid = i32::try_from(board.number(BACKEND).await).expect("a process");
    let backend = nix::unistd::Pid::from_raw(pid);
    kill(backend, Signal::SIGSTOP).expect("stopped");
    let answered = function.call("GET", "/api/v1/builds", &board.api, &Value::Null);
    let answered = tokio::time::timeout(std::time::Duration::from_secs(20), answered).await;
    kill(backend, Signal::SIGCONT).expect("going on");
    assert_eq!(answered.expect("in time").0, 200);
}
