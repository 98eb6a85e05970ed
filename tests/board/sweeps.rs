//! What a sweep does besides leases: expiry, months, retention; and that it bears a row it can't end (SPEC.md, Reaper).

use crate::Board;
use http::Method;
use serde_json::{Value, json};

#[tokio::test]
async fn a_build_that_waited_a_day_expires_and_the_one_that_did_not_stays() {
    let board = Board::new().await;
    let (old, young) = (board.submit().await, board.submit().await);
    board.age(old, 24 * 3600 + 1).await;
    board.age(young, 24 * 3600 - 60).await;
    assert_eq!(board.sweep().await["expired"], 1);
    let seen = board.build(old).await;
    assert_eq!((&seen["status"], &seen["end_reason"]), (&json!("failed"), &json!("queue_expired")));
    assert_eq!(seen["charged_seconds"], 0);
    assert_eq!(board.claim().await, Some(young));
    board.holds_together().await;
}

#[tokio::test]
async fn a_new_month_gives_minutes_back_to_a_workspace_that_was_out_of_them() {
    let board = Board::new().await;
    let api = board.tenant("small", json!({ "minutes_per_month": 30 })).await;
    board
        .execute(
            "update workspaces set charged_seconds = 1790, charged_month = (charged_month - interval '1 month')::date
             where slug = 'small'",
        )
        .await;
    board.execute("update sweeps set month_rolled = (month_rolled - interval '1 month')::date").await;
    let build = board.submit_as(&api).await;
    let _ = board.sweep().await;
    let usage = board.call(Method::GET, "/api/v1/workspace", &api, &Value::Null).await.ok();
    assert_eq!((&usage["charged_seconds"], &usage["left_seconds"]), (&json!(0), &json!(1800)));
    assert_eq!(board.claim().await, Some(build));
    assert_eq!(board.number("select max_duration_seconds::bigint from builds where status = 'running'").await, 1800);
}

#[tokio::test]
async fn a_claim_counts_this_month_even_before_the_sweep_that_starts_it() {
    let board = Board::new().await;
    let api = board.tenant("small", json!({ "minutes_per_month": 30 })).await;
    let build = board.submit_as(&api).await;
    board
        .execute(
            "update workspaces set charged_seconds = 1500, charged_month = (charged_month - interval '1 month')::date
             where slug = 'small'",
        )
        .await;
    assert_eq!(board.claim().await, Some(build));
    assert_eq!(board.number("select max_duration_seconds::bigint from builds where status = 'running'").await, 1800);
    board.holds_together().await;
}

#[tokio::test]
async fn what_is_kept_long_enough_is_purged_with_its_logs_and_nothing_else() {
    let board = Board::with(|config| config.timing.retention = std::time::Duration::from_millis(1)).await;
    let build = board.running().await;
    let _ = board.send_logs(build, &[(1, "a")]).await.ok();
    let _ = board.complete(build, &json!({ "status": "success", "ran_ms": 1, "last_seq": 1 })).await.ok();
    let waiting = board.submit().await;
    board.execute("select pg_sleep(0.005)").await;
    assert_eq!(board.sweep().await["purged"], 1);
    assert_eq!(board.get(&format!("/api/v1/builds/{build}")).await.said(), (404, "not_found"));
    for table in
        ["build_logs", "log_heads where next_seq > 1", "build_specs b where build_id not in (select id from builds)"]
    {
        assert_eq!(board.number(&format!("select count(*) from {table}")).await, 0, "{table}");
    }
    assert_eq!(board.number("select count(*) from charges").await, 1);
    assert_eq!(board.build(waiting).await["status"], "pending");
}

#[tokio::test]
async fn one_row_that_cannot_be_ended_does_not_keep_the_others() {
    let board = Board::new().await;
    let (bad, good) = (board.running().await, board.running().await);
    for build in [bad, good] {
        board.age(build, 300).await;
    }
    // Its ledger row exists already, so that its end fails.
    board
        .execute(&format!(
            "insert into charges select '{bad}', workspace_id, month_of(now()), 0, now() from builds where id = '{bad}'"
        ))
        .await;
    let swept = board.sweep().await;
    assert_eq!((&swept["lost"], &swept["errors"]), (&json!(1), &json!(1)));
    assert_eq!(board.build(good).await["end_reason"], "worker_lost");
    assert_eq!(board.build(bad).await["status"], "running");
}

#[tokio::test]
async fn only_an_operator_sweeps() {
    let board = Board::new().await;
    for token in [&board.api, &board.worker] {
        let answer = board.call(Method::POST, "/api/v1/admin/sweep", token, &Value::Null).await;
        assert_eq!(answer.said(), (401, "unauthorized"));
    }
}
