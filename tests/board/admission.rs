//! What may enter the queue, and what is refused with nothing left behind (SPEC.md, Admission; issue: bad input).

use crate::Board;
use http::{Method, Request, StatusCode};
use serde_json::{Value, json};
use uuid::Uuid;

async fn submit(board: &Board, body: &Value) -> crate::scenario::Answer {
    board.call(Method::POST, "/api/v1/builds", &board.api, body).await
}

async fn submit_with_key(board: &Board, key: &str, body: &Value) -> crate::scenario::Answer {
    let request = Request::post("/api/v1/builds")
        .header("authorization", format!("Bearer {}", board.api))
        .header("content-type", "application/json")
        .header("idempotency-key", key)
        .body(axum::body::Body::from(body.to_string()))
        .expect("a request");
    board.send(request).await
}

async fn builds(board: &Board) -> i64 {
    board.number("select count(*) from builds").await
}

#[tokio::test]
async fn a_submit_answers_201_with_the_build_and_where_it_is() {
    let board = Board::new().await;
    let answer = submit(&board, &json!({ "pipeline": "main", "ref": "v1.2", "env": { "A": "b" } })).await;
    assert_eq!(answer.status, StatusCode::CREATED);
    let id = answer.body["id"].as_str().expect("an id").to_owned();
    assert_eq!(answer.headers["location"], format!("/api/v1/builds/{id}"));
    assert_eq!(answer.body["status"], "pending");
    assert_eq!(answer.body["ref"], "v1.2");
    let mut seen = board.get(&format!("/api/v1/builds/{id}")).await.ok();
    // It waits on between the two.
    seen["waited_ms"] = answer.body["waited_ms"].clone();
    assert_eq!((&seen["position"], &seen["waiting_for"]), (&json!(0), &json!("no_worker_matches")));
    assert_eq!(answer.body, seen, "a submit tells what a look at the build tells");
    let second = submit(&board, &json!({ "pipeline": "main" })).await;
    assert_eq!(second.body["position"], 1);
    board.holds_together().await;
}

#[tokio::test]
async fn steps_and_env_are_copied_at_admission() {
    let board = Board::new().await;
    board.submit().await;
    let mut changed = crate::scenario::pipeline();
    changed["steps"][0]["commands"] = json!(["rm -rf everything"]);
    board.pipeline(&board.api, "main", &changed).await;
    let job = board.claim_as(&board.worker, Uuid::new_v4()).await.ok();
    assert_eq!(job["steps"][0]["commands"], json!(["make test"]));
}

#[tokio::test]
async fn what_a_caller_can_mend_is_a_422_that_names_the_field() {
    let board = Board::new().await;
    let cases = [
        (json!({ "pipeline": "nobody" }), "pipeline"),
        (json!({ "pipeline": "No Slug" }), "pipeline"),
        (json!({ "pipeline": "main", "ref": "--upload-pack=x" }), "ref"),
        (json!({ "pipeline": "main", "ref": "a..b" }), "ref"),
        (json!({ "pipeline": "main", "ref": "a@{1}" }), "ref"),
        (json!({ "pipeline": "main", "ref": "a\u{7}b" }), "ref"),
        (json!({ "pipeline": "main", "ref": "" }), "ref"),
        (json!({ "pipeline": "main", "env": { "A=B": "c" } }), "env"),
        (json!({ "pipeline": "main", "env": { "A\u{0}": "c" } }), "env"),
        (json!({ "pipeline": "main", "env": { "A": "c\u{0}d" } }), "env.A"),
    ];
    for (body, field) in cases {
        let answer = submit(&board, &body).await;
        assert_eq!(answer.said(), (422, "invalid"), "{body}");
        assert_eq!(answer.body["field"], field, "{body}");
    }
    assert_eq!(builds(&board).await, 0);
}

