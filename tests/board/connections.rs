//! What a call costs of a connection, what becomes of one that a call leaves behind, and what the server allows it.

mod counted;
mod pooled;

use crate::Board;
use counted::Counted;
use serde_json::json;
use sqlx::postgres::PgConnectOptions;
use sqlx::{Connection as _, PgConnection};
use std::str::FromStr as _;
use std::time::Duration;
use store::Store;

#[tokio::test]
async fn a_call_of_one_statement_is_one_message_and_one_answer() {
    let mut board = Board::with(|config| config.database_connections = 1).await;
    let build = board.running().await;
    let counted = Counted::before(&board).await;
    board.reconnect(|config| config.database_url.clone_from(&counted.url));
    let path = format!("builds/{build}/heartbeat");
    let _ = board.work(&path, &json!({})).await.ok();
    let before = counted.answers();
    for _ in 0..3 {
        let _ = board.work(&path, &json!({})).await.ok();
    }
    // What is said when a connection is put back is said beside the call, if at all.
    tokio::time::sleep(Duration::from_millis(100)).await;
    assert_eq!(counted.answers() - before, 3);
}

/// A store of one connection, so that whatever a call leaves of it is met by the next.
fn single(board: &Board) -> Store {
    Store::connect_lazy(&board.shell.config.database_url, 1).expect("an address")
}

#[tokio::test]
async fn a_transaction_that_is_dropped_has_not_happened_and_leaves_a_connection_that_works() {
    let board = Board::new().await;
    let store = single(&board);
    assert!(store.is_ready().await.expect("answered"));
    let before = sessions(&board).await;
    let mut tx = store.begin().await.expect("a transaction");
    assert!(store::workspaces::insert(&mut tx, "never").await.expect("inserted"));
    drop(tx);
    let mut tx = store.begin().await.expect("another");
    assert!(store::workspaces::insert(&mut tx, "never").await.expect("it is not there"));
    tx.commit().await.expect("committed");
    let never = "select count(*) from workspaces where slug = 'never'";
    assert_eq!(board.number(never).await, 1);
    assert_eq!(sessions(&board).await, before, "the same sessions, and nothing open in them");
}

/// Which sessions of calls there are, those of the board too, as the sum of their processes; and how many are in a transaction.
async fn sessions(board: &Board) -> (i64, i64) {
    let of = "from pg_stat_activity where datname = current_database() and application_name = 'callboard'";
    let open = board.number(&format!("select count(*) {of} and state <> 'idle'")).await;
    (board.number(&format!("select sum(pid) {of}")).await, open)
}

#[tokio::test]
async fn a_call_that_is_given_up_leaves_no_answer_to_the_next() {
    let board = Board::new().await;
    let store = single(&board);
    let mut holder = board.pool.begin().await.expect("a transaction");
    sqlx::query("lock table plans").execute(&mut *holder).await.expect("locked");
    let waits = store::workspaces::clear_plan(&store, "acme");
    let given_up = tokio::time::timeout(Duration::from_millis(200), waits).await;
    assert!(given_up.is_err(), "it waits for the lock");
    holder.rollback().await.expect("released");
    assert!(store.is_ready().await.expect("the next is answered what it asked"));
}

#[tokio::test]
async fn a_statement_that_failed_leaves_a_connection_that_works() {
    let board = Board::new().await;
    let store = single(&board);
    assert!(store.is_ready().await.expect("answered"));
    let before = sessions(&board).await;
    for _ in 0..2 {
        let mut tx = store.begin().await.expect("a transaction");
        store::workspaces::insert(&mut tx, "no slug at all\0").await.expect_err("no text of Postgres has a NUL");
        drop(tx);
        assert!(store.is_ready().await.expect("answered"));
    }
    assert_eq!(sessions(&board).await, before, "the same sessions, and nothing open in them");
}

#[tokio::test]
async fn sessions_are_limited_by_the_database_whoever_opens_them() {
    let board = Board::new().await;
    store::migrations::apply(&board.shell.store).await.expect("nothing to migrate, and limits set");
    let limits = limits(&board.shell.config.database_url).await;
    assert_eq!(limits, ["20s", "5s", "10s"]);
}

#[tokio::test]
async fn a_role_that_does_not_own_its_database_is_limited_by_itself() {
    let board = Board::new().await;
    let role = format!("r_{}", uuid::Uuid::new_v4().simple());
    board.execute(&format!("create role {role} login")).await;
    board.execute(&format!("grant select on _sqlx_migrations to {role}")).await;
    board.execute(&format!("grant usage, create on schema public to {role}")).await;
    let options = PgConnectOptions::from_str(&board.shell.config.database_url).expect("an address").username(&role);
    let url = callboard_tests::url(&options);
    let store = Store::connect_lazy(&url, 1).expect("an address");
    store::migrations::apply(&store).await.expect("nothing to migrate, and limits set");
    assert_eq!(limits(&url).await, ["20s", "5s", "10s"]);
    let others = limits(&board.shell.config.database_url).await;
    assert_eq!(others, ["0", "0", "0"], "nobody else is");
    let gone = [format!("drop owned by {role}"), format!("drop role {role}")];
    for statement in gone {
        board.execute(&statement).await;
    }
}

async fn limits(url: &str) -> Vec<String> {
    let mut session = PgConnection::connect(url).await.expect("a session");
    let mut limits = Vec::new();
    for name in ["statement_timeout", "lock_timeout", "idle_in_transaction_session_timeout"] {
        let asked = sqlx::query_scalar("select current_setting($1)").bind(name);
        limits.push(asked.fetch_one(&mut session).await.expect("its value"));
    }
    limits
}
