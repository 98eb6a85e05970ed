//! How much of a report is kept, and for how long.

use super::{Run, STORED, whole};
use crate::Board;
use serde_json::{Value, json};
use std::time::Duration;

/// With this many letters that take six bytes each where they are escaped.
fn step(letters: usize) -> Value {
    json!({ "name": "\u{1}".repeat(letters), "status": "timed_out", "exit_code": i32::MIN, "duration_ms": u64::MAX })
}

#[tokio::test]
async fn what_stands_past_a_limit_is_cut_as_complete_cuts_it_and_the_report_is_taken() {
    let board = Board::new().await;
    let run = Run::new(&board).await;
    let steps: Vec<Value> = (0..100).map(|_| step(300)).collect();
    let message = "\u{1}".repeat(1500);
    let huge = json!({
        "outcome": "failed", "end_reason": "internal", "error_message": message, "commit": "main", "steps": steps,
        "last_seq": u64::MAX, "tidied_ms": u64::MAX, "logs_lost": true });
    let _ = run.report(&board, &huge).await.ok();
    let _ = run.report(&board, &huge).await.ok();
    let kept: Vec<Value> = (0..65).map(|_| step(256)).collect();
    let expected = json!({
        "outcome": "failed", "end_reason": "internal", "error_message": "\u{1}".repeat(1024), "steps": kept,
        "last_seq": u64::MAX, "tidied_ms": u64::MAX, "logs_lost": true });
    assert_eq!(run.told(&board).await.ok(), expected);
}

#[tokio::test]
async fn what_postgres_cant_store_is_left_out_and_a_letter_is_not_cut_in_two() {
    let board = Board::new().await;
    let run = Run::new(&board).await;
    let message = format!("a\u{0}{}", "é".repeat(512));
    let said = json!({ "outcome": "failed", "error_message": message,
        "steps": [{ "name": "te\u{0}st", "status": "failed" }] });
    let _ = run.report(&board, &said).await.ok();
    let kept = run.told(&board).await.ok();
    assert_eq!(kept["error_message"], format!("a{}", "é".repeat(511)));
    assert_eq!(kept["steps"][0]["name"], "test");
}

#[tokio::test]
async fn what_is_no_report_is_refused_and_another_may_follow() {
    let board = Board::new().await;
    let run = Run::new(&board).await;
    for (no_report, expected) in [
        (json!({}), (400, "bad_request")),
        (json!({ "outcome": "vanished" }), (400, "bad_request")),
        (json!({ "outcome": "failed", "last_seq": -1 }), (400, "bad_request")),
        (json!({ "outcome": "failed", "steps": [{ "name": "a", "status": "asleep" }] }), (400, "bad_request")),
        (json!({ "outcome": "failed", "error_message": "x".repeat(1024 * 1024) }), (413, "too_large")),
    ] {
        assert_eq!(run.report(&board, &no_report).await.said(), expected);
    }
    let _ = run.report(&board, &whole()).await.ok();
}

#[tokio::test]
async fn a_report_goes_with_its_build() {
    let board = Board::with(|config| config.timing.retention = Duration::from_millis(1)).await;
    let (gone, kept) = (Run::new(&board).await, Run::new(&board).await);
    for run in [&gone, &kept] {
        let _ = run.report(&board, &whole()).await.ok();
    }
    let _ = board.complete(gone.held.build, &json!({ "status": "success", "ran_ms": 1 })).await.ok();
    board.execute("select pg_sleep(0.005)").await;
    assert_eq!(board.sweep().await["purged"], 1);
    assert_eq!(board.number(STORED).await, 1);
    assert_eq!(kept.told(&board).await.ok(), whole());
}