#[tokio::test]
async fn a_repository_that_is_not_plain_https_makes_no_pipeline() {
    let board = Board::new().await;
    for repository in [
        "http://git.example/a.git",
        "file:///etc/passwd",
        "ssh://git@git.example/a.git",
        "git@git.example:a.git",
        "https://user:hunter2@git.example/a.git",
        "https://user@git.example/a.git",
        "ext::sh -c id",
        "--upload-pack=x",
        "",
    ] {
        let mut spec = crate::scenario::pipeline();
        spec["repository"] = json!(repository);
        let answer = board.call(Method::PUT, "/api/v1/pipelines/bad", &board.api, &spec).await;
        assert_eq!(answer.said(), (422, "invalid"), "{repository}");
        assert_eq!(answer.body["field"], "repository", "{repository}");
        assert!(!answer.body.to_string().contains("hunter2"), "{}", answer.body);
    }
    assert_eq!(board.number("select count(*) from pipelines where slug = 'bad'").await, 0);
}

#[tokio::test]
async fn a_month_that_is_spent_is_402_and_inserts_nothing() {
    let board = Board::new().await;
    board.spend("acme").await;
    assert_eq!(submit(&board, &json!({ "pipeline": "main" })).await.said(), (402, "minutes_exhausted"));
    assert_eq!(builds(&board).await, 0);
}

#[tokio::test]
async fn last_months_charges_do_not_count() {
    let board = Board::new().await;
    board.spend("acme").await;
    board.execute("update workspaces set charged_month = (charged_month - interval '1 month')::date").await;
    assert_eq!(submit(&board, &json!({ "pipeline": "main" })).await.status, StatusCode::CREATED);
}

#[tokio::test]
async fn the_pending_limit_is_429_with_retry_after_and_the_one_below_is_admitted() {
    let board = Board::new().await;
    board.plans("pending_max = 2").await;
    board.submit().await;
    board.submit().await;
    let answer = submit(&board, &json!({ "pipeline": "main" })).await;
    assert_eq!(answer.said(), (429, "queue_full"));
    let after: u32 = answer.headers["retry-after"].to_str().ok().and_then(|s| s.parse().ok()).expect("seconds");
    assert!((1..=15).contains(&after));
    assert_eq!(builds(&board).await, 2);
}

#[tokio::test]
async fn a_plan_that_cannot_be_read_is_503() {
    let board = Board::new().await;
    let api = board.tenant("planless", Value::Null).await;
    let answer = board.call(Method::POST, "/api/v1/builds", &api, &json!({ "pipeline": "main" })).await;
    assert_eq!(answer.said(), (503, "billing_unavailable"));
    assert_eq!(builds(&board).await, 0);
}

#[tokio::test]
async fn the_same_key_and_body_return_the_first_build_and_another_body_is_422() {
    let board = Board::new().await;
    let body = json!({ "pipeline": "main" });
    let first = submit_with_key(&board, "k1", &body).await.id();
    assert_eq!(submit_with_key(&board, "k1", &body).await.id(), first);
    let other = json!({ "pipeline": "main", "ref": "dev" });
    assert_eq!(submit_with_key(&board, "k1", &other).await.said(), (422, "idempotency_mismatch"));
    assert_ne!(submit_with_key(&board, "k2", &body).await.id(), first);
    assert_eq!(builds(&board).await, 2);
}

#[tokio::test]
async fn a_key_is_looked_up_before_billing_and_a_refusal_stores_nothing() {
    let board = Board::new().await;
    let body = json!({ "pipeline": "main" });
    let first = submit_with_key(&board, "k1", &body).await.id();
    board.spend("acme").await;
    assert_eq!(submit_with_key(&board, "k1", &body).await.id(), first);
    assert_eq!(submit_with_key(&board, "k2", &body).await.said(), (402, "minutes_exhausted"));
    board.execute("update workspaces set charged_seconds = 0").await;
    assert_ne!(submit_with_key(&board, "k2", &body).await.id(), first);
}

