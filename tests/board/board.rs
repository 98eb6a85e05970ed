//! What web-apps and operators read and set up (SPEC.md, 2).

use crate::Board;
use http::{Method, Request, StatusCode};
use protocol::admin::TokenKind;
use serde_json::{Value, json};
use uuid::Uuid;

async fn open(board: &Board, path: &str) -> crate::scenario::Answer {
    board.send(Request::get(path).body(axum::body::Body::empty()).expect("a request")).await
}

#[tokio::test]
async fn healthz_readyz_metrics_and_openapi_answer_without_a_token() {
    let board = Board::new().await;
    for path in ["/healthz", "/readyz", "/metrics", "/openapi.json"] {
        assert_eq!(open(&board, path).await.status, StatusCode::OK, "{path}");
    }
    assert_eq!(open(&board, "/nowhere").await.said(), (404, "not_found"));
}

#[tokio::test]
async fn a_database_without_migrations_is_alive_and_not_ready() {
    let board = Board::new().await;
    board.execute("delete from _sqlx_migrations where version = (select max(version) from _sqlx_migrations)").await;
    assert_eq!(open(&board, "/healthz").await.status, StatusCode::OK);
    assert_eq!(open(&board, "/readyz").await.said(), (503, "unavailable"));
}

#[tokio::test]
async fn a_database_that_does_not_answer_is_503_in_every_call() {
    let board = Board::new().await;
    board.submit().await;
    board.shell.store.close().await;
    let answer = board.claim_as(&board.worker, Uuid::new_v4()).await;
    assert_eq!(answer.said(), (503, "unavailable"), "not a 401: the database could not be asked");
    assert_eq!(open(&board, "/readyz").await.said(), (503, "unavailable"));
    assert_eq!(board.get("/api/v1/builds").await.said(), (503, "unavailable"));
}

#[tokio::test]
async fn another_workspaces_things_are_the_same_404_as_none() {
    let board = Board::new().await;
    let build = board.submit().await;
    let other = board.tenant("umbrella", json!({ "minutes_per_month": 10 })).await;
    for (method, rest) in
        [(Method::GET, ""), (Method::GET, "/logs"), (Method::POST, "/cancel"), (Method::POST, "/retry")]
    {
        let mut bodies = Vec::new();
        for id in [build, Uuid::new_v4()] {
            let path = format!("/api/v1/builds/{id}{rest}");
            let mut answer = board.call(method.clone(), &path, &other, &Value::Null).await;
            assert_eq!(answer.said(), (404, "not_found"), "{path}");
            assert_eq!(answer.body["detail"], "no such build; GET /api/v1/builds lists those there are");
            answer.body["request_id"] = Value::Null;
            bodies.push(answer.body);
        }
        assert_eq!(bodies[0], bodies[1]);
    }
    let list = board.call(Method::GET, "/api/v1/builds", &other, &Value::Null).await.ok();
    assert_eq!(list["builds"], json!([]));
    assert_eq!(board.build(build).await["status"], "pending");
}

#[tokio::test]
async fn an_id_that_is_no_uuid_is_400() {
    let board = Board::new().await;
    assert_eq!(board.get("/api/v1/builds/seven").await.said(), (400, "bad_request"));
}

#[tokio::test]
async fn every_web_app_call_wants_an_api_token_and_every_operator_call_an_operators() {
    let board = Board::new().await;
    for (path, right) in [
        ("/api/v1/builds", TokenKind::Api),
        ("/api/v1/workspace", TokenKind::Api),
        ("/api/v1/secrets", TokenKind::Api),
        ("/api/v1/pipelines", TokenKind::Api),
        ("/api/v1/admin/workspaces", TokenKind::Operator),
        ("/api/v1/admin/tokens", TokenKind::Operator),
        ("/api/v1/admin/workers", TokenKind::Operator),
    ] {
        for (kind, token) in
            [(TokenKind::Api, &board.api), (TokenKind::Operator, &board.operator), (TokenKind::Worker, &board.worker)]
        {
            let answer = board.call(Method::GET, path, token, &Value::Null).await;
            let expected = if kind == right { 200 } else { 401 };
            assert_eq!(answer.status.as_u16(), expected, "{path} with {kind:?}");
        }
        assert_eq!(open(&board, path).await.said(), (401, "unauthorized"), "{path}");
    }
}

