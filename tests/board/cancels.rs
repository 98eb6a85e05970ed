//! Who asks for a build's end, and what comes of it (SPEC.md, Builds).

use crate::Board;
use http::{Method, Request};
use serde_json::{Value, json};

#[tokio::test]
async fn a_cancel_of_a_waiting_build_ends_it_and_costs_nothing() {
    let board = Board::new().await;
    let (first, second) = (board.submit().await, board.submit().await);
    let cancel = format!("/api/v1/builds/{first}/cancel");
    for _ in 0..2 {
        let build = board.call(Method::POST, &cancel, &board.api, &Value::Null).await.ok();
        assert_eq!((&build["status"], &build["end_reason"]), (&json!("cancelled"), &json!("user")));
        assert_eq!(build["charged_seconds"], 0);
    }
    assert_eq!(board.claim().await, Some(second));
    board.holds_together().await;
}

#[tokio::test]
async fn a_cancel_of_a_running_build_is_told_to_its_worker_and_changes_no_status() {
    let board = Board::new().await;
    let build = board.running().await;
    let cancel = format!("/api/v1/builds/{build}/cancel");
    let body = json!({ "reason": "superseded" });
    let seen = board.call(Method::POST, &cancel, &board.api, &body).await.ok();
    assert_eq!((&seen["status"], &seen["cancel_requested"]), (&json!("running"), &json!(true)));
    let beat = board.work(&format!("builds/{build}/heartbeat"), &json!({})).await.ok();
    assert_eq!(beat["cancel"], "superseded");
    let stored = board.send_logs(build, &[(1, "x")]).await.ok();
    assert_eq!(stored["cancel"], "superseded");
    let report = json!({ "status": "cancelled", "ran_ms": 1, "last_seq": 1 });
    assert_eq!(board.complete(build, &report).await.ok()["status"], "cancelled");
    assert_eq!(board.build(build).await["end_reason"], "superseded");
}

#[tokio::test]
async fn a_cancel_with_a_stale_version_is_412_and_changes_nothing() {
    let board = Board::new().await;
    let build = board.submit().await;
    let cancel = |version: &str| {
        Request::post(format!("/api/v1/builds/{build}/cancel"))
            .header("authorization", format!("Bearer {}", board.api))
            .header("if-match", version)
            .body(axum::body::Body::empty())
            .expect("a request")
    };
    let version = board.build(build).await["version"].as_i64().expect("a version");
    let stale = board.send(cancel(&format!("\"{}\"", version + 1))).await;
    assert_eq!(stale.said(), (412, "concurrent_update"));
    assert_eq!(board.build(build).await["status"], "pending");
    assert_eq!(board.send(cancel("7")).await.said(), (400, "bad_request"));
    assert_eq!(board.send(cancel(&format!("\"{version}\""))).await.ok()["status"], "cancelled");
}

#[tokio::test]
async fn the_body_of_a_cancel_may_be_absent_and_is_json_if_it_is_there() {
    let board = Board::new().await;
    let path = format!("/api/v1/builds/{}/cancel", board.submit().await);
    for (kind, body, status) in [
        ("text/plain", "{}", 415),
        ("application/json", "[\"user\"]", 400),
        ("application/json", "{\"colour\": 1}", 400),
        ("text/plain", "", 200),
    ] {
        let request = Request::post(&path)
            .header("authorization", format!("Bearer {}", board.api))
            .header("content-type", kind)
            .body(axum::body::Body::from(body))
            .expect("a request");
        assert_eq!(board.send(request).await.status.as_u16(), status, "{kind} {body}");
    }
}
