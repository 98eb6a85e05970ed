//! Heartbeats, deadlines, and what the reaper makes of silence (SPEC.md, number table, Reaper, Budget).

use crate::Board;
use serde_json::{Value, json};
use uuid::Uuid;

async fn beat(board: &Board, build: Uuid) -> crate::scenario::Answer {
    board.work(&format!("builds/{build}/heartbeat"), &json!({ "phase": "test" })).await
}

async fn lease_seconds(board: &Board, build: Uuid) -> i64 {
    board
        .number(&format!(
            "select extract(epoch from lease_expires_at - clock_timestamp())::bigint from builds where id = '{build}'"
        ))
        .await
}

#[tokio::test]
async fn a_claim_gives_a_lease_of_60_seconds_and_the_numbers_of_the_contract() {
    let board = Board::new().await;
    board.submit().await;
    let job = board.claim_as(&board.worker, Uuid::new_v4()).await.ok();
    assert_eq!(job["lease_ttl_ms"], 60_000);
    assert_eq!(job["heartbeat_every_ms"], 30_000);
    assert_eq!(job["max_duration_seconds"], 1800);
    let deadline = job["deadline_in_ms"].as_u64().expect("a duration");
    assert!((1_790_000..=1_800_000).contains(&deadline), "{deadline}");
    assert_eq!(job["log"]["cap_bytes"], 64 * 1024 * 1024);
    let build = job["build_id"].as_str().expect("an id").parse().expect("a UUID");
    assert!((58..=60).contains(&lease_seconds(&board, build).await));
}

#[tokio::test]
async fn a_heartbeat_renews_to_now_and_a_whole_lease() {
    let board = Board::new().await;
    let build = board.running().await;
    board.age(build, 40).await;
    assert_eq!(beat(&board, build).await.ok()["lease_ttl_ms"], 60_000);
    assert!((58..=60).contains(&lease_seconds(&board, build).await));
}

#[tokio::test]
async fn a_lapsed_lease_renews_until_it_is_reaped() {
    let board = Board::new().await;
    let build = board.running().await;
    board.age(build, 60 + 119).await;
    assert_eq!(board.sweep().await["lost"], 0);
    let _ = beat(&board, build).await.ok();
    board.age(build, 60 + 121).await;
    assert_eq!(board.sweep().await["lost"], 1);
    let answer = beat(&board, build).await;
    assert_eq!(answer.said(), (409, "build_ended"));
    assert_eq!((&answer.body["build_status"], &answer.body["end_reason"]), (&json!("failed"), &json!("worker_lost")));
}

#[tokio::test]
async fn a_heartbeat_does_not_raise_the_version_and_a_change_of_state_does() {
    let board = Board::new().await;
    let build = board.submit().await;
    let version = |build: Value| build["version"].as_i64().expect("a version");
    let pending = version(board.build(build).await);
    board.claim().await;
    let running = version(board.build(build).await);
    assert!(running > pending);
    let _ = beat(&board, build).await.ok();
    assert_eq!(version(board.build(build).await), running);
    let _ = board.complete(build, &json!({ "status": "success", "ran_ms": 1 })).await.ok();
    assert!(version(board.build(build).await) > running);
}

#[tokio::test]
async fn a_lost_build_says_worker_lost_and_is_charged_to_its_leases_end() {
    let board = Board::new().await;
    let build = board.running().await;
    board.age(build, 300).await;
    let _ = board.sweep().await;
    let seen = board.build(build).await;
    assert_eq!((&seen["status"], &seen["end_reason"]), (&json!("failed"), &json!("worker_lost")));
    assert_eq!(seen["error_message"], "worker lost");
    assert_eq!(seen["charged_seconds"], 60);
    board.holds_together().await;
}

#[tokio::test]
async fn a_build_past_its_deadline_ends_after_the_grace_although_its_worker_beats() {
    let board = Board::new().await;
    let build = board.running().await;
    board.age(build, 1800 + 119).await;
    assert_eq!(beat(&board, build).await.ok()["deadline_in_ms"], 0);
    assert_eq!(board.sweep().await["overdue"], 0);
    board.age(build, 2).await;
    let _ = beat(&board, build).await.ok();
    assert_eq!(board.sweep().await["overdue"], 1);
    let seen = board.build(build).await;
    assert_eq!((&seen["end_reason"], &seen["charged_seconds"]), (&json!("overdue"), &json!(1800)));
    board.holds_together().await;
}

#[tokio::test]
async fn a_heartbeat_that_waited_for_the_reaper_does_not_revive_the_build() {
    let board = Board::new().await;
    let build = board.running().await;
    board.age(build, 300).await;
    let mut reaper = board.pool.begin().await.expect("a transaction");
    let locked = sqlx::query("select 1 from builds where status = 'running' for update").execute(&mut *reaper).await;
    locked.expect("locked");
    let beating = beat(&board, build);
    let reaping = async {
        while board.number("select count(*) from pg_stat_activity where wait_event_type = 'Lock'").await == 0 {
            tokio::task::yield_now().await;
        }
        let ended = sqlx::query(
            "update builds set status = 'failed', end_reason = 'worker_lost', ended_at = clock_timestamp(), charged_seconds = 60",
        );
        ended.execute(&mut *reaper).await.expect("ended");
        reaper.commit().await.expect("committed");
    };
    let (answer, ()) = tokio::join!(beating, reaping);
    assert_eq!(answer.said(), (409, "build_ended"));
}

#[tokio::test]
async fn the_first_sweep_after_an_outage_waits_for_the_workers_to_come_back() {
    let board = Board::new().await;
    let (lost, back) = (board.running().await, board.running().await);
    let _ = board.sweep().await;
    board.execute("update sweeps set last_at = last_at - interval '10 min'").await;
    for build in [lost, back] {
        board.age(build, 600).await;
    }
    let first = board.sweep().await;
    assert_eq!((&first["paused"], &first["lost"]), (&json!(true), &json!(0)));
    let _ = beat(&board, back).await.ok();
    assert_eq!(board.sweep().await["lost"], 0, "still within the pause");
    board.execute("update sweeps set not_before = clock_timestamp() - interval '1 ms'").await;
    assert_eq!(board.sweep().await["lost"], 1);
    assert_eq!(board.build(back).await["status"], "running");
}

#[tokio::test]
async fn sweeps_that_are_always_late_do_not_pause_for_ever() {
    let board = Board::new().await;
    let build = board.running().await;
    let _ = board.sweep().await;
    let late = "update sweeps set last_at = last_at - interval '10 min', not_before = not_before - interval '10 min'";
    board.age(build, 600).await;
    board.execute(late).await;
    assert_eq!(board.sweep().await["paused"], true);
    board.execute(late).await;
    let second = board.sweep().await;
    assert_eq!((&second["paused"], &second["lost"]), (&json!(false), &json!(1)));
}

#[tokio::test]
async fn the_very_first_sweep_does_not_pause() {
    let board = Board::new().await;
    assert_eq!(board.sweep().await["paused"], false);
}

#[tokio::test]
async fn what_a_heartbeat_says_to_people_never_costs_the_lease() {
    let board = Board::new().await;
    let build = board.running().await;
    for phase in ["a\0b", "\0", &"é".repeat(500)] {
        let answer = board.work(&format!("builds/{build}/heartbeat"), &json!({ "phase": phase })).await;
        assert_eq!(answer.status.as_u16(), 200, "{}", answer.body);
    }
}
