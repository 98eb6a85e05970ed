//! How many statements each worker call costs, as the server counts them, and what a heartbeat leaves alone.

use crate::Board;
use serde_json::json;
use std::future::Future;
use uuid::Uuid;

/// Whether the server counts statements; if not, says so out loud.
pub(crate) async fn is_counting(board: &Board) -> bool {
    let loaded = "select count(*) from pg_settings where name = 'shared_preload_libraries' and setting like '%pg_stat_statements%'";
    let counting = board.number(loaded).await == 1;
    if !counting {
        crate::skipped::skip("statements", "the test server has no pg_stat_statements");
    }
    counting
}

/// Runs `call` and counts the statements that the server ran for it, transactions' BEGIN and COMMIT among them. Each is a
/// round trip.
pub(crate) async fn count<T>(board: &Board, call: impl Future<Output = T>) -> i64 {
    board.execute("create extension if not exists pg_stat_statements").await;
    let ours = "dbid = (select oid from pg_database where datname = current_database())";
    let reset = format!(
        "select pg_stat_statements_reset(0, oid, 0) from pg_database where datname = current_database() and '{ours}' <> ''"
    );
    board.execute(&reset).await;
    let _ = call.await;
    let calls = format!(
        "select coalesce(sum(calls), 0)::bigint from pg_stat_statements where {ours} and query not like '%pg_stat_statements%'"
    );
    board.number(&calls).await
}

#[tokio::test]
async fn a_claim_a_fetch_a_heartbeat_a_log_batch_a_report_and_a_complete_cost_one_statement_each() {
    let board = Board::new().await;
    if !is_counting(&board).await {
        return;
    }
    board.submit().await;
    // The pool's first connection sets itself up.
    let build = board.running().await;
    assert_eq!(count(&board, board.claim_as(&board.worker, Uuid::new_v4())).await, 1, "claim");
    let token = board.shell.seal.log_token(build, &edge::WorkerToken::of(&board.worker).id);
    let fetcher = Uuid::new_v4().to_string();
    for time in ["fetch", "fetch again"] {
        let fetch = async { crate::fetches::fetch_by(&board, build, &token, Some(&fetcher)).await.ok() };
        assert_eq!(count(&board, fetch).await, 1, "{time}");
    }
    let beat = async { board.work(&format!("builds/{build}/heartbeat"), &json!({})).await.ok() };
    assert_eq!(count(&board, beat).await, 1, "heartbeat");
    assert_eq!(count(&board, board.send_logs(build, &[(1, "a"), (2, "b")])).await, 1, "logs");
    let told = || async { crate::reports::told(&board, build, &board.worker).await.ok() };
    assert_eq!(count(&board, told()).await, 1, "told that there is no report");
    let report = json!({ "outcome": "success" });
    for time in ["report", "report again"] {
        let report = async { crate::reports::report_by(&board, build, &token, Some(&fetcher), &report).await.ok() };
        assert_eq!(count(&board, report).await, 1, "{time}");
    }
    assert_eq!(count(&board, told()).await, 1, "told");
    let end = json!({ "status": "success", "ran_ms": 1, "last_seq": 2 });
    assert_eq!(count(&board, board.complete(build, &end)).await, 1, "complete");
    board.holds_together().await;
}

#[tokio::test]
async fn a_claim_of_nothing_costs_one_statement() {
    let board = Board::new().await;
    if !is_counting(&board).await {
        return;
    }
    let _ = board.claim().await;
    assert_eq!(count(&board, board.claim_as(&board.worker, Uuid::new_v4())).await, 1);
}

#[tokio::test]
async fn a_sweep_looks_for_previews_only_where_there_can_be_some() {
    let board = Board::new().await;
    if !is_counting(&board).await {
        return;
    }
    let _ = board.sweep().await;
    let without = count(&board, board.sweep()).await;
    let host = "insert into preview_hosts (token_id, host_id, first_port, last_port, synced_at)
        select id, 'h9', 8100, 8199, clock_timestamp() from tokens where kind = 'worker' limit 1";
    board.execute(host).await;
    let with = count(&board, board.sweep()).await;
    println!("an idle sweep: {without} statements without previews, {with} with a host of some");
    assert!(without < with, "{without} and {with}");
}

