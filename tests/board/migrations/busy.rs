//! Migrations of a database that is in use: whom they wait for, who waits for them, and what is left of one that did not end.

use super::empty;
use crate::Board;
use edge::Shell;
use sqlx::{AssertSqlSafe, Connection as _, PgConnection};
use std::time::Duration;
use store::Error;
use store::migrations::{Patience, applied, apply, apply_to};

/// The migration that makes an index of `builds` beside writers, and its index.
const INDEXES: i64 = 13;
const INDEX: &str = "builds_reaped";
/// Long enough to be seen waiting.
const SHORT: Duration = Duration::from_secs(2);

/// A database that has all before `next`, and a session beside.
async fn before(next: i64) -> (Shell, PgConnection) {
    let shell = empty(&Board::new().await).await;
    apply_to(&shell.store, next - 1, Patience::default()).await.expect("migrated");
    let other = session(&shell).await;
    (shell, other)
}

async fn session(shell: &Shell) -> PgConnection {
    PgConnection::connect(&shell.config.database_url).await.expect("it answers")
}

async fn run(session: &mut PgConnection, sql: &'static str) {
    sqlx::raw_sql(sql).execute(session).await.expect("a statement of the test itself");
}

/// A transaction that an index must see end, since it may look at what was before.
async fn look_back(session: &mut PgConnection) {
    run(session, "begin isolation level repeatable read; select count(*) from workspaces").await;
}

/// Whether the index can be used; `None` if there is none.
async fn is_whole(session: &mut PgConnection) -> Option<bool> {
    let found = sqlx::query_scalar("select indisvalid from pg_index where indexrelid = to_regclass($1)");
    found.bind(INDEX).fetch_optional(session).await.expect("answered")
}

