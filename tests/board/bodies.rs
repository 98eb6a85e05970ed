//! Bodies that are no JSON of ours, or say something twice, or a list in place of an object: nothing of them is guessed.

use crate::Board;
use crate::scenario::Answer;
use http::{Method, Request, StatusCode};
use serde_json::{Value, json};

/// The answer to a body as it is written here.
async fn sent(board: &Board, method: Method, path: &str, body: &str) -> Answer {
    let request = Request::builder().method(method).uri(path).header("content-type", "application/json");
    let request = request.header("authorization", format!("Bearer {}", board.api));
    board.send(request.body(axum::body::Body::from(body.to_owned())).expect("a request")).await
}

#[tokio::test]
async fn a_key_that_stands_there_twice_is_400_and_named_wherever_it_stands() {
    let board = Board::new().await;
    for (field, place) in [
        (r#""pipeline": "main", "pipeline": "main""#, "pipeline"),
        (r#""pipeline": "main", "env": {"A": "1", "B": "2", "A": "3"}"#, "A"),
    ] {
        let answer = sent(&board, Method::POST, "/api/v1/builds", &format!("{{{field}}}")).await;
        twice(&answer, place);
    }
    let repository = r#""repository": "https://git.example/app.git""#;
    let steps = r#""steps": [{"name": "a", "commands": ["true"]}]"#;
    for rest in [
        format!(r#"{steps}, "env": {{"A": "1", "A": "1"}}"#),
        format!(r#"{steps}, "registry_secrets": {{"A": "X", "A": "Y"}}"#),
        format!(r#"{steps}, "preview": {{"commands": ["x"], "port": 1, "env": {{"A": "1", "A": "2"}}}}"#),
        r#""steps": [{"name": "a", "commands": ["true"], "env": {"A": "1", "A": "2"}}]"#.to_owned(),
        r#""steps": [{"name": "a", "A": 1, "commands": ["true"]}]"#.to_owned(),
    ] {
        let answer = sent(&board, Method::PUT, "/api/v1/pipelines/twice", &format!("{{{repository}, {rest}}}")).await;
        twice(&answer, "A");
    }
    let listed = format!(r#"{{{repository}, {steps}, "preview": ["host", ["x"], 1]}}"#);
    let answer = sent(&board, Method::PUT, "/api/v1/pipelines/twice", &listed).await;
    assert_eq!(answer.said(), (400, "bad_request"), "a list is no object");
    assert_eq!(board.number("select count(*) from pipelines where slug = 'twice'").await, 0);
    assert_eq!(board.number("select count(*) from builds").await, 0);
}

#[track_caller]
fn twice(answer: &Answer, key: &str) {
    let detail = answer.body["detail"].as_str().unwrap_or("");
    assert!(answer.said() == (400, "bad_request") && detail.contains(&format!("field `{key}`")), "{}", answer.body);
}

async fn submitted(board: &Board, body: &Value) -> Answer {
    sent(board, Method::POST, "/api/v1/builds", &body.to_string()).await
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
    assert_eq!(board.number("select count(*) from builds").await, 0);
}

#[tokio::test]
async fn an_error_in_a_body_does_not_repeat_its_values() {
    let board = Board::new().await;
    let body = json!({ "pipeline": { "token": "hunter2" } });
    let answer = submitted(&board, &body).await;
    assert_eq!(answer.said(), (400, "bad_request"));
    let body = json!({ "pipeline": "main", "env": { "KEY": 7, "x": "hunter2" }, "hunter2": 1 });
    let other = submitted(&board, &body).await;
    assert!(
        !format!("{}{}", answer.body, json!(other.body["detail"]).to_string().replace("unknown field `hunter2`", ""))
            .contains("hunter2")
    );
}

#[tokio::test]
async fn a_list_in_place_of_an_object_is_400() {
    let board = Board::new().await;
    let answer = submitted(&board, &json!(["main", null, {}])).await;
    assert_eq!(answer.said(), (400, "bad_request"));
    assert_eq!(board.number("select count(*) from builds").await, 0);
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
async fn a_word_that_no_field_knows_is_refused_without_repeating_it() {
    let board = Board::new().await;
    let mut spec = crate::scenario::pipeline();
    spec["steps"][0]["network"] = json!("hunter2");
    let answer = board.call(Method::PUT, "/api/v1/pipelines/main", &board.api, &spec).await;
    assert_eq!(answer.status, StatusCode::BAD_REQUEST);
    let text = answer.body.to_string();
    assert!(!text.contains("hunter2") && text.contains("network") && text.contains("isolated"), "{text}");
}
