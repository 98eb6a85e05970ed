//! The scheduled clean-up: expiry, lost hosts, retention, and when it is off.

use super::{FakeHost, board, board_with, destroy, holds_together, of, pass, pipeline, running, succeeded};
use crate::Board;
use rules::preview::{Order, Stage};
use serde_json::{Value, json};
use std::time::Duration;

async fn called(board: &Board) {
    board.execute("update preview_hosts set synced_at = clock_timestamp()").await;
}

#[tokio::test]
async fn a_preview_runs_until_its_time_is_over_and_is_then_destroyed() {
    let board = board().await;
    let mut host = FakeHost::of(&board);
    let build = running(&board, &mut host).await;
    pass(&board, 3590).await;
    called(&board).await;
    assert_eq!(board.sweep().await["previews_expired"], 0);
    assert_eq!(of(&board, build).await["status"], "running");
    pass(&board, 11).await;
    called(&board).await;
    assert_eq!(board.sweep().await["previews_expired"], 1);
    assert_eq!(of(&board, build).await["status"], "destroying");
    assert_eq!(board.usage().await["previews"], 0, "its place is free");
    host.settle(&board).await;
    assert_eq!(of(&board, build).await["status"], "destroyed");
    holds_together(&board).await;
}

#[tokio::test]
async fn what_failed_goes_at_its_expiry_and_what_is_to_be_kept_stays() {
    for (retain, after) in [(false, "destroying"), (true, "failed")] {
        let board = board_with(&json!({ "retain_failed": retain })).await;
        let mut host = FakeHost::of(&board);
        let build = running(&board, &mut host).await;
        host.fails(build, Stage::Run);
        host.settle(&board).await;
        let _ = board.sweep().await;
        assert_eq!(of(&board, build).await["status"], "failed");
        pass(&board, 3601).await;
        called(&board).await;
        let _ = board.sweep().await;
        assert_eq!(of(&board, build).await["status"], after);
        holds_together(&board).await;
    }
}

/// Each state, with and without a wish to be kept, before and after its expiry: what a sweep makes of it is what the rule says.
#[tokio::test]
async fn sql_makes_due_what_the_rule_makes_due() {
    use rules::Timestamp;
    use rules::preview::{State, due};
    let board = board().await;
    let mut host = FakeHost::of(&board);
    for state in State::ALL {
        for (retain, left) in [(false, -5_i64), (true, -5), (false, 60), (true, 60)] {
            let build = running(&board, &mut host).await;
            // By hand, past the rule of moves.
            board.execute("alter table previews disable trigger user").await;
            board
                .execute(&format!(
                    "update previews set status = '{state}', retain_failed = {retain},
                         stage = case when '{state}' = 'failed' then 'run' end, url = case when '{state}' = 'running' then url end,
                         placed = '{state}' in ('starting', 'running'),
                         expires_at = clock_timestamp() + interval '{left} s',
                         destroyed_at = case when '{state}' = 'destroyed' then clock_timestamp() end,
                         port = case when '{state}' <> 'destroyed' then port end
                     where build_id = '{build}'"
                ))
                .await;
            board.execute("alter table previews enable trigger user").await;
            board.execute("update preview_places c set taken = (select count(*) from previews p where p.workspace_id = c.workspace_id and p.placed)").await;
            let _ = board.sweep().await;
            let mut expected = *state;
            while let Some(next) = due(expected, retain, Timestamp(left * 1000), Timestamp(0)) {
                expected = next;
            }
            assert_eq!(
                of(&board, build).await["status"],
                expected.as_str(),
                "{state}, retained {retain}, {left} s left"
            );
            board.execute("delete from previews").await;
            board.execute("update preview_places set taken = 0").await;
            host.previews.clear();
        }
    }
}