/// Returns once some session other than `ours` does what `like` says; with its process.
async fn seen(ours: &mut PgConnection, like: &str) -> i32 {
    loop {
        let found = sqlx::query_scalar(AssertSqlSafe(format!(
            "select pid from pg_stat_activity where datname = current_database() and pid <> pg_backend_pid() and {like}"
        )));
        if let Some(pid) = found.fetch_optional(&mut *ours).await.expect("answered") {
            return pid;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// It makes the index, and waits for a transaction to end.
const MAKES: &str = "query like '%create index concurrently%' and wait_event_type = 'Lock'";
/// It asks whether it may migrate.
const ASKS: &str = "query like '%pg_try_advisory_lock%' and state = 'idle'";

async fn has_all(shell: &Shell) {
    let versions: Vec<i64> = applied(&shell.store).await.expect("told").iter().map(|one| one.version).collect();
    let known: Vec<i64> = store::migrations::known().iter().map(|one| one.version).collect();
    assert_eq!(versions, known);
    assert_eq!(is_whole(&mut session(shell).await).await, Some(true));
    shell.store.close().await;
}

#[tokio::test]
async fn a_migration_that_waits_for_a_lock_gives_up_says_whose_and_is_applied_whole_later() {
    let (shell, mut other) = before(12).await;
    run(&mut other, "set application_name = 'a report'; begin; lock table builds in row exclusive mode").await;
    let short = Patience { lock: SHORT, ..Patience::default() };
    let refused = apply_to(&shell.store, INDEXES, short).await.expect_err("the lock is held");
    let Error::Locked(why) = refused else { panic!("{refused:?}") };
    for word in ["migration 12", "ShareRowExclusiveLock on builds", "a report, idle in transaction", "migrate again"] {
        assert!(why.contains(word), "{word}: {why}");
    }
    let table = sqlx::query_scalar::<_, bool>("select to_regclass('task_stops') is null");
    assert!(table.fetch_one(&mut other).await.expect("answered"), "nothing of it is there");
    run(&mut other, "commit").await;
    apply(&shell.store).await.expect("migrated");
    has_all(&shell).await;
}

#[tokio::test]
async fn builds_are_written_while_their_index_is_made_and_it_waits_for_who_looks_back() {
    let (shell, mut other) = before(INDEXES).await;
    look_back(&mut other).await;
    let made = tokio::spawn({
        let store = shell.store.clone();
        async move { apply(&store).await }
    });
    let mut writer = session(&shell).await;
    seen(&mut writer, MAKES).await;
    run(&mut writer, "set lock_timeout = '1s'; begin; lock table builds in row exclusive mode; commit").await;
    run(&mut other, "commit").await;
    made.await.expect("no panic").expect("migrated");
    has_all(&shell).await;
}

#[tokio::test]
async fn an_index_that_gives_up_leaves_none_and_says_who_looks_back() {
    let (shell, mut other) = before(INDEXES).await;
    run(&mut other, "set application_name = 'a dump'").await;
    look_back(&mut other).await;
    let short = Patience { index: SHORT, ..Patience::default() };
    let refused = apply_to(&shell.store, INDEXES, short).await.expect_err("it looks back");
    let Error::Locked(why) = refused else { panic!("{refused:?}") };
    for word in ["migration 13", "the end of a transaction", "a dump, idle in transaction", "migrate again"] {
        assert!(why.contains(word), "{word}: {why}");
    }
    assert_eq!(is_whole(&mut other).await, None);
    run(&mut other, "commit").await;
    apply(&shell.store).await.expect("migrated");
    has_all(&shell).await;
}

/// sqlx's own lock would be a ring here: who waits for it has a snapshot, which the index waits for once the writer has ended.
#[tokio::test]
async fn two_that_migrate_at_once_while_another_writes_both_end_well() {
    let (shell, mut other) = before(INDEXES).await;
    run(&mut other, "begin; lock table builds in row exclusive mode").await;
    let migrating = || {
        let shell = Shell::new(edge::Config::clone(&shell.config)).expect("settings of the test itself");
        tokio::spawn(async move { apply(&shell.store).await })
    };
    let mut looking = session(&shell).await;
    let first = migrating();
    seen(&mut looking, MAKES).await;
    let second = migrating();
    seen(&mut looking, ASKS).await;
    run(&mut other, "commit").await;
    first.await.expect("no panic").expect("migrated");
    second.await.expect("no panic").expect("nothing was left to do");
    has_all(&shell).await;
}

#[tokio::test]
async fn an_index_whose_session_was_killed_is_made_anew() {
    let (shell, mut other) = before(INDEXES).await;
    look_back(&mut other).await;
    let made = tokio::spawn({
        let store = shell.store.clone();
        async move { apply(&store).await }
    });
    let mut looking = session(&shell).await;
    let pid = seen(&mut looking, MAKES).await;
    let killed = sqlx::query_scalar::<_, bool>("select pg_terminate_backend($1)").bind(pid);
    assert!(killed.fetch_one(&mut looking).await.expect("answered"));
    made.await.expect("no panic").expect_err("its session is gone");
    assert_eq!(is_whole(&mut looking).await, Some(false), "it was begun");
    run(&mut other, "commit").await;
    apply(&shell.store).await.expect("migrated");
    has_all(&shell).await;
}

#[tokio::test]
async fn an_index_goes_on_when_whoever_asked_is_gone_and_the_next_waits_for_it() {
    let (shell, mut other) = before(INDEXES).await;
    look_back(&mut other).await;
    let gone = tokio::spawn({
        let shell = Shell::new(edge::Config::clone(&shell.config)).expect("settings of the test itself");
        async move { apply(&shell.store).await }
    });
    let mut looking = session(&shell).await;
    seen(&mut looking, MAKES).await;
    gone.abort();
    assert!(gone.await.expect_err("it was given up").is_cancelled());
    let short = Patience { turn: Duration::from_millis(500), ..Patience::default() };
    let refused = apply_to(&shell.store, INDEXES, short).await.expect_err("the index is being made");
    assert!(matches!(&refused, Error::Locked(why) if why.contains("another session migrates")), "{refused:?}");
    run(&mut other, "commit").await;
    apply(&shell.store).await.expect("migrated");
    has_all(&shell).await;
}
