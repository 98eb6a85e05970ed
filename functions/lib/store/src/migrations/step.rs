//! One migration, which gives up rather than keep others waiting, and can be applied again whatever became of it.

use super::{MIGRATIONS, Patience, failed, waits};
use crate::Error;
use crate::executor::Pool;
use rules::migrations::index_beside_writers;
use sqlx::migrate::Migration;
use sqlx::{AssertSqlSafe, PgConnection};
use std::time::Duration;

/// Applies `one`, before which nothing is due.
///
/// # Errors
///
/// [`Error::Locked`] if it gave up waiting; [`Error`] if it failed. Nothing of it stays but perhaps an index that no query uses, where
/// that could not be taken away at once: the next call does.
pub(super) async fn apply(
    pool: &Pool,
    connection: &mut PgConnection,
    one: &Migration,
    patience: Patience,
) -> Result<(), Error> {
    let pid = sqlx::query_scalar!(r#"select pg_backend_pid() as "pid!""#).fetch_one(&mut *connection).await?;
    let (done, waited) = waits::watched(pool, pid, run(connection, one, patience)).await;
    done.map_err(|error| explained(error, one.version, waited))
}

async fn run(connection: &mut PgConnection, one: &Migration, patience: Patience) -> Result<(), Error> {
    let Some(index) = index_beside_writers(one.sql.as_str()) else {
        return send(connection, one, patience.lock).await;
    };
    // One that was begun and not made whole would be taken for the index that there is to be.
    drop_unless_whole(connection, index, patience.lock).await?;
    let made = send(connection, one, patience.index).await;
    if made.is_err() {
        // Writers pay for it meanwhile. Why it was not made is what counts, also where this fails.
        drop_unless_whole(connection, index, patience.lock).await.ok();
    }
    made
}

async fn send(connection: &mut PgConnection, one: &Migration, patience: Duration) -> Result<(), Error> {
    limit(connection, patience).await?;
    MIGRATIONS.run_direct(Some(one.version), connection, false).await.map_err(failed)
}

/// It may take its time, but waits for a lock for so long only.
async fn limit(connection: &mut PgConnection, lock: Duration) -> Result<(), Error> {
    let settings = format!(
        "set statement_timeout = 0; set idle_in_transaction_session_timeout = 0; set lock_timeout = {}",
        lock.as_millis()
    );
    sqlx::raw_sql(AssertSqlSafe(settings)).execute(connection).await?;
    Ok(())
}

async fn drop_unless_whole(connection: &mut PgConnection, index: &str, patience: Duration) -> Result<(), Error> {
    let whole = sqlx::query_scalar!("select indisvalid from pg_index where indexrelid = to_regclass($1)", index);
    if whole.fetch_optional(&mut *connection).await? != Some(false) {
        return Ok(());
    }
    limit(connection, patience).await?;
    // The name is a migration's, and nothing but letters.
    let drop = format!("drop index concurrently if exists {index}");
    sqlx::raw_sql(AssertSqlSafe(drop)).execute(connection).await?;
    Ok(())
}

fn explained(error: Error, version: i64, waited: Option<String>) -> Error {
    if !is_lock_timeout(&error) {
        return error;
    }
    let waited = waited.unwrap_or_else(|| "a lock that others hold".into());
    Error::Locked(format!(
        "migration {version} gave up waiting for {waited}. It was not applied, those before it were: when that \
         transaction has ended, or was ended (pg_terminate_backend), migrate again"
    ))
}

fn is_lock_timeout(error: &Error) -> bool {
    let Error::Unavailable(error) = error else { return false };
    error.as_database_error().and_then(|error| error.code()).as_deref() == Some("55P03")
}