#[tokio::test]
async fn a_host_that_has_not_called_for_a_quarter_of_an_hour_loses_its_previews_and_its_ports() {
    let board = board().await;
    let (mut host, mut other) = (FakeHost::of(&board), FakeHost { id: "h2".into(), ..FakeHost::of(&board) });
    let (lost, ending, kept) =
        (running(&board, &mut host).await, running(&board, &mut host).await, running(&board, &mut other).await);
    destroy(&board, ending).await;
    pass(&board, 890).await;
    assert_eq!(board.sweep().await["previews_lost"], 0);
    pass(&board, 11).await;
    other.sync(&board).await;
    assert_eq!(board.sweep().await["previews_lost"], 2);
    let preview = of(&board, lost).await;
    assert_eq!((&preview["status"], &preview["stage"]), (&json!("failed"), &json!("host_lost")), "{preview}");
    assert_eq!(of(&board, ending).await["status"], "destroying", "nobody knows that it is gone");
    assert_eq!(of(&board, kept).await["status"], "running");
    assert_eq!(board.number("select count(*) from port_leases").await, 1);
    assert_eq!(board.sweep().await["previews_lost"], 0);
    holds_together(&board).await;
    host.sync(&board).await;
    assert_eq!((host.order(lost), host.order(ending)), (Some(Order::Stop), Some(Order::Destroy)), "it is back");
    holds_together(&board).await;
}

#[tokio::test]
async fn a_preview_that_no_host_takes_up_fails_and_is_gone_after_its_expiry() {
    let board = board().await;
    let build = succeeded(&board).await;
    pass(&board, 901).await;
    let _ = board.sweep().await;
    let preview = of(&board, build).await;
    assert_eq!((&preview["status"], &preview["stage"]), (&json!("failed"), &json!("host_lost")));
    pass(&board, 2700).await;
    let _ = board.sweep().await;
    let _ = board.sweep().await;
    assert_eq!(of(&board, build).await["status"], "destroyed");
    let mut late = FakeHost::of(&board);
    late.keep(build);
    late.sync(&board).await;
    assert_eq!(late.order(build), Some(Order::Forget));
    holds_together(&board).await;
}

#[tokio::test]
async fn a_host_that_never_comes_back_is_waited_for_a_week() {
    let board = board().await;
    let mut host = FakeHost::of(&board);
    let build = running(&board, &mut host).await;
    destroy(&board, build).await;
    pass(&board, 6 * 86_400).await;
    let _ = board.sweep().await;
    assert_eq!(of(&board, build).await["status"], "destroying");
    pass(&board, 86_401).await;
    let _ = board.sweep().await;
    assert_eq!(of(&board, build).await["status"], "destroyed");
    host.sync(&board).await;
    assert_eq!(host.order(build), Some(Order::Destroy), "should it come back after all");
    holds_together(&board).await;
}

#[tokio::test]
async fn after_an_outage_of_the_board_no_host_counts_as_lost_yet() {
    let board = board().await;
    let mut host = FakeHost::of(&board);
    let build = running(&board, &mut host).await;
    let _ = board.sweep().await;
    pass(&board, 1000).await;
    board.execute("update sweeps set last_at = clock_timestamp() - interval '1000 s'").await;
    assert_eq!(board.sweep().await["paused"], true);
    assert_eq!(of(&board, build).await["status"], "running");
    host.sync(&board).await;
    board.execute("update sweeps set not_before = clock_timestamp()").await;
    let _ = board.sweep().await;
    assert_eq!(of(&board, build).await["status"], "running");
}

async fn destroyed(board: &Board) -> uuid::Uuid {
    let mut host = FakeHost::of(board);
    let build = running(board, &mut host).await;
    destroy(board, build).await;
    host.settle(board).await;
    build
}

async fn age(board: &Board, days: u32) {
    board.execute("alter table previews disable trigger user").await;
    board.execute(&format!("update previews set destroyed_at = destroyed_at - interval '{days} days'")).await;
    board.execute("alter table previews enable trigger user").await;
}

#[tokio::test]
async fn destroyed_previews_are_purged_after_their_retention_and_their_hosts_told_to_forget_them() {
    let board = board().await;
    let build = destroyed(&board).await;
    age(&board, 89).await;
    assert_eq!(board.sweep().await["previews_purged"], 0);
    age(&board, 2).await;
    assert_eq!(board.sweep().await["previews_purged"], 1);
    assert_eq!(of(&board, build).await, Value::Null);
    let mut host = FakeHost::of(&board);
    host.keep(build);
    host.sync(&board).await;
    assert_eq!(host.order(build), Some(Order::Forget));
}