#[tokio::test]
async fn a_heartbeat_or_a_fetch_changes_nothing_that_is_in_an_index() {
    let board = Board::new().await;
    let changed = ["lease_expires_at", "phase", "last_output_age_ms", "job_fetch_id"];
    let indexes = "select count(*) from pg_indexes where tablename = 'builds' and indexdef like '%COLUMN%'";
    for column in changed {
        assert_eq!(board.number(&indexes.replace("COLUMN", column)).await, 0, "{column}");
    }
    let indexed = "select count(*) from pg_index i where i.indrelid = 'builds'::regclass and i.indisvalid";
    assert!(board.number(indexed).await > 0);
}

#[tokio::test]
async fn heartbeats_are_hot_updates() {
    let board = Board::new().await;
    // An ANALYZE that runs meanwhile keeps old rows from being pruned, on a busy machine for the whole test.
    board
        .execute(
            "do $$ declare t regclass; begin
                 for t in select oid from pg_class where relkind = 'r' and relnamespace = 'public'::regnamespace loop
                     execute format('alter table %s set (autovacuum_enabled = off)', t);
                 end loop;
             end $$",
        )
        .await;
    let mut builds = Vec::new();
    for _ in 0..20 {
        builds.push(board.running().await);
    }
    let counted =
        "select (n_tup_hot_upd * 1000000 + n_tup_upd)::bigint from pg_stat_user_tables where relname = 'builds'";
    let counted_to = |updates: i64| {
        let board = &board;
        async move {
            loop {
                let count = settled_count(board, counted).await;
                if count % 1_000_000 >= updates {
                    return count;
                }
            }
        }
    };
    // The claims, which are not HOT, first.
    let before = counted_to(20).await;
    for _ in 0..10 {
        for build in &builds {
            let _ = board.work(&format!("builds/{build}/heartbeat"), &json!({ "phase": "test" })).await.ok();
        }
    }
    board.shell.store.close().await;
    let after = counted_to(220).await;
    let hot = after / 1_000_000 - before / 1_000_000;
    assert!(hot >= 190, "{hot} of 200 heartbeats were HOT");
}

/// Counters reach the view when their connection is idle for a moment, or closed.
async fn settled_count(board: &Board, query: &str) -> i64 {
    board.execute("select pg_stat_clear_snapshot()").await;
    board.number(query).await
}

/// Workspaces that are skipped, each with one build that waits in a queue of the class of those there are: at their running
/// limit.
async fn skipped(board: &Board, count: u32) {
    let workspaces = format!(
        "with w as (insert into workspaces (slug) select 's' || n from generate_series(1, {count}) n returning id),
             p as (insert into plans (workspace_id, seconds_per_month, build_seconds_max, running_max, pending_max)
                 select id, 1000, 1000, 0, 1000 from w)
         insert into builds (workspace_id, number, timeout_seconds, rules_version, class_id)
         select id, -row_number() over (), 60, 1, (select id from classes) from w"
    );
    let queues = "insert into queues (workspace_id, class_id, pending, head_number, head_seconds)
        select workspace_id, class_id, 1, number, 60 from builds where number < 0";
    let sums = "update workspaces set pending = 1 where slug like 's%' and pending = 0";
    let mut conn = board.pool.acquire().await.expect("a connection");
    for statement in [&workspaces, queues, sums, "analyze workspaces, queues, builds"] {
        let done = sqlx::query(sqlx::AssertSqlSafe(statement.to_owned())).execute(&mut *conn).await;
        done.unwrap_or_else(|error| panic!("{statement}: {error}"));
    }
    // What it read is in the counters once it is closed.
    conn.close().await.expect("closed");
}

#[tokio::test]
async fn a_claim_reads_no_row_of_workspaces_that_it_skips() {
    let board = Board::new().await;
    board.submit().await;
    skipped(&board, 5000).await;
    let read = "select coalesce(sum(coalesce(idx_tup_fetch, 0) + coalesce(seq_tup_read, 0)), 0)::bigint
        from pg_stat_user_tables where relname in ('workspaces', 'queues', 'builds', 'plans')";
    board.execute("select pg_stat_force_next_flush()").await;
    let before = board.number(read).await;
    assert!(board.claim().await.is_some());
    // The claiming connection reports its counters when it is next idle for a moment, or closed.
    board.shell.store.close().await;
    board.execute("select pg_stat_force_next_flush()").await;
    let after = board.number(read).await;
    assert!(after - before < 50, "{} rows were read", after - before);
}