#[tokio::test]
async fn a_key_older_than_a_day_counts_no_more() {
    let board = Board::new().await;
    let body = json!({ "pipeline": "main" });
    let first = submit_with_key(&board, "k1", &body).await.id();
    board.execute("update idempotency_keys set created_at = created_at - interval '23 h 59 min'").await;
    assert_eq!(submit_with_key(&board, "k1", &body).await.id(), first);
    board.execute("update idempotency_keys set created_at = created_at - interval '2 min'").await;
    assert_ne!(submit_with_key(&board, "k1", &body).await.id(), first);
}

#[tokio::test]
async fn another_workspaces_key_is_another_key() {
    let board = Board::new().await;
    let body = json!({ "pipeline": "main" });
    let first = submit_with_key(&board, "k1", &body).await.id();
    let mut other = Board { api: board.tenant("umbrella", json!({ "minutes_per_month": 10 })).await, ..board };
    assert_ne!(submit_with_key(&other, "k1", &body).await.id(), first);
    other.api.clear();
}

#[tokio::test]
async fn a_retry_is_a_new_build_of_the_same_snapshot_and_commit() {
    let board = Board::new().await;
    let first = board.running().await;
    let commit = "a".repeat(40);
    let report = json!({ "status": "failed", "end_reason": "step_failed", "ran_ms": 1, "commit": commit });
    let retry = format!("/api/v1/builds/{first}/retry");
    assert_eq!(board.call(Method::POST, &retry, &board.api, &Value::Null).await.said(), (409, "build_not_final"));
    let _ = board.complete(first, &report).await.ok();
    let second = board.call(Method::POST, &retry, &board.api, &Value::Null).await;
    assert_eq!(second.status, StatusCode::CREATED);
    assert_eq!(second.body["retry_of"], first.to_string());
    let job = board.claim_as(&board.worker, Uuid::new_v4()).await.ok();
    assert_eq!(job["commit"], commit);
    assert_eq!(job["build_id"], second.body["id"]);
}

#[tokio::test]
async fn a_retry_with_a_key_is_done_once() {
    let board = Board::new().await;
    let first = board.ended("failed").await;
    let request = || {
        Request::post(format!("/api/v1/builds/{first}/retry"))
            .header("authorization", format!("Bearer {}", board.api))
            .header("idempotency-key", "again")
            .body(axum::body::Body::empty())
            .expect("a request")
    };
    let second = board.send(request()).await.id();
    assert_eq!(board.send(request()).await.id(), second);
}

#[tokio::test]
async fn a_secret_that_is_named_and_not_set_is_a_422_for_submit_and_retry() {
    let board = Board::new().await;
    let mut spec = crate::scenario::pipeline();
    spec["secrets"] = json!(["TOKEN"]);
    spec["clone_secret"] = json!("CLONE");
    board.pipeline(&board.api, "main", &spec).await;
    let set = |name: &'static str, value: &'static str| {
        let board = &board;
        async move {
            let path = format!("/api/v1/secrets/{name}");
            board.call(Method::PUT, &path, &board.api, &json!({ "value": value })).await
        }
    };
    let answer = submit(&board, &json!({ "pipeline": "main" })).await;
    assert_eq!((answer.status.as_u16(), answer.body["field"].as_str()), (422, Some("secrets")));
    let detail = answer.body["detail"].as_str().expect("a detail");
    assert!(detail.contains("CLONE") && detail.contains("TOKEN"), "{detail}");
    assert_eq!(set("TOKEN", "").await.status, StatusCode::UNPROCESSABLE_ENTITY, "an empty value is none");
    assert!(set("TOKEN", "t").await.status.is_success());
    assert!(set("CLONE", "c").await.status.is_success());
    let build = board.ended("success").await;
    let _ = board.call(Method::DELETE, "/api/v1/secrets/TOKEN", &board.api, &Value::Null).await;
    let retry = board.call(Method::POST, &format!("/api/v1/builds/{build}/retry"), &board.api, &Value::Null).await;
    assert_eq!((retry.status.as_u16(), retry.body["field"].as_str()), (422, Some("secrets")));
    assert_eq!(builds(&board).await, 1);
}