#[tokio::test]
async fn builds_are_listed_newest_first_in_pages() {
    let board = Board::new().await;
    let mut builds = Vec::new();
    for _ in 0..5 {
        builds.push(board.submit().await.to_string());
    }
    builds.reverse();
    let mut seen = Vec::new();
    let mut path = "/api/v1/builds?limit=2".to_owned();
    loop {
        let page = board.get(&path).await.ok();
        seen.extend(
            page["builds"]
                .as_array()
                .expect("a list")
                .iter()
                .map(|build| build["id"].as_str().expect("an id").to_owned()),
        );
        let Some(cursor) = page["next_cursor"].as_str() else { break };
        path = format!("/api/v1/builds?limit=2&cursor={cursor}");
    }
    assert_eq!(seen, builds);
    let running = board.claim().await.expect("a build");
    let list = board.get("/api/v1/builds?status=running").await.ok();
    assert_eq!(list["builds"][0]["id"], running.to_string());
    assert_eq!(list["builds"].as_array().map(Vec::len), Some(1));
    for bad in ["status=paused", "limit=0", "limit=x", "cursor=%25"] {
        let answer = board.get(&format!("/api/v1/builds?{bad}")).await;
        assert!(matches!(answer.said(), (422, "invalid") | (400, "bad_request")), "{bad}: {}", answer.body);
    }
}

#[tokio::test]
async fn position_counts_the_workspaces_own_builds_ahead() {
    let board = Board::new().await;
    let other = board.tenant("umbrella", json!({ "minutes_per_month": 10 })).await;
    board.submit_as(&other).await;
    let (first, second) = (board.submit().await, board.submit().await);
    assert_eq!(board.build(first).await["position"], 0);
    assert_eq!(board.build(second).await["position"], 1);
}

#[tokio::test]
async fn waiting_for_tells_no_worker_from_busy_workers() {
    let board = Board::new().await;
    let build = board.submit().await;
    assert_eq!(board.build(build).await["waiting_for"], "no_worker_matches");
    let first = board.claim().await;
    assert_eq!(first, Some(build));
    let second = board.submit().await;
    assert_eq!(board.build(second).await["waiting_for"], "capacity");
}

#[tokio::test]
async fn the_board_itself_says_for_how_long_a_build_has_waited() {
    let board = Board::new().await;
    let build = board.submit().await;
    board.age(build, 3600).await;
    let waited = board.build(build).await["waited_ms"].as_u64().expect("a duration");
    assert!((3_600_000..3_660_000).contains(&waited), "{waited}");
    let _ = board.claim().await;
    assert_eq!(board.build(build).await["waited_ms"], Value::Null);
}

#[tokio::test]
async fn a_secrets_value_is_never_shown() {
    let board = Board::new().await;
    let answer = board.call(Method::PUT, "/api/v1/secrets/TOKEN", &board.api, &json!({ "value": "hunter2" })).await;
    assert!(answer.status.is_success() && !answer.body.to_string().contains("hunter2"));
    let list = board.get("/api/v1/secrets").await.ok();
    assert_eq!(list["secrets"][0]["name"], "TOKEN");
    assert!(!list.to_string().contains("hunter2"));
    for (name, body) in
        [("A=B", json!({ "value": "x" })), ("1A", json!({ "value": "x" })), ("CALLBOARD_X", json!({ "value": "x" }))]
    {
        let path = format!("/api/v1/secrets/{name}");
        assert_eq!(board.call(Method::PUT, &path, &board.api, &body).await.said(), (422, "invalid"), "{name}");
    }
    let long = json!({ "value": "x".repeat(64 * 1024 + 1) });
    assert_eq!(board.call(Method::PUT, "/api/v1/secrets/LONG", &board.api, &long).await.said(), (413, "too_large"));
    let gone = board.call(Method::DELETE, "/api/v1/secrets/TOKEN", &board.api, &Value::Null).await;
    assert!(gone.status.is_success());
    assert_eq!(board.get("/api/v1/secrets").await.ok()["secrets"], json!([]));
}

#[tokio::test]
async fn a_pipeline_is_put_read_listed_and_deleted_with_versions() {
    let board = Board::new().await;
    let spec = crate::scenario::pipeline();
    let first = board.call(Method::PUT, "/api/v1/pipelines/web", &board.api, &spec).await;
    assert_eq!(first.status, StatusCode::CREATED);
    let again = board.call(Method::PUT, "/api/v1/pipelines/web", &board.api, &spec).await;
    assert_eq!(again.status, StatusCode::OK);
    assert_eq!(board.get("/api/v1/pipelines/web").await.ok()["repository"], spec["repository"]);
    let list = board.get("/api/v1/pipelines").await.ok();
    assert_eq!(list["pipelines"].as_array().map(Vec::len), Some(2));
    let gone = board.call(Method::DELETE, "/api/v1/pipelines/web", &board.api, &Value::Null).await;
    assert!(gone.status.is_success());
    assert_eq!(board.get("/api/v1/pipelines/web").await.said(), (404, "not_found"));
}

