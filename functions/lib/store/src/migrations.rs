//! The migrations of this release, and which of them a database has.

use crate::executor::Pool;
use crate::{Error, Store, time_limits};
use rules::migrations::{self as rule, Known};
use sqlx::migrate::{MigrateError, Migrator};
use sqlx::{PgConnection, Row as _};
use std::time::Duration;

mod step;
mod turn;
mod waits;

static MIGRATIONS: Migrator = sqlx::migrate!("../../../migrations");

/// How long a migration waits for others, before it gives up and is to be applied again.
#[derive(Clone, Copy, Debug)]
pub struct Patience {
    /// For a lock. While it waits, everybody who comes after it does too.
    pub lock: Duration,
    /// For each transaction that must end before an index that is made beside writers is whole. Nobody waits behind that.
    pub index: Duration,
    /// For whoever else migrates.
    pub turn: Duration,
}

impl Default for Patience {
    /// 5 s, but for an index 60 s: longer than a transaction of the board's takes, which is ended after 10 idle seconds.
    fn default() -> Self {
        Self { lock: Duration::from_secs(5), index: Duration::from_secs(60), turn: Duration::from_secs(5) }
    }
}

/// A migration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Migration {
    /// Its number.
    pub version: i64,
    /// Its file's name without the number, with spaces.
    pub description: String,
}

/// Applies every migration that the database does not have, in order, each in a transaction or an index beside writers; and limits
/// the sessions to come: statements 20 s, locks 5 s, idle transactions 10 s. Waits for whoever else migrates until that has ended.
///
/// # Errors
///
/// As [`apply_to`].
pub async fn apply(store: &Store) -> Result<(), Error> {
    migrate(store, None, Patience { turn: Duration::MAX, ..Patience::default() }).await
}

/// Applies those up to `target`, which is applied too, in a session of its own.
///
/// # Errors
///
/// [`Error::Locked`] if it gave up waiting; [`Error`] if a migration fails. Those before it stay applied.
pub async fn apply_to(store: &Store, target: i64, patience: Patience) -> Result<(), Error> {
    migrate(store, Some(target), patience).await
}

async fn migrate(store: &Store, target: Option<i64>, patience: Patience) -> Result<(), Error> {
    let mut connection = store.pool.detached().await?;
    let done = migrate_in(store, &mut connection, target, patience).await;
    // With it go its settings, and the lock of a migration that has failed.
    drop(connection);
    done
}

async fn migrate_in(
    store: &Store,
    connection: &mut PgConnection,
    target: Option<i64>,
    patience: Patience,
) -> Result<(), Error> {
    turn::take(connection, patience.turn).await?;
    let applied: Vec<i64> = applied(store).await?.iter().map(|one| one.version).collect();
    let is_due = |version: i64| target.is_none_or(|target| version <= target) && !applied.contains(&version);
    for one in MIGRATIONS.iter().filter(|one| is_due(one.version)) {
        step::apply(&store.pool, connection, one, patience).await?;
    }
    // Nothing is left to apply: it compares what was applied with this release's.
    MIGRATIONS.run_direct(target, connection, false).await.map_err(failed)?;
    time_limits::set(connection).await
}

fn failed(error: MigrateError) -> Error {
    if let MigrateError::Execute(error) | MigrateError::ExecuteMigration(error, _) = error {
        return error.into();
    }
    Error::Failed(sqlx::Error::Migrate(Box::new(error)))
}

/// Those of this release.
#[must_use]
pub fn known() -> Vec<Migration> {
    let of =
        |one: &sqlx::migrate::Migration| Migration { version: one.version, description: one.description.to_string() };
    MIGRATIONS.iter().map(of).collect()
}

/// Those that the database has, by their number; none if it was never migrated.
///
/// # Errors
///
/// [`Error`] if it does not answer.
pub async fn applied(store: &Store) -> Result<Vec<Migration>, Error> {
    applied_in(&store.pool).await
}

async fn applied_in(pool: &Pool) -> Result<Vec<Migration>, Error> {
    let table = sqlx::query_scalar!("select to_regclass('_sqlx_migrations') is not null").fetch_one(pool).await?;
    if table != Some(true) {
        return Ok(Vec::new());
    }
    // The table is the migrator's own, so the checked macros of a new database can't know it.
    #[expect(clippy::disallowed_methods)]
    let rows = sqlx::query("select version, description from _sqlx_migrations where success order by version");
    let rows = rows.fetch_all(pool).await?;
    Ok(rows.iter().map(|row| Migration { version: row.get(0), description: row.get(1) }).collect())
}

/// Whether the newest migration that this release needs is applied.
pub(crate) async fn are_applied(pool: &Pool) -> Result<bool, Error> {
    let newest = applied_in(pool).await?.iter().map(|one| one.version).max().unwrap_or(0);
    Ok(newest >= rule::needed(&rules_of(&known())))
}

/// Them as the rules know them.
#[must_use]
pub fn rules_of(migrations: &[Migration]) -> Vec<Known> {
    let of = |one: &Migration| Known { version: one.version, is_contract: rule::is_contract(&one.description) };
    migrations.iter().map(of).collect()
}
