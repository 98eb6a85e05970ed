//! The same routes behind AWS's Lambda runtime: a small runtime API hands out events as API Gateway makes them.

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
    async fn start(database_url: &str) -> Self {
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
            .env("CALLBOARD_DATABASE_URL", database_url)
            .env("CALLBOARD_SECRETS_KEY", format!("test:{}", "07".repeat(32)))
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("it starts");
        Self { process, events, answers }
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
        self.events.send(event).await.expect("taken");
        let answer = self.answers.recv().await.expect("an answer");
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
