//! What becomes of chunks: stored once, in order, as bytes; a log has no holes (SPEC.md, Logs).

use crate::Board;
use http::{Method, Request};
use serde_json::{Value, json};
use uuid::Uuid;

async fn page(board: &Board, build: Uuid) -> Value {
    board.get(&format!("/api/v1/builds/{build}/logs")).await.ok()
}

async fn text(board: &Board, build: Uuid) -> Vec<u8> {
    let request = Request::get(format!("/api/v1/builds/{build}/logs"))
        .header("authorization", format!("Bearer {}", board.api))
        .header("accept", "text/plain")
        .body(axum::body::Body::empty())
        .expect("a request");
    let answer = board.send(request).await;
    assert!(answer.status.is_success());
    answer.bytes
}

#[tokio::test]
async fn chunks_are_stored_in_order_and_read_back() {
    let board = Board::new().await;
    let build = board.running().await;
    let stored = board.send_logs(build, &[(1, "a"), (2, "b")]).await.ok();
    assert_eq!(stored, json!({ "stored": 2, "duplicates": 0, "next_seq": 3, "capped": false, "cancel": null }));
    let _ = board.send_logs(build, &[(3, "c\n")]).await.ok();
    assert_eq!(text(&board, build).await, b"abc\n");
    let page = page(&board, build).await;
    assert_eq!(page["chunks"].as_array().map(Vec::len), Some(3));
    assert_eq!((&page["last_seq"], &page["complete"]), (&json!(3), &json!(false)));
    board.holds_together().await;
}

#[tokio::test]
async fn the_same_chunk_again_is_a_duplicate_also_beside_new_ones() {
    let board = Board::new().await;
    let build = board.running().await;
    let _ = board.send_logs(build, &[(1, "a"), (2, "b")]).await.ok();
    let again = board.send_logs(build, &[(1, "a"), (2, "b")]).await.ok();
    assert_eq!((&again["stored"], &again["duplicates"], &again["next_seq"]), (&json!(0), &json!(2), &json!(3)));
    let more = board.send_logs(build, &[(2, "b"), (3, "c")]).await.ok();
    assert_eq!((&more["stored"], &more["duplicates"], &more["next_seq"]), (&json!(1), &json!(1), &json!(4)));
    assert_eq!(text(&board, build).await, b"abc");
}

#[tokio::test]
async fn other_bytes_under_a_known_seq_are_a_conflict_and_nothing_is_written() {
    let board = Board::new().await;
    let build = board.running().await;
    let _ = board.send_logs(build, &[(1, "a"), (2, "b")]).await.ok();
    let answer = board.send_logs(build, &[(2, "X"), (3, "c")]).await;
    assert_eq!(answer.said(), (409, "seq_conflict"));
    assert_eq!(answer.body["expected_seq"], 3);
    assert_eq!(text(&board, build).await, b"ab");
}

#[tokio::test]
async fn a_gap_before_or_within_a_batch_is_refused_and_nothing_is_written() {
    let board = Board::new().await;
    let build = board.running().await;
    for chunks in [&[(2, "b")][..], &[(1, "a"), (3, "c")][..]] {
        let answer = board.send_logs(build, chunks).await;
        assert_eq!(answer.said(), (409, "log_gap"), "{chunks:?}");
        assert_eq!(answer.body["expected_seq"], 1, "{chunks:?}");
    }
    assert_eq!(board.number("select count(*) from build_logs").await, 0);
    for chunks in [&[(0, "a")][..], &[(2, "b"), (1, "a")][..], &[(1, "a"), (1, "a")][..]] {
        assert_eq!(board.send_logs(build, chunks).await.said(), (422, "invalid"), "{chunks:?}");
    }
}

#[tokio::test]
async fn an_empty_batch_says_where_the_log_stands() {
    let board = Board::new().await;
    let build = board.running().await;
    let _ = board.send_logs(build, &[(1, "a")]).await.ok();
    assert_eq!(board.send_logs(build, &[]).await.ok()["next_seq"], 2);
}

#[tokio::test]
async fn any_bytes_are_kept() {
    let board = Board::new().await;
    let build = board.running().await;
    let bytes = "AP/+wIAKDQ=="; // 0x00 0xff 0xfe 0xc0 0x80 0x0a 0x0d
    let chunks = json!({ "chunks": [
        { "seq": 1, "step": "t\u{0}", "stream": "stderr", "text": "nul:\u{0}:\u{1f600}\r\n" },
        { "seq": 2, "step": "t", "stream": "stdout", "base64": bytes },
        { "seq": 3, "step": "t", "stream": "stdout", "text": "" } ] });
    let _ = board.work(&format!("builds/{build}/logs"), &chunks).await.ok();
    let mut expected = "nul:\u{0}:\u{1f600}\r\n".as_bytes().to_vec();
    expected.extend([0x00, 0xff, 0xfe, 0xc0, 0x80, 0x0a, 0x0d]);
    assert_eq!(text(&board, build).await, expected);
    assert_eq!(page(&board, build).await["chunks"][1]["base64"], bytes);
}

