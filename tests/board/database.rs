//! The invariants in the schema: each CHECK refuses what breaks it, and the words are those of `rules`.

use crate::Board;
use rules::{CancelReason, EndReason, Status};

/// Runs `statement` and expects the constraint `name` to refuse it.
pub(crate) async fn refused(board: &Board, statement: &str, name: &str) {
    match board.try_execute(statement).await {
        Err(sqlx::Error::Database(error)) => assert_eq!(error.constraint(), Some(name), "{statement}: {error}"),
        other => panic!("{statement}: {other:?}, expected {name}"),
    }
}

#[tokio::test]
async fn a_final_status_is_never_changed() {
    let board = Board::new().await;
    let build = board.ended("success").await;
    for change in [
        "status = 'failed', end_reason = 'internal'",
        "charged_seconds = 0",
        "ended_at = now()",
        "status = 'running', ended_at = null, charged_seconds = null, completed = false",
    ] {
        refused(&board, &format!("update builds set {change} where id = '{build}'"), "builds_final_is_final").await;
    }
    // What the trigger does not watch: no status becomes another one without its reason or its end.
    for (status, name) in [
        ("failed", "builds_reason_fits_status"),
        ("timed_out", "builds_reason_fits_status"),
        ("cancelled", "builds_reason_fits_status"),
        ("running", "builds_running_is_leased"),
        ("pending", "builds_pending_is_unclaimed"),
    ] {
        refused(&board, &format!("update builds set status = '{status}' where id = '{build}'"), name).await;
    }
}

#[tokio::test]
async fn every_check_of_a_build_refuses_what_breaks_it() {
    let board = Board::new().await;
    let (running, pending) = (board.running().await, board.submit().await);
    let cases = [
        (pending, "status = 'paused', ended_at = now(), charged_seconds = 0", "builds_status_known"),
        (
            pending,
            "status = 'failed', end_reason = 'bored', ended_at = now(), charged_seconds = 0",
            "builds_end_reason_known",
        ),
        (pending, "lease_expires_at = now()", "builds_pending_is_unclaimed"),
        (running, "lease_expires_at = null", "builds_running_is_leased"),
        (running, "status = 'success'", "builds_final_has_an_end"),
        (running, "status = 'success', ended_at = now(), charged_seconds = 99999", "builds_charge_within_reservation"),
        (running, "status = 'failed', ended_at = now(), charged_seconds = 0", "builds_reason_fits_status"),
        (
            running,
            "status = 'timed_out', end_reason = 'user', ended_at = now(), charged_seconds = 0",
            "builds_reason_fits_status",
        ),
        (
            running,
            "status = 'failed', end_reason = 'bad_ref', ended_at = now(), charged_seconds = 0",
            "builds_reason_fits_status",
        ),
        (pending, "status = 'success', ended_at = now(), charged_seconds = 0", "builds_reason_fits_status"),
        (
            pending,
            "status = 'cancelled', end_reason = 'user', ended_at = now(), charged_seconds = 1",
            "builds_charge_within_reservation",
        ),
        (running, "max_duration_seconds = 0", "builds_reservation_is_positive"),
        (pending, "error_message = repeat('x', 1025)", "builds_error_message_is_short"),
        (running, "cancel_requested_at = now(), cancel_reason = 'mood'", "builds_cancel_reason_known"),
        (running, "cancel_requested_at = now()", "builds_cancel_has_a_reason"),
        (running, "completed = true", "builds_completed_is_final"),
        (pending, "max_duration_seconds = 5", "builds_started_has_a_claim"),
    ];
    for (build, change, name) in cases {
        refused(&board, &format!("update builds set {change} where id = '{build}'"), name).await;
    }
}