#[tokio::test]
async fn a_lowered_plan_binds_new_claims_only() {
    let board = Board::new().await;
    let running = board.running().await;
    board.submit().await;
    let plan = json!({ "minutes_per_month": 1, "running_max": 0, "pending_max": 5, "build_seconds_max": 60 });
    let path = "/api/v1/admin/workspaces/acme/plan";
    let answer = board.call(Method::PUT, path, &board.operator, &plan).await;
    assert!(answer.status.is_success(), "{}", answer.body);
    assert_eq!(board.claim().await, None);
    board.age(running, 500).await;
    let done = board.complete(running, &json!({ "status": "success", "ran_ms": 400_000 })).await.ok();
    assert_eq!(done["charged_seconds"], 400);
}

#[tokio::test]
async fn a_token_is_shown_once_and_its_id_is_the_start_of_its_digest() {
    let board = Board::new().await;
    let body = json!({ "kind": "worker", "name": "ci" });
    let made = board.call(Method::POST, "/api/v1/admin/tokens", &board.operator, &body).await.ok();
    let token = made["token"].as_str().expect("the token");
    assert_eq!(made["id"], edge::WorkerToken::of(token).id);
    let list = board.call(Method::GET, "/api/v1/admin/tokens", &board.operator, &Value::Null).await.ok();
    assert!(list.to_string().contains(made["id"].as_str().expect("an id")));
    assert!(!list.to_string().contains(token));
    let stored =
        format!("select count(*) from tokens where encode(digest, 'escape') like '%{token}%' or name like '%{token}%'");
    assert_eq!(board.number(&stored).await, 0);
    assert_eq!(board.claim_as(token, Uuid::new_v4()).await.status, StatusCode::NO_CONTENT);
    let api = json!({ "kind": "api" });
    assert_eq!(board.call(Method::POST, "/api/v1/admin/tokens", &board.operator, &api).await.said(), (422, "invalid"));
}

#[tokio::test]
async fn a_live_log_ends_once_the_build_is_final_and_resumes_where_it_broke() {
    let board = Board::new().await;
    let build = board.running().await;
    let _ = board.send_logs(build, &[(1, "one"), (2, "two")]).await.ok();
    let _ = board.complete(build, &json!({ "status": "success", "ran_ms": 1, "last_seq": 2 })).await.ok();
    for (last, expected) in [(None, vec!["one", "two"]), (Some("1"), vec!["two"])] {
        let mut request = Request::get(format!("/api/v1/builds/{build}/logs"))
            .header("authorization", format!("Bearer {}", board.api))
            .header("accept", "text/event-stream");
        if let Some(last) = last {
            request = request.header("last-event-id", last);
        }
        let answer = board.send(request.body(axum::body::Body::empty()).expect("a request")).await;
        let text = String::from_utf8(answer.bytes).expect("text");
        for word in ["one", "two"] {
            assert_eq!(text.contains(&format!("\"text\":\"{word}\"")), expected.contains(&word), "{last:?}: {text}");
        }
        assert!(text.contains("event: end") || text.contains("event:end"), "{text}");
    }
}

/// Calls of a web-app and an operator, with a query that each takes.
const QUERIES: [(&str, &str, TokenKind); 6] = [
    ("GET", "/api/v1/builds?limit=1&status=pending&pipeline=main", TokenKind::Api),
    ("GET", "/api/v1/previews?limit=1&status=running", TokenKind::Api),
    ("GET", "/api/v1/workspace?", TokenKind::Api),
    ("GET", "/api/v1/admin/workspaces", TokenKind::Operator),
    ("PUT", "/api/v1/pipelines/other?", TokenKind::Api),
    ("POST", "/api/v1/admin/sweep?", TokenKind::Operator),
];