#[tokio::test]
async fn a_chunk_without_bytes_or_too_large_is_a_4xx() {
    let board = Board::with(|config| {
        config.log.max_chunk_bytes = 10;
        config.log.max_batch_bytes = 25;
    })
    .await;
    let build = board.running().await;
    let path = format!("builds/{build}/logs");
    for (chunk, status) in [
        (json!({ "seq": 1, "stream": "stdout" }), 422),
        (json!({ "seq": 1, "stream": "stdout", "text": "a", "base64": "YQ==" }), 422),
        (json!({ "seq": 1, "stream": "stdout", "base64": "%" }), 422),
        (json!({ "seq": 1, "stream": "nowhere", "text": "a" }), 400),
        (json!({ "seq": -1, "stream": "stdout", "text": "a" }), 400),
        (json!({ "seq": 1, "stream": "stdout", "text": "12345678901" }), 413),
    ] {
        let answer = board.work(&path, &json!({ "chunks": [chunk] })).await;
        assert_eq!(answer.status.as_u16(), status, "{chunk} {}", answer.body);
    }
    let three = [(1, "1234567890"), (2, "1234567890"), (3, "123456")];
    assert_eq!(board.send_logs(build, &three).await.said(), (413, "too_large"));
    let _ = board.send_logs(build, &three[..2]).await.ok();
}

#[tokio::test]
async fn past_the_cap_chunks_are_acknowledged_and_discarded_and_the_build_is_not_harmed() {
    let board = Board::with(|config| config.log.cap_bytes = 4).await;
    let build = board.running().await;
    let first = board.send_logs(build, &[(1, "ab"), (2, "cd")]).await.ok();
    assert_eq!(first["capped"], false, "exactly the cap is within it");
    let second = board.send_logs(build, &[(3, "e"), (4, "")]).await.ok();
    assert_eq!((&second["stored"], &second["next_seq"], &second["capped"]), (&json!(0), &json!(5), &json!(true)));
    let again = board.send_logs(build, &[(3, "e")]).await.ok();
    assert_eq!((&again["duplicates"], &again["capped"]), (&json!(1), &json!(true)));
    let report = json!({ "status": "success", "ran_ms": 1, "last_seq": 4 });
    assert_eq!(board.complete(build, &report).await.ok()["status"], "success");
    let read = page(&board, build).await;
    assert_eq!((&read["capped"], &read["complete"]), (&json!(true), &json!(true)));
    assert!(text(&board, build).await.starts_with(b"abcd"));
    board.holds_together().await;
}

#[tokio::test]
async fn after_a_complete_the_rest_may_come_for_ten_minutes() {
    let board = Board::new().await;
    let build = board.running().await;
    let _ = board.send_logs(build, &[(1, "a")]).await.ok();
    let report = json!({ "status": "success", "ran_ms": 1, "last_seq": 3, "logs_lost": true });
    let _ = board.complete(build, &report).await.ok();
    let _ = board.send_logs(build, &[(2, "b")]).await.ok();
    assert_eq!(board.send_logs(build, &[(3, "c"), (4, "d")]).await.said(), (409, "build_ended"));
    board.execute("alter table builds disable trigger all").await;
    board.execute("update builds set ended_at = ended_at - interval '10 min 1 s'").await;
    assert_eq!(board.send_logs(build, &[(3, "c")]).await.said(), (409, "build_ended"));
}

#[tokio::test]
async fn after_any_other_end_a_log_is_closed() {
    let board = Board::new().await;
    let build = board.running().await;
    board.age(build, 300).await;
    let _ = board.sweep().await;
    let answer = board.send_logs(build, &[(1, "a")]).await;
    assert_eq!(answer.said(), (409, "build_ended"));
    assert_eq!(answer.body["end_reason"], "worker_lost");
}

