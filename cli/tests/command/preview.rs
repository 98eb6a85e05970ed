//! `callboard preview` as it is typed.

use super::{ID, command, run};
use axum::Router;
use axum::extract::Path;
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse as _, Response};
use axum::routing::{get, post};
use serde_json::{Value, json};

fn preview(status: &str) -> Value {
    let mut preview = json!({
        "id": ID, "build_id": ID, "pipeline": "app", "status": status, "retain_failed": false, "version": 7,
        "created_at": "2026-12-01T00:00:00Z", "expires_at": "2999-12-01T00:00:00Z" });
    match status {
        "running" => preview["url"] = json!("http://127.0.0.1:20001"),
        "starting" => preview["waiting_for"] = json!("quota"),
        _ => {}
    }
    preview
}

fn changed(headers: &HeaderMap, status: &str) -> Response {
    if headers.get("if-match").is_some_and(|version| version != "\"7\"") {
        let problem = json!({ "type": "about:blank", "title": "Precondition Failed", "status": 412,
            "code": "concurrent_update", "detail": "changed since you read it; read it again", "request_id": "r" });
        return (StatusCode::PRECONDITION_FAILED, axum::Json(problem)).into_response();
    }
    axum::Json(preview(status)).into_response()
}

/// A board with one preview in this state.
async fn board(status: &'static str) -> String {
    let read = move |_: Path<String>| async move { axum::Json(preview(status)) };
    let destroy = |headers: HeaderMap| async move { changed(&headers, "destroying") };
    let extend = move |headers: HeaderMap, body: axum::Json<Value>| async move {
        assert!(body.0 == json!({ "ttl_seconds": 5400 }) || body.0 == json!({}), "{}", body.0);
        changed(&headers, status)
    };
    let app = Router::new()
        .route("/api/v1/previews", get(move || async move { axum::Json(json!({ "previews": [preview(status)] })) }))
        .route("/api/v1/previews/{id}", get(read).delete(destroy))
        .route("/api/v1/previews/{id}/extend", post(extend));
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let url = format!("http://{}", listener.local_addr().expect("an address"));
    tokio::spawn(async move { axum::serve(listener, app).await });
    url
}

#[tokio::test(flavor = "multi_thread")]
async fn open_prints_the_address_alone_and_says_why_there_is_none() {
    let (exit, stdout, _) = run(command(&board("running").await, &["preview", "open", ID])).await;
    assert_eq!((exit, stdout.as_str()), (0, "http://127.0.0.1:20001\n"));
    let (exit, stdout, stderr) = run(command(&board("starting").await, &["preview", "open", ID])).await;
    assert_eq!((exit, stdout.as_str()), (2, ""));
    assert!(stderr.contains("waits for a place"), "{stderr}");
}

#[tokio::test(flavor = "multi_thread")]
async fn previews_are_listed_extended_and_destroyed_under_the_version_that_was_seen() {
    let url = board("running").await;
    let (exit, stdout, _) = run(command(&url, &["preview", "list"])).await;
    assert!(exit == 0 && stdout.contains(ID) && stdout.contains("http://127.0.0.1:20001"), "{stdout}");
    for more in [&[][..], &["--for", "1h30m"], &["--if-version", "7"]] {
        let (exit, stdout, stderr) = run(command(&url, &[&["preview", "extend", ID], more].concat())).await;
        assert!(exit == 0 && stdout.contains("lives"), "{stdout}{stderr}");
    }
    let (exit, _, stderr) = run(command(&url, &["preview", "destroy", ID, "--if-version", "6"])).await;
    assert!(exit == 5 && stderr.contains("concurrent_update"), "{stderr}");
    let (exit, stdout, _) = run(command(&url, &["preview", "destroy", ID])).await;
    assert!(exit == 0 && stdout.contains("as soon as its host calls"), "{stdout}");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_there_is_no_preview_or_no_time_for_is_said() {
    let (exit, stdout, _) = run(command(&board("running").await, &["preview", "logs", ID])).await;
    assert!(exit == 0 && stdout.contains("callboard build logs"), "{stdout}");
    let (exit, _, stderr) = run(command("http://127.0.0.1:1", &["preview", "extend", ID, "--for", "25h"])).await;
    assert!(exit == 2 && stderr.contains("longer than a day"), "{stderr}");
}
