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
    let seen = board.get(&format!("/api/v1/builds/{id}")).await.ok();
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
async fn a_body_that_is_no_json_of_ours_is_told_apart() {
    let board = Board::new().await;
    let huge = format!("{{\"pipeline\": \"{}\"}}", "x".repeat(2 * 1024 * 1024));
    let cases = [
        ("application/json", "{\"pipeline\": ", 400, "bad_request"),
        ("application/json", "{\"pipeline\": \"main\"} {}", 400, "bad_request"),
        ("application/json", "{\"pipeline\": \"main\", \"colour\": \"red\"}", 400, "bad_request"),
        ("application/json", "{\"pipeline\": 7}", 400, "bad_request"),
        ("application/json", "", 400, "bad_request"),
        ("application/json", "\u{0}", 400, "bad_request"),
        ("text/plain", "{\"pipeline\": \"main\"}", 415, "unsupported_media_type"),
        ("application/json; charset=latin1", "{\"pipeline\": \"main\"}", 415, "unsupported_media_type"),
        ("application/json", huge.as_str(), 413, "too_large"),
    ];
    for (kind, body, status, code) in cases {
        let request = Request::post("/api/v1/builds")
            .header("authorization", format!("Bearer {}", board.api))
            .header("content-type", kind)
            .body(axum::body::Body::from(body.to_owned()))
            .expect("a request");
        let answer = board.send(request).await;
        let start: String = body.chars().take(40).collect();
        assert_eq!(answer.said(), (status, code), "{kind} {start}");
        assert_eq!(answer.headers["content-type"], "application/problem+json", "{kind} {start}");
        assert!(answer.body["request_id"].as_str().is_some_and(|id| !id.is_empty()));
    }
    assert_eq!(builds(&board).await, 0);
}

#[tokio::test]
async fn an_error_in_a_body_does_not_repeat_its_values() {
    let board = Board::new().await;
    let body = json!({ "pipeline": { "token": "hunter2" } });
    let answer = submit(&board, &body).await;
    assert_eq!(answer.said(), (400, "bad_request"));
    let body = json!({ "pipeline": "main", "env": { "KEY": 7, "x": "hunter2" }, "hunter2": 1 });
    let other = submit(&board, &body).await;
    assert!(
        !format!("{}{}", answer.body, json!(other.body["detail"]).to_string().replace("unknown field `hunter2`", ""))
            .contains("hunter2")
    );
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
async fn a_list_in_place_of_an_object_is_400() {
    let board = Board::new().await;
    let answer = submit(&board, &json!(["main", null, {}])).await;
    assert_eq!(answer.said(), (400, "bad_request"));
    assert_eq!(builds(&board).await, 0);
}

/// Bodies of web-app and operator calls, with every object that a body may hold inside of another.
fn bodies() -> [(Method, &'static str, Value); 6] {
    let mut spec = crate::scenario::pipeline();
    spec["registry_secrets"] = json!({ "ghcr.io": "TOKEN" });
    spec["steps"][0]["env"] = json!({ "A": "b" });
    let plan = json!({ "minutes_per_month": 10, "build_seconds_max": 60, "running_max": 1, "pending_max": 5 });
    [
        (Method::POST, "/api/v1/builds", json!({ "pipeline": "main", "ref": "v1", "env": { "A": "b" } })),
        (Method::PUT, "/api/v1/pipelines/new", spec),
        (Method::PUT, "/api/v1/secrets/NEW", json!({ "value": "v" })),
        (Method::PUT, "/api/v1/admin/workspaces/new", json!({ "plan": plan.clone() })),
        (Method::PUT, "/api/v1/admin/workspaces/acme/plan", plan),
        (Method::POST, "/api/v1/admin/tokens", json!({ "kind": "worker", "name": "new" })),
    ]
}

/// Where the objects of a body are, the body itself among them. Maps, whose keys are anybody's, are not.
fn objects(body: &Value, at: &str) -> Vec<String> {
    let inner: Vec<(String, &Value)> = match body {
        Value::Object(fields) => fields.iter().map(|(name, value)| (format!("{at}/{name}"), value)).collect(),
        Value::Array(items) => items.iter().enumerate().map(|(n, value)| (format!("{at}/{n}"), value)).collect(),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => Vec::new(),
    };
    let is_map = at.ends_with("/env") || at.ends_with("/registry_secrets");
    let own = (body.is_object() && !is_map).then(|| at.to_owned());
    own.into_iter().chain(inner.into_iter().flat_map(|(at, value)| objects(value, &at))).collect()
}

#[tokio::test]
async fn every_object_of_a_body_refuses_a_field_that_nobody_knows_and_a_list_in_its_place() {
    let board = Board::new().await;
    for (method, path, body) in bodies() {
        let token = if path.contains("/admin/") { &board.operator } else { &board.api };
        for at in objects(&body, "") {
            let (mut unknown, mut list) = (body.clone(), body.clone());
            unknown.pointer_mut(&at).expect("there")["colour"] = json!("red");
            let fields = list.pointer_mut(&at).expect("there");
            *fields = fields.as_object().expect("an object").values().cloned().collect();
            for wrong in [unknown, list] {
                let answer = board.call(method.clone(), path, token, &wrong).await;
                assert_eq!(answer.said(), (400, "bad_request"), "{path}: {wrong}");
            }
        }
        assert!(board.call(method, path, token, &body).await.status.is_success(), "{path}: {body}");
    }
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

#[tokio::test]
async fn a_word_that_no_field_knows_is_refused_without_repeating_it() {
    let board = Board::new().await;
    let mut spec = crate::scenario::pipeline();
    spec["steps"][0]["network"] = json!("hunter2");
    let answer = board.call(Method::PUT, "/api/v1/pipelines/main", &board.api, &spec).await;
    assert_eq!(answer.status, StatusCode::BAD_REQUEST);
    let text = answer.body.to_string();
    assert!(!text.contains("hunter2") && text.contains("network") && text.contains("isolated"), "{text}");
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