/// Each status with every mixture of what can be wrong, or not, with the columns that a check looks at.
const EVERY_BUILD: &str = "
    select jsonb_populate_record(null::builds, jsonb_build_object('id', uuid_v7(), 'timeout_seconds', timeout, 'status', status,
        'class_id', 1, 'end_reason', reason, 'claimed_by', token, 'claim_id', case when claim then uuid_v7() end,
        'started_at', case when started then now() end, 'lease_expires_at', case when lease then now() end,
        'ended_at', case when ended then now() end, 'max_duration_seconds', longest, 'charged_seconds', charged,
        'completed', completed, 'cancel_reason', cancel)) as build
    from unnest('{running,success}'::text[]) status, unnest('{internal,null}'::text[]) reason, unnest('{a,null}'::text[]) token,
        unnest('{t,f}'::bool[]) claim, unnest('{t,f}'::bool[]) started, unnest('{t,f}'::bool[]) lease,
        unnest('{t,f}'::bool[]) ended, unnest('{-1,0,5,null}'::int[]) longest, unnest('{-1,0,5,6,null}'::int[]) charged,
        unnest('{t,f}'::bool[]) completed, unnest('{user,null}'::text[]) cancel, unnest('{0,9}'::int[]) timeout";

#[tokio::test]
async fn what_is_asked_briefly_of_a_build_is_what_is_asked_at_length() {
    let board = Board::new().await;
    let briefly = format!(
        "create function briefly_holds(b builds) returns bool language plpgsql as $$
             begin return build_holds(b); exception when check_violation then return false; end $$;
         create table every_build as {EVERY_BUILD}"
    );
    for statement in briefly.split_inclusive("$$;") {
        board.execute(statement).await;
    }
    let different = "select count(*) from every_build where (build_breaks(build) is null) <> briefly_holds(build)";
    assert_eq!(board.number(different).await, 0);
    let holding = "select count(distinct (build).status) from every_build where build_breaks(build) is null";
    assert_eq!(board.number(holding).await, 2, "both statuses have rows that hold");
}

#[tokio::test]
async fn every_check_of_a_queue_and_of_the_ledger_refuses_what_breaks_it() {
    let board = Board::new().await;
    board.submit().await;
    let cases = [
        ("update queues set head_number = null", "queues_have_a_head_while_pending"),
        ("update queues set head_seconds = null", "queues_have_a_head_while_pending"),
        ("update queues set pending = 0", "queues_have_a_head_while_pending"),
        ("update queues set pending = -1", "queues_have_a_head_while_pending"),
        (
            "update queues set pending = 0, head_number = null, head_seconds = null, open = true",
            "queues_are_closed_while_empty",
        ),
        (
            "insert into charges (build_id, workspace_id, month, seconds, charged_at)
             select uuid_v7(), id, charged_month, -1, now() from workspaces",
            "charges_are_not_negative",
        ),
    ];
    for (statement, name) in cases {
        refused(&board, statement, name).await;
    }
}

#[tokio::test]
async fn every_check_of_a_workspace_refuses_what_breaks_it() {
    let board = Board::new().await;
    let cases = [
        ("slug = 'Not A Slug'", "workspaces_slug_is_one"),
        ("running = -1", "workspaces_sums_are_not_negative"),
        ("reserved_seconds = 1", "workspaces_reserve_only_for_running"),
        ("charged_month = '2026-01-02'", "workspaces_month_is_a_first"),
    ];
    for (change, name) in cases {
        refused(&board, &format!("update workspaces set {change}"), name).await;
    }
}

#[tokio::test]
async fn the_words_of_the_schema_are_those_of_the_rules() {
    let board = Board::new().await;
    let words = |name: &'static str| board.check_words(name);
    let statuses: Vec<_> = Status::ALL.iter().map(|word| word.as_str().to_owned()).collect();
    assert_eq!(words("builds_status_known").await, statuses);
    let reasons: Vec<_> = EndReason::ALL.iter().map(|word| word.as_str().to_owned()).collect();
    assert_eq!(words("builds_end_reason_known").await, reasons);
    let cancels: Vec<_> = CancelReason::ALL.iter().map(|word| word.as_str().to_owned()).collect();
    assert_eq!(words("builds_cancel_reason_known").await, cancels);
}

#[tokio::test]
async fn ids_are_uuids_of_version_7_and_sort_by_time() {
    let board = Board::new().await;
    let first = board.submit().await;
    let second = board.submit().await;
    assert_eq!((first.get_version_num(), second.get_version_num()), (7, 7));
    assert_eq!(first.get_variant(), uuid::Variant::RFC4122);
    board.execute("select pg_sleep(0.002)").await;
    assert!(board.submit().await > second);
}
