//! How builds end, who may say so, and what it costs (SPEC.md, Per-build worker calls; Budget).

use crate::Board;
use http::Method;
use serde_json::{Value, json};
use uuid::Uuid;

#[tokio::test]
async fn each_end_of_a_worker_becomes_the_builds() {
    let board = Board::new().await;
    for (status, reason) in [("success", None), ("failed", Some("step_failed")), ("timed_out", Some("deadline"))] {
        let build = board.running().await;
        let mut report = json!({ "status": status, "ran_ms": 1500, "error_message": "m",
            "steps": [{ "name": "test", "status": "failed", "exit_code": 3, "duration_ms": 1200 }] });
        if let Some(reason) = reason {
            report["end_reason"] = json!(reason);
        }
        board.age(build, 10).await;
        let answer = board.complete(build, &report).await.ok();
        assert_eq!(answer, json!({ "status": status, "duration_ms": 1500, "charged_seconds": 2 }));
        let seen = board.build(build).await;
        assert_eq!((&seen["status"], &seen["end_reason"]), (&json!(status), &json!(reason)));
        assert_eq!(seen["steps"][0]["exit_code"], 3);
        assert_eq!(seen["charged_seconds"], 2);
    }
    board.holds_together().await;
}

#[tokio::test]
async fn a_repeated_report_gets_the_same_answer_and_another_outcome_is_build_ended() {
    let board = Board::new().await;
    let build = board.running().await;
    board.age(build, 10).await;
    let report = json!({ "status": "failed", "end_reason": "step_failed", "ran_ms": 2000 });
    let first = board.complete(build, &report).await.ok();
    board.age(build, 100).await;
    assert_eq!(board.complete(build, &report).await.ok(), first);
    for other in [
        json!({ "status": "success", "ran_ms": 2000 }),
        json!({ "status": "failed", "end_reason": "step_timeout", "ran_ms": 2000 }),
    ] {
        let answer = board.complete(build, &other).await;
        assert_eq!(answer.said(), (409, "build_ended"));
        assert_eq!(answer.body["end_reason"], "step_failed");
    }
    assert_eq!(board.number("select count(*) from charges").await, 1);
}

#[tokio::test]
async fn what_makes_no_sense_in_a_report_is_left_out_and_the_outcome_stands() {
    let board = Board::new().await;
    let commit = "5".repeat(40);
    for (said, kept) in
        [(commit.as_str(), json!(commit)), (&"5".repeat(50), Value::Null), ("main; rm -rf", Value::Null)]
    {
        let build = board.running().await;
        let report = json!({ "status": "success", "end_reason": "step_failed", "commit": said, "ran_ms": 1 });
        let first = board.complete(build, &report).await.ok();
        assert_eq!(board.complete(build, &report).await.ok(), first, "the same again");
        let seen = board.build(build).await;
        assert_eq!((&seen["status"], &seen["end_reason"], &seen["commit"]), (&json!("success"), &Value::Null, &kept));
    }
}

#[tokio::test]
async fn what_the_reaper_ended_its_worker_cannot_end_again() {
    let board = Board::new().await;
    let build = board.running().await;
    board.age(build, 300).await;
    let _ = board.sweep().await;
    let report = json!({ "status": "failed", "end_reason": "worker_lost", "ran_ms": 1 });
    assert_eq!(board.complete(build, &report).await.said(), (409, "build_ended"));
}

#[tokio::test]
async fn run_time_is_charged_as_the_worker_says_but_never_more_than_was_seen_or_reserved() {
    let board = Board::new().await;
    for (age, ran_ms, charged) in
        [(10, 0, 0), (10, 1, 1), (10, 1000, 1), (10, 1001, 2), (10, 3_600_000, 11), (1850, 1_850_000, 1800)]
    {
        let build = board.running().await;
        board.age(build, age).await;
        let answer = board.complete(build, &json!({ "status": "success", "ran_ms": ran_ms })).await.ok();
        assert_eq!(answer["charged_seconds"], charged, "{ran_ms} ms after {age} s");
    }
    board.holds_together().await;
}

#[tokio::test]
async fn another_tokens_build_is_the_same_404_as_none() {
    let board = Board::new().await;
    let build = board.running().await;
    let other = board.token(protocol::admin::TokenKind::Worker, None).await;
    let report = json!({ "status": "success", "ran_ms": 1 });
    let chunks = json!({ "chunks": [{ "seq": 1, "stream": "stdout", "text": "x" }] });
    for (call, body) in [("heartbeat", &json!({})), ("logs", &chunks), ("complete", &report)] {
        let mut answers = Vec::new();
        for id in [build, Uuid::new_v4()] {
            let path = format!("/internal/worker/builds/{id}/{call}");
            let mut answer = board.call(Method::POST, &path, &other, body).await;
            answer.body["request_id"] = Value::Null;
            assert_eq!(answer.said(), (404, "not_found"), "{call}");
            answers.push(answer.body);
        }
        assert_eq!(answers[0], answers[1], "{call}");
        let path = format!("/internal/worker/builds/{build}/{call}");
        assert_eq!(board.call(Method::POST, &path, "nonsense", body).await.said(), (401, "unauthorized"), "{call}");
    }
    assert_eq!(board.build(build).await["status"], "running");
}