#[tokio::test]
async fn a_retention_of_zero_keeps_previews_and_their_builds_for_ever() {
    for (retention, kept) in [(Duration::ZERO, 1), (Duration::from_millis(1), 0)] {
        let board = Board::with(|config| {
            config.timing.preview_retention = retention;
            config.timing.retention = Duration::from_millis(1);
        })
        .await;
        board.pipeline(&board.api, "main", &pipeline(&json!({}))).await;
        destroyed(&board).await;
        board.execute("select pg_sleep(0.01)").await;
        let _ = board.sweep().await;
        assert_eq!(board.number("select count(*) from previews").await, kept, "{retention:?}");
        assert_eq!(board.number("select count(*) from builds").await, kept, "{retention:?}");
    }
}

#[tokio::test]
async fn an_interval_of_zero_turns_the_scheduler_off_and_an_operator_still_sweeps() {
    for (every, after) in [(Duration::ZERO, "running"), (Duration::from_secs(30), "destroying")] {
        let board = Board::with(|config| config.timing.preview_cleanup_every = every).await;
        board.pipeline(&board.api, "main", &pipeline(&json!({}))).await;
        let build = running(&board, &mut FakeHost::of(&board)).await;
        board.execute("update previews set expires_at = clock_timestamp() - interval '1 s'").await;
        sweep_by_schedule(&board).await;
        assert_eq!(of(&board, build).await["status"], after);
        let _ = board.sweep().await;
        assert_eq!(of(&board, build).await["status"], "destroying");
    }
}

#[tokio::test]
async fn the_scheduler_cleans_up_no_more_often_than_it_is_set_to() {
    let board = Board::with(|config| config.timing.preview_cleanup_every = Duration::from_secs(3600)).await;
    board.pipeline(&board.api, "main", &pipeline(&json!({}))).await;
    sweep_by_schedule(&board).await;
    let build = running(&board, &mut FakeHost::of(&board)).await;
    board.execute("update previews set expires_at = clock_timestamp() - interval '1 s'").await;
    sweep_by_schedule(&board).await;
    assert_eq!(of(&board, build).await["status"], "running");
    board.execute("update sweeps set previews_at = previews_at - interval '3600 s'").await;
    sweep_by_schedule(&board).await;
    assert_eq!(of(&board, build).await["status"], "destroying");
}

/// A sweep as the schedule has it.
async fn sweep_by_schedule(board: &Board) {
    reaper::sweep(&board.shell).await.expect("swept");
}

#[tokio::test]
async fn ten_thousand_that_expired_are_swept_in_one_go() {
    let board = board().await;
    running(&board, &mut FakeHost::of(&board)).await;
    board.plans("previews_max = 20000").await;
    board
        .execute(
            "with b as (
                 insert into builds (workspace_id, timeout_seconds, rules_version, class_id, status, claimed_by, claim_id,
                     started_at, max_duration_seconds, ended_at, charged_seconds)
                 select w.id, 60, 1, 1, 'success', t.id, gen_random_uuid(), clock_timestamp(), 60, clock_timestamp(), 0
                 from workspaces w, tokens t, generate_series(1, 10000) where t.kind = 'worker' returning id, workspace_id, claimed_by)
             insert into previews (workspace_id, build_id, token_id, host_id, status, waiting_for, url, port, placed, ttl_seconds,
                 retain_failed, started_at, expires_at)
             select workspace_id, id, claimed_by, 'h1', 'running', null, 'http://h', 1, true, 60, false, clock_timestamp(),
                 clock_timestamp() - interval '1 s' from b",
        )
        .await;
    board.execute("update preview_places set taken = taken + 10000").await;
    board.execute("analyze previews").await;
    assert_eq!(board.sweep().await["previews_expired"], 10_000);
    assert_eq!(board.number("select count(*) from previews where status = 'destroying'").await, 10_000);
    assert_eq!(board.usage().await["previews"], 1);
}
