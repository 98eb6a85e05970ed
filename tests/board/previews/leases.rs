//! Leases of ports, mended by an operator.

use super::{FakeHost, board, holds_together, of, running};
use crate::Board;
use http::Method;
use serde_json::{Value, json};

async fn reconcile(board: &Board) -> Value {
    board.call(Method::POST, "/api/v1/admin/previews/reconcile", &board.operator, &Value::Null).await.ok()
}

#[tokio::test]
async fn where_all_is_as_it_should_be_nothing_is_done() {
    let board = board().await;
    running(&board, &mut FakeHost::of(&board)).await;
    assert_eq!(reconcile(&board).await, json!({ "mended": [], "leases": 1 }));
}

#[tokio::test]
async fn orphaned_inconsistent_and_missing_leases_are_mended_and_told() {
    let board = board().await;
    let mut host = FakeHost::of(&board);
    let mut builds = Vec::new();
    for _ in 0..3 {
        builds.push(running(&board, &mut host).await);
    }
    let ids = [of(&board, builds[0]).await, of(&board, builds[1]).await, of(&board, builds[2]).await]
        .map(|preview| preview["id"].clone());
    board.execute(&format!("delete from port_leases where preview_id = '{}'", ids[0].as_str().expect("an id"))).await;
    board
        .execute(&format!(
            "update port_leases set port = 31000 where preview_id = '{}'",
            ids[1].as_str().expect("an id")
        ))
        .await;
    let orphan = ids[2].as_str().expect("an id");
    board
        .execute(&format!(
            "update previews set status = 'failed', stage = 'run', placed = false, url = null, port = null where id = '{orphan}'"
        ))
        .await;
    let done = reconcile(&board).await;
    let mut changes: Vec<_> = done["mended"]
        .as_array()
        .expect("a list")
        .iter()
        .map(|lease| {
            (lease["change"].as_str().expect("a word").to_owned(), lease["port"].clone(), lease["preview_id"].clone())
        })
        .collect();
    changes.sort_by_key(|(change, port, _)| (change.clone(), port.as_i64()));
    let expected = [
        ("inconsistent".to_owned(), json!(31_000), ids[1].clone()),
        ("missing".to_owned(), json!(20_000), ids[0].clone()),
        ("missing".to_owned(), json!(20_001), ids[1].clone()),
        ("orphaned".to_owned(), json!(20_002), ids[2].clone()),
    ];
    assert_eq!(changes, expected);
    assert_eq!(reconcile(&board).await, json!({ "mended": [], "leases": 2 }), "a second time there is nothing to do");
    holds_together(&board).await;
}

#[tokio::test]
async fn of_two_that_say_the_same_port_one_keeps_it_and_the_other_fails() {
    let board = board().await;
    let mut host = FakeHost::of(&board);
    let (first, second) = (running(&board, &mut host).await, running(&board, &mut host).await);
    board.execute("delete from port_leases").await;
    board.execute("update previews set port = 20000").await;
    let done = reconcile(&board).await;
    assert_eq!((&done["leases"], done["mended"].as_array().map(Vec::len)), (&json!(1), Some(2)));
    assert_eq!(of(&board, first).await["status"], "running");
    assert_eq!(of(&board, second).await["stage"], "recovery");
    holds_together(&board).await;
}

#[tokio::test]
async fn only_an_operator_reconciles() {
    let board = board().await;
    for token in [&board.api, &board.worker] {
        let answer = board.call(Method::POST, "/api/v1/admin/previews/reconcile", token, &Value::Null).await;
        assert_eq!(answer.said(), (401, "unauthorized"));
    }
}
