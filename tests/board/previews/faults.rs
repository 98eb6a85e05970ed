//! A process that dies at each fail point of a preview's way, and the same call again.

use super::{FakeHost, board, holds_together, of, path, running, succeeded};
use crate::faults::{Doomed, again};
use http::Method;
use serde_json::{Value, json};

const SYNC: &str = "/internal/worker/previews/sync";

#[tokio::test]
async fn a_sync_that_died_is_taken_in_once_when_repeated() {
    for point in ["sync.asked", "sync.noted", "sync.decided", "sync.written"] {
        let board = board().await;
        let mut host = FakeHost::of(&board);
        let (first, second) = (running(&board, &mut host).await, succeeded(&board).await);
        host.keep(second);
        host.fails(first, rules::preview::Stage::Run);
        let body = serde_json::to_value(host.says()).expect("JSON");
        Doomed::at(&board, point).last_words(&Method::POST, SYNC, &board.worker, "", &body).await;
        holds_together(&board).await;
        let _ = again(&board, Method::POST, SYNC, &board.worker, &body).await.ok();
        host.settle(&board).await;
        assert_eq!(of(&board, first).await["stage"], "run", "{point}");
        assert_eq!(of(&board, second).await["status"], "running", "{point}");
        holds_together(&board).await;
    }
}

#[tokio::test]
async fn a_complete_that_died_has_its_preview_with_its_end_or_not_at_all() {
    for point in ["finish.decided", "finish.written"] {
        let board = board().await;
        let build = board.running().await;
        let body = json!({ "status": "success", "ran_ms": 5 });
        let path = format!("/internal/worker/builds/{build}/complete");
        Doomed::at(&board, point).last_words(&Method::POST, &path, &board.worker, "", &body).await;
        holds_together(&board).await;
        let _ = again(&board, Method::POST, &path, &board.worker, &body).await.ok();
        assert_eq!(board.number("select count(*) from previews").await, 1, "{point}");
        holds_together(&board).await;
    }
}

#[tokio::test]
async fn an_extension_or_a_destroy_that_died_is_repeated() {
    for (point, method, rest, status) in [
        ("preview.extending", Method::POST, "/extend", "running"),
        ("preview.extended", Method::POST, "/extend", "running"),
        ("preview.destroying", Method::DELETE, "", "destroying"),
        ("preview.destroyed", Method::DELETE, "", "destroying"),
    ] {
        let board = board().await;
        let build = running(&board, &mut FakeHost::of(&board)).await;
        let path = format!("{}{rest}", path(&of(&board, build).await));
        Doomed::at(&board, point).last_words(&method, &path, &board.api, "", &Value::Null).await;
        let seen = again(&board, method, &path, &board.api, &Value::Null).await.ok();
        assert_eq!(seen["status"], status, "{point}");
        holds_together(&board).await;
    }
}

#[tokio::test]
async fn a_clean_up_that_died_is_finished_by_the_next() {
    for point in ["cleanup.lost", "cleanup.expired", "cleanup.destroying", "cleanup.purged"] {
        let board = board().await;
        let (mut host, mut silent) = (FakeHost::of(&board), FakeHost { id: "h2".into(), ..FakeHost::of(&board) });
        let (over, lost) = (running(&board, &mut host).await, running(&board, &mut silent).await);
        board.execute(&format!("update previews set expires_at = clock_timestamp() where build_id = '{over}'")).await;
        board.execute("update preview_hosts set synced_at = synced_at - interval '901 s' where host_id = 'h2'").await;
        let path = "/api/v1/admin/sweep";
        Doomed::at(&board, point).last_words(&Method::POST, path, &board.operator, "", &Value::Null).await;
        holds_together(&board).await;
        let _ = again(&board, Method::POST, path, &board.operator, &Value::Null).await.ok();
        assert_eq!(of(&board, over).await["status"], "destroying", "{point}");
        assert_eq!(of(&board, lost).await["stage"], "host_lost", "{point}");
        holds_together(&board).await;
    }
}

#[tokio::test]
async fn a_reconcile_that_died_has_mended_nothing_or_all() {
    let board = board().await;
    running(&board, &mut FakeHost::of(&board)).await;
    board.execute("update port_leases set port = 5").await;
    let path = "/api/v1/admin/previews/reconcile";
    Doomed::at(&board, "reconcile.removed").last_words(&Method::POST, path, &board.operator, "", &Value::Null).await;
    assert_eq!(board.number("select count(*) from port_leases where port = 5").await, 1);
    let done = again(&board, Method::POST, path, &board.operator, &Value::Null).await.ok();
    assert_eq!(done["mended"].as_array().map(Vec::len), Some(2));
    holds_together(&board).await;
}