#[tokio::test]
async fn a_revoked_token_is_401_in_every_call() {
    let board = Board::new().await;
    let build = board.running().await;
    board.execute("update tokens set revoked_at = now() where kind = 'worker'").await;
    let report = json!({ "status": "success", "ran_ms": 1 });
    let chunks = json!({ "chunks": [{ "seq": 1, "stream": "stdout", "text": "x" }] });
    for (call, body) in [("heartbeat", &json!({})), ("logs", &chunks), ("complete", &report)] {
        let answer = board.work(&format!("builds/{build}/{call}"), body).await;
        assert_eq!(answer.said(), (401, "unauthorized"), "{call}");
    }
    assert_eq!(board.build(build).await["status"], "running");
}

#[tokio::test]
async fn a_cancelled_that_nobody_asked_for_is_422() {
    let board = Board::new().await;
    let build = board.running().await;
    let report = json!({ "status": "cancelled", "ran_ms": 1 });
    assert_eq!(board.complete(build, &report).await.said(), (422, "invalid"));
    assert_eq!(board.build(build).await["status"], "running");
}

#[tokio::test]
async fn a_report_that_contradicts_itself_is_422_and_unknown_reasons_are_internal() {
    let board = Board::new().await;
    let build = board.running().await;
    for report in [
        json!({ "status": "running", "ran_ms": 1 }),
        json!({ "status": "failed", "end_reason": "deadline", "ran_ms": 1 }),
        json!({ "status": "failed", "end_reason": "worker_lost", "ran_ms": 1 }),
        json!({ "status": "failed", "end_reason": "queue_expired", "ran_ms": 1 }),
    ] {
        assert_eq!(board.complete(build, &report).await.said(), (422, "invalid"), "{report}");
    }
    let report = json!({ "status": "failed", "end_reason": "from_next_year", "ran_ms": 1, "new_field": 1 });
    let _ = board.complete(build, &report).await.ok();
    assert_eq!(board.build(build).await["end_reason"], "internal");
}

#[tokio::test]
async fn a_success_after_a_cancel_was_asked_for_stays_a_success() {
    let board = Board::new().await;
    let build = board.running().await;
    let cancel = format!("/api/v1/builds/{build}/cancel");
    let _ = board.call(Method::POST, &cancel, &board.api, &Value::Null).await.ok();
    let _ = board.complete(build, &json!({ "status": "success", "ran_ms": 1 })).await.ok();
    assert_eq!(board.build(build).await["status"], "success");
}

#[tokio::test]
async fn a_complete_before_its_logs_is_409_until_they_are_there_or_given_up() {
    let board = Board::new().await;
    let build = board.running().await;
    let _ = board.send_logs(build, &[(1, "a")]).await.ok();
    let mut report = json!({ "status": "success", "ran_ms": 1, "last_seq": 2 });
    let answer = board.complete(build, &report).await;
    assert_eq!(answer.said(), (409, "logs_missing"));
    assert_eq!(answer.body["expected_seq"], 2);
    let other = board.running().await;
    report["logs_lost"] = json!(true);
    let _ = board.complete(other, &report).await.ok();
    let _ = board.send_logs(build, &[(2, "b")]).await.ok();
    report["logs_lost"] = json!(false);
    let _ = board.complete(build, &report).await.ok();
}

#[tokio::test]
async fn a_long_message_is_cut_at_a_character_and_never_refused() {
    let board = Board::new().await;
    let build = board.running().await;
    let report = json!({ "status": "failed", "ran_ms": 1, "error_message": format!("a\u{0}{}", "é".repeat(1000)) });
    let _ = board.complete(build, &report).await.ok();
    let message = board.build(build).await["error_message"].as_str().expect("a message").to_owned();
    assert_eq!(message.len(), 1023);
}

#[tokio::test]
async fn a_charge_goes_to_the_month_in_which_the_build_ended() {
    let board = Board::new().await;
    let build = board.running().await;
    board.age(build, 10).await;
    board
        .execute(
            "update workspaces set charged_seconds = 500, charged_month = (charged_month - interval '1 month')::date",
        )
        .await;
    let _ = board.complete(build, &json!({ "status": "success", "ran_ms": 7000 })).await.ok();
    let usage = board.usage().await;
    assert_eq!((&usage["charged_seconds"], &usage["reserved_seconds"]), (&json!(7), &json!(0)));
    assert_eq!(board.number("select count(*) from charges where month = month_of(now())").await, 1);
    board.holds_together().await;
}

#[tokio::test]
async fn the_ledger_outlives_the_build() {
    let board = Board::new().await;
    let build = board.ended("success").await;
    let old = "id = uuid_v7_floor(now() - interval '91 d')";
    board.execute(&format!("update build_specs set build_id = build_id where build_id = '{build}'")).await;
    board.execute("alter table build_specs disable trigger all").await;
    board.execute("alter table log_heads disable trigger all").await;
    board.execute("alter table builds disable trigger all").await;
    board.execute(&format!("update builds set {old}, ended_at = now() - interval '91 d'")).await;
    for table in ["build_specs", "log_heads"] {
        board.execute(&format!("update {table} set build_id = uuid_v7_floor(now() - interval '91 d')")).await;
    }
    board.execute("alter table builds enable trigger all").await;
    let purged = board.sweep().await;
    assert_eq!(purged["purged"], 1, "{purged}");
    assert_eq!(board.number("select count(*) from charges").await, 1);
}
