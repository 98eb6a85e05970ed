//! Bodies that say something twice, or a list in place of an object: nothing of them is guessed.

use crate::Board;
use crate::scenario::Answer;
use http::{Method, Request};

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