#[tokio::test]
async fn the_log_token_is_good_for_its_builds_logs_alone() {
    let board = Board::new().await;
    let second = board.running().await;
    let claim = Uuid::new_v4();
    board.submit().await;
    let job = board.claim_as(&board.worker, claim).await.ok();
    let (build, token) = (job["build_id"].as_str().expect("an id"), job["log_token"].as_str().expect("a token"));
    let chunks = json!({ "chunks": [{ "seq": 1, "stream": "stdout", "text": "x" }] });
    let call = |path: String, body: Value| board_call(&board, path, token, body);
    let own = format!("/internal/worker/builds/{build}/logs");
    let other = format!("/internal/worker/builds/{second}/logs");
    assert_eq!(call(own, chunks.clone()).await, 200);
    assert_eq!(call(other, chunks).await, 404);
    assert_eq!(call(format!("/internal/worker/builds/{build}/heartbeat"), json!({})).await, 401);
    assert_eq!(
        call(format!("/internal/worker/builds/{build}/complete"), json!({ "status": "success", "ran_ms": 1 })).await,
        401
    );
    board.execute("update tokens set revoked_at = now() where kind = 'worker'").await;
    let chunks = json!({ "chunks": [{ "seq": 2, "stream": "stdout", "text": "x" }] });
    assert_eq!(call(format!("/internal/worker/builds/{build}/logs"), chunks).await, 401);
}

async fn board_call(board: &Board, path: String, token: &str, body: Value) -> u16 {
    board.call(Method::POST, &path, token, &body).await.status.as_u16()
}

#[tokio::test]
async fn a_log_is_complete_once_it_is_stored_to_its_last_seq_or_nothing_more_may_come() {
    let board = Board::new().await;
    let build = board.running().await;
    let complete = || async { board.get(&format!("/api/v1/builds/{build}/logs")).await.ok()["complete"].clone() };
    let _ = board.send_logs(build, &[(1, "a")]).await.ok();
    assert_eq!(complete().await, false, "it runs");
    let report = json!({ "status": "success", "ran_ms": 1, "last_seq": 3, "logs_lost": true });
    let _ = board.complete(build, &report).await.ok();
    assert_eq!(complete().await, false, "two chunks may still come");
    let _ = board.send_logs(build, &[(2, "b")]).await.ok();
    assert_eq!(complete().await, false);
    board.execute("alter table builds disable trigger all").await;
    board.execute("update builds set ended_at = ended_at - interval '10 min 1 s'").await;
    assert_eq!(complete().await, true, "nothing more may come");
    board.execute("update builds set ended_at = now()").await;
    let _ = board.send_logs(build, &[(3, "c")]).await.ok();
    assert_eq!(complete().await, true, "all is here");
}

#[tokio::test]
async fn a_seq_beyond_all_counting_is_refused_and_nothing_worse() {
    let board = Board::new().await;
    let build = board.running().await;
    let largest = u64::try_from(i64::MAX).expect("positive");
    for seq in [largest - 1, largest, largest + 1, u64::MAX] {
        let answer = board.send_logs(build, &[(seq, "x")]).await;
        assert!(answer.status.is_client_error(), "{seq}: {} {}", answer.status, answer.body);
    }
    let _ = board.send_logs(build, &[(1, "a")]).await.ok();
    assert!(board.send_logs(build, &[(2, "b"), (largest, "x")]).await.status.is_client_error());
    board.holds_together().await;
}

#[tokio::test]
async fn a_live_log_does_not_wait_for_chunks_that_were_given_up() {
    let board = Board::new().await;
    let build = board.running().await;
    let _ = board.send_logs(build, &[(1, "a")]).await.ok();
    let report = json!({ "status": "success", "ran_ms": 1, "last_seq": 9, "logs_lost": true });
    let _ = board.complete(build, &report).await.ok();
    board.execute("alter table builds disable trigger all").await;
    board.execute("update builds set ended_at = ended_at - interval '11 s'").await;
    let request = http::Request::get(format!("/api/v1/builds/{build}/logs"))
        .header("authorization", format!("Bearer {}", board.api))
        .header("accept", "text/event-stream")
        .body(axum::body::Body::empty());
    let text = String::from_utf8(board.send(request.expect("a request")).await.bytes).expect("text");
    assert!(text.contains("event: end") || text.contains("event:end"), "{text}");
    assert_eq!(board.get(&format!("/api/v1/builds/{build}/logs")).await.ok()["complete"], false);
    let _ = board.send_logs(build, &[(2, "b")]).await.ok();
}

#[tokio::test]
async fn a_page_beyond_the_end_tells_where_the_end_is() {
    let board = Board::new().await;
    let build = board.running().await;
    let last_seq = async |after: u64| {
        let page = board.get(&format!("/api/v1/builds/{build}/logs?after={after}")).await.ok();
        (page["chunks"].as_array().map(Vec::len), page["last_seq"].clone())
    };
    assert_eq!(last_seq(5).await, (Some(0), json!(0)));
    let _ = board.send_logs(build, &[(1, "a"), (2, "b")]).await.ok();
    assert_eq!(last_seq(1).await, (Some(1), json!(2)));
    assert_eq!(last_seq(2).await, (Some(0), json!(2)));
    assert_eq!(last_seq(5).await, (Some(0), json!(2)));
}
