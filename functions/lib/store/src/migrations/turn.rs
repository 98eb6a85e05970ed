//! One session at a time migrates a database.

use crate::Error;
use sqlx::PgConnection;
use std::time::Duration;

/// Between two looks whether it is our turn.
const EVERY: Duration = Duration::from_millis(200);

/// Takes the turn, which the session has until it ends.
///
/// It asks again and again, where sqlx's own lock is waited for: a statement that waits holds a snapshot, an index that is made beside
/// writers waits for every snapshot, and who makes it holds the lock. Postgres ends such a ring by ending one of the two. So that
/// lock, which sqlx takes all the same, is never waited for among sessions that came by here.
///
/// # Errors
///
/// [`Error::Locked`] if another session had it for `patience`; [`Error`] if the database does not answer.
pub(super) async fn take(connection: &mut PgConnection, patience: Duration) -> Result<(), Error> {
    tokio::time::timeout(patience, ask(connection)).await.unwrap_or_else(|_| Err(taken(patience)))
}

async fn ask(connection: &mut PgConnection) -> Result<(), Error> {
    while !is_mine(connection).await? {
        tokio::time::sleep(EVERY).await;
    }
    Ok(())
}

async fn is_mine(connection: &mut PgConnection) -> Result<bool, Error> {
    // "migrate", for a number that nobody else takes.
    let taken = sqlx::query_scalar!(r#"select pg_try_advisory_lock(x'6d696772617465'::bigint) as "taken!""#);
    Ok(taken.fetch_one(connection).await?)
}

fn taken(patience: Duration) -> Error {
    Error::Locked(format!(
        "another session migrates this database, and has not ended within {} s. It may be making an index, also after whoever \
         asked for that is gone: migrate again when it has ended, which is safe",
        patience.as_secs()
    ))
}