#[tokio::test]
async fn a_parameter_that_nobody_knows_is_400_and_named_and_nothing_is_done() {
    let board = Board::new().await;
    for (method, path, kind) in QUERIES {
        let token = if kind == TokenKind::Api { &board.api } else { &board.operator };
        let method: Method = method.parse().expect("a method");
        let body = if method == Method::PUT { crate::scenario::pipeline() } else { Value::Null };
        let with = format!("{path}{}colour=red", if path.contains('?') { "&" } else { "?" });
        let answer = board.call(method.clone(), &with, token, &body).await;
        assert_eq!(answer.said(), (400, "bad_request"), "{method} {with}");
        assert!(answer.body["detail"].as_str().is_some_and(|detail| detail.contains("`colour`")), "{}", answer.body);
        assert_eq!(board.call(method.clone(), &with, "cba_nobodys", &body).await.status, StatusCode::UNAUTHORIZED);
        if method == Method::PUT {
            assert_eq!(board.number("select count(*) from pipelines where slug = 'other'").await, 0);
        }
        let _ = board.call(method, path, token, &body).await.ok();
    }
    let head = |path| board.call(Method::HEAD, path, &board.api, &Value::Null);
    assert_eq!(head("/api/v1/builds?limit=1").await.status, StatusCode::OK);
    assert_eq!(head("/api/v1/builds?colour=red").await.status, StatusCode::BAD_REQUEST);
    for list in ["builds", "previews"] {
        let twice = board.get(&format!("/api/v1/{list}?limit=1&limit=2")).await;
        assert_eq!(twice.said(), (400, "bad_request"), "{list}");
        assert!(twice.body["detail"].as_str().is_some_and(|detail| detail.contains("`limit`")), "{}", twice.body);
    }
}

#[tokio::test]
async fn a_worker_of_another_release_may_say_more_behind_the_question_mark() {
    let board = Board::new().await;
    let build = board.running().await;
    let beat = board.work(&format!("builds/{build}/heartbeat?colour=red"), &json!({})).await;
    assert_eq!(beat.status, StatusCode::OK);
}

#[tokio::test]
async fn where_a_log_goes_on_is_a_seq_or_422() {
    let board = Board::new().await;
    let build = board.running().await;
    let path = format!("/api/v1/builds/{build}/logs");
    let beyond = (u64::from(u32::MAX) << 32).to_string();
    for bad in ["abc", "-1", "1.5", "", &beyond, "18446744073709551615"] {
        let answer = board.get(&format!("{path}?after={bad}")).await;
        assert_eq!((answer.said(), &answer.body["field"]), ((422, "invalid"), &json!("after")), "{bad}");
        let request = Request::get(&path)
            .header("authorization", format!("Bearer {}", board.api))
            .header("accept", "text/event-stream")
            .header("last-event-id", bad);
        let answer = board.send(request.body(axum::body::Body::empty()).expect("a request")).await;
        assert_eq!((answer.said(), &answer.body["field"]), ((422, "invalid"), &json!("Last-Event-ID")), "{bad}");
    }
    let far = board.get(&format!("{path}?after={}", i64::MAX)).await.ok();
    assert_eq!((&far["chunks"], &far["complete"]), (&json!([]), &json!(false)), "more may come before it");
}

/// The document of the routes that are served; `CALLBOARD_WRITE_OPENAPI=1` writes it.
#[test]
fn the_openapi_document_is_that_of_the_routes() {
    let document = edge::serve::document(localstack::routes());
    let made = document.to_pretty_json().expect("JSON") + "\n";
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../functions/lib/protocol/openapi.json");
    if std::env::var_os("CALLBOARD_WRITE_OPENAPI").is_some() {
        std::fs::write(path, &made).expect("written");
    }
    let kept = std::fs::read_to_string(path).expect("functions/lib/protocol/openapi.json");
    assert!(
        kept == made,
        "run CALLBOARD_WRITE_OPENAPI=1 ./tests/run board and commit functions/lib/protocol/openapi.json"
    );
    assert!(made.contains("\"openapi\": \"3.1"));
}

#[test]
fn every_call_says_what_it_may_be_refused_with_and_in_which_type() {
    let document = serde_json::to_value(edge::serve::document(localstack::routes())).expect("JSON");
    let paths = document["paths"].as_object().expect("paths");
    for (path, item) in paths {
        for (method, operation) in item.as_object().expect("operations") {
            let responses = operation["responses"].as_object().expect("responses");
            let is_open = operation["security"] == json!([{}]);
            assert_eq!(responses.contains_key("401"), !is_open, "{method} {path}");
            assert_eq!(responses.contains_key("400"), !is_open, "{method} {path}");
            assert!(responses.contains_key("500") && responses.contains_key("503"), "{method} {path}");
            if operation.get("requestBody").is_some() {
                for status in ["413", "415"] {
                    assert!(responses.contains_key(status), "{method} {path}: {status}");
                }
            }
            for (status, response) in responses.iter().filter(|(status, _)| status.as_str() >= "400") {
                let types: Vec<_> =
                    response["content"].as_object().into_iter().flatten().map(|(kind, _)| kind).collect();
                assert_eq!(types, ["application/problem+json"], "{method} {path}: {status}");
            }
        }
    }
}
