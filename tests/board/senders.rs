//! Whoever nobody knows is told so, and nothing of what is wrong with what they sent.

use crate::Board;
use axum::body::Body;
use http::{Method, Request};
use protocol::admin::TokenKind;
use serde_json::{Value, json};

/// Every call that wants a token: its method and its address, with no id in it that could be one.
fn calls() -> Vec<(Method, String)> {
    let document: Value = serde_json::from_str(protocol::OPENAPI).expect("the document is JSON");
    let mut calls = Vec::new();
    for (path, item) in document["paths"].as_object().expect("paths") {
        for (method, operation) in item.as_object().expect("operations") {
            if operation["security"].is_null() {
                let path: Vec<_> =
                    path.split('/').map(|part| if part.starts_with('{') { "No_Id" } else { part }).collect();
                calls.push((method.to_uppercase().parse().expect("a method"), path.join("/")));
            }
        }
    }
    calls
}

async fn said(board: &Board, call: &(Method, String), token: Option<&str>, kind: &str, body: &str) -> u16 {
    let mut request = Request::builder().method(&call.0).uri(&call.1).header("content-type", kind);
    if let Some(token) = token {
        request = request.header("authorization", format!("Bearer {token}"));
    }
    board.send(request.body(Body::from(body.to_owned())).expect("a request")).await.status.as_u16()
}

#[tokio::test]
async fn a_token_that_nobody_knows_is_401_whatever_else_is_wrong() {
    let board = Board::new().await;
    let revoked = board.token(TokenKind::Worker, None).await;
    let id = edge::WorkerToken::of(&revoked).id;
    board.execute(&format!("update tokens set revoked_at = now() where id = '{id}'")).await;
    let calls = calls();
    assert!(calls.len() > 30 && calls.iter().filter(|call| call.1.starts_with("/internal/worker/")).count() == 8);
    let large = " ".repeat(5 * 1024 * 1024);
    for call in &calls {
        let asked = (call.0.clone(), format!("{}?nobody=knows", call.1));
        for (call, kind, body) in [
            (call, "application/json", "{"),
            (call, "application/json", r#"{"nobody": 1}"#),
            (call, "application/json", large.as_str()),
            (call, "text/plain", "{}"),
            (&asked, "application/json", "{}"),
        ] {
            let start = &body[..body.len().min(20)];
            for token in [None, Some("cbw_nonsense"), Some("cbl_12345678_ab"), Some(revoked.as_str())] {
                assert_eq!(said(&board, call, token, kind, body).await, 401, "{call:?} {kind} {start}");
            }
        }
    }
}

#[tokio::test]
async fn a_worker_that_is_known_is_told_what_is_wrong() {
    let board = Board::new().await;
    let build = board.running().await;
    for (call, body, expected) in [
        ("claim", json!({}), (400, "bad_request")),
        (
            "claim",
            json!({ "claim_id": build, "worker": { "name": "", "version": "", "host_id": "" } }),
            (422, "invalid"),
        ),
        (
            "previews/sync",
            json!({ "host_id": "", "ports": { "first": 1, "last": 2 }, "previews": [] }),
            (422, "invalid"),
        ),
        (&format!("builds/{build}/heartbeat"), json!({ "phase": 7 }), (400, "bad_request")),
        (&format!("builds/{build}/complete"), json!({ "status": "running", "ran_ms": 1 }), (422, "invalid")),
        (&format!("builds/{build}/logs"), json!({ "chunks": 7 }), (400, "bad_request")),
    ] {
        assert_eq!(board.work(call, &body).await.said(), expected, "{call} {body}");
        let stranger = board.call(Method::POST, &format!("/internal/worker/{call}"), "cbw_nonsense", &body).await;
        assert_eq!(stranger.said(), (401, "unauthorized"), "{call} {body}");
    }
}

#[tokio::test]
async fn a_builds_log_token_is_known_for_its_own_logs_alone() {
    let board = Board::new().await;
    board.submit().await;
    let job = board.claim_as(&board.worker, uuid::Uuid::new_v4()).await.ok();
    let (build, token) = (job["build_id"].as_str().expect("an id"), job["log_token"].as_str().expect("a token"));
    let other = board.running().await;
    let bad = json!({ "chunks": 7 });
    let own = format!("/internal/worker/builds/{build}/logs");
    assert_eq!(board.call(Method::POST, &own, token, &bad).await.said(), (400, "bad_request"));
    for (path, expected) in [
        (format!("/internal/worker/builds/{other}/logs"), (404, "not_found")),
        (format!("/internal/worker/builds/{build}/heartbeat"), (401, "unauthorized")),
    ] {
        assert_eq!(board.call(Method::POST, &path, token, &json!([])).await.said(), expected, "{path}");
    }
    board.execute("update tokens set revoked_at = now() where kind = 'worker'").await;
    assert_eq!(board.call(Method::POST, &own, token, &bad).await.said(), (401, "unauthorized"));
}
