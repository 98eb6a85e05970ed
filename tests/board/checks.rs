//! Every named CHECK of the schema refuses what breaks it, and none is without a test. (Those of builds, queues, the ledger and
//! previews have theirs beside what else there is to say of them.)

use crate::Board;
use crate::database::refused;
use serde_json::json;

/// A statement, and the CHECK that refuses it.
const CASES: &[(&str, &str)] = &[
    ("insert into board (only_row) values (false)", "board_is_one_row"),
    ("insert into sweeps (only_row) values (false)", "sweeps_is_one_row"),
    ("update pipelines set slug = 'No Slug'", "pipelines_slug_is_one"),
    ("update plans set seconds_per_month = -1", "plans_are_not_negative"),
    ("update plans set build_seconds_max = 0", "plans_are_not_negative"),
    ("update plans set build_seconds_max = 86401", "plans_are_not_negative"),
    ("update plans set running_max = -1", "plans_are_not_negative"),
    ("update plans set pending_max = -1", "plans_are_not_negative"),
    ("update plans set previews_max = -1", "plans_of_previews_are_not_negative"),
    ("update plans set preview_seconds_max = 0", "plans_of_previews_are_not_negative"),
    ("update plans set preview_seconds_max = 86401", "plans_of_previews_are_not_negative"),
    ("update plans set lapsed = true, fetched_at = null", "plans_of_the_tables_never_lapse"),
    ("update tokens set id = '00000000' where kind = 'operator'", "tokens_id_is_of_the_digest"),
    ("update tokens set digest = '\\x00' where kind = 'operator'", "tokens_id_is_of_the_digest"),
    ("update tokens set kind = 'guest' where kind = 'operator'", "tokens_kind_known"),
    ("update tokens set workspace_id = null where kind = 'api'", "tokens_api_has_a_workspace"),
    (
        "update tokens set workspace_id = (select min(id::text)::uuid from workspaces) where kind = 'operator'",
        "tokens_api_has_a_workspace",
    ),
    ("update tokens set workspaces = array[]::uuid[] where kind = 'operator'", "tokens_only_workers_are_limited"),
    (
        "insert into secrets (workspace_id, name, key_id, nonce, ciphertext) select id, '1A', 'k', '', '' from workspaces",
        "secrets_name_is_a_variable",
    ),
    (
        "insert into idempotency_keys (workspace_id, key, body_digest, build_id) select id, '', '', id from workspaces",
        "idempotency_keys_are_short",
    ),
    (
        "insert into idempotency_keys (workspace_id, key, body_digest, build_id)
         select id, repeat('k', 256), '', id from workspaces",
        "idempotency_keys_are_short",
    ),
    ("update log_heads set next_seq = 0", "log_heads_count_up"),
    ("update log_heads set bytes = -1", "log_heads_count_up"),
    ("update log_heads set discarded_from = next_seq", "log_heads_discard_what_was_sent"),
    ("update build_logs set seq = 0", "build_logs_seq_is_positive"),
    ("update build_logs set stream = 'stdin'", "build_logs_stream_known"),
    (
        "insert into reports (build_id, report) select id, to_jsonb(repeat('x', 131071)) from builds",
        "reports_are_short",
    ),
    (
        "insert into billing_fetches (workspace_id, attempted_at, failures, next_attempt_at) select id, now(), -1, now() from workspaces",
        "billing_fetches_failures_are_not_negative",
    ),
    (
        "insert into billing_fetches (workspace_id, attempted_at, failures, last_error) select id, now(), 1, 'timeout' from workspaces",
        "billing_fetches_failures_back_off",
    ),
    (
        "insert into billing_fetches (workspace_id, attempted_at, failures, next_attempt_at) select id, now(), 1, now() from workspaces",
        "billing_fetches_failures_have_an_error",
    ),
    (
        "insert into billing_fetches (workspace_id, attempted_at, last_error) select id, now(), 'timeout' from workspaces",
        "billing_fetches_failures_have_an_error",
    ),
    (
        "insert into preview_hosts (token_id, host_id, first_port, last_port, synced_at)
         select id, '', 1, 2, now() from tokens where kind = 'worker'",
        "preview_hosts_id_is_short",
    ),
    (
        "insert into preview_hosts (token_id, host_id, first_port, last_port, synced_at)
         select id, 'h', 2, 1, now() from tokens where kind = 'worker'",
        "preview_hosts_ports_are_a_range",
    ),
    (
        "insert into preview_places (workspace_id, taken) select id, -1 from workspaces
      on conflict (workspace_id) do update set taken = -1",
        "preview_places_are_not_negative",
    ),
    (
        "insert into previews (workspace_id, build_id, token_id, host_id, port, status, destroyed_at, ttl_seconds,
             retain_failed, expires_at)
         select workspace_id, id, claimed_by, 'h', 9, 'destroyed', now(), 1, false, now() from builds",
        "previews_destroyed_has_no_port",
    ),
];

/// Where the other CHECKs have their tests.
const OTHERS: [&str; 4] = [
    include_str!("database.rs"),
    include_str!("billing.rs"),
    include_str!("previews.rs"),
    include_str!("previews/schema.rs"),
];

#[tokio::test]
async fn every_check_refuses_what_breaks_it() {
    let board = Board::new().await;
    let build = board.running().await;
    let chunks = json!({ "chunks": [{ "seq": 1, "step": "test", "stream": "stdout", "at_ms": 1, "text": "x" }] });
    let _ = board.work(&format!("builds/{build}/logs"), &chunks).await.ok();
    for (statement, name) in CASES {
        refused(&board, statement, name).await;
    }
}

#[tokio::test]
async fn no_check_of_the_schema_is_without_a_test() {
    let board = Board::new().await;
    // A check by a function (`…_hold`) names what does not hold, and each of those names is tried.
    let names = "select conname::text from pg_constraint
        where contype = 'c' and connamespace = 'public'::regnamespace and conname !~ '_hold$'";
    let names = board.texts(names).await;
    let is_tried = |name: &String| {
        CASES.iter().any(|(_, tried)| tried == name) || OTHERS.iter().any(|text| text.contains(&format!("\"{name}\"")))
    };
    let untried: Vec<&String> = names.iter().filter(|name| !is_tried(name)).collect();
    assert_eq!(untried, Vec::<&String>::new());
}
