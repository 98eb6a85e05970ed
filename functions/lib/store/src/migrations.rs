//! The migrations of this release, and which of them a database has.

use crate::executor::Pool;
use crate::{Error, Store, time_limits};
use rules::migrations::{self as rule, Known};
use sqlx::migrate::{MigrateError, Migrator};
use sqlx::{PgConnection, Row as _};

static MIGRATIONS: Migrator = sqlx::migrate!("../../../migrations");

/// A migration may take its time, and waits for locks until it gets them.
const UNLIMITED: &str = "set statement_timeout = 0; set lock_timeout = 0; set idle_in_transaction_session_timeout = 0";
/// The same, but for a lock that functions hold: while it waits, everybody behind it does too.
const BRIEFLY: &str = "set statement_timeout = 0; set lock_timeout = '5s'; set idle_in_transaction_session_timeout = 0";

/// A migration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Migration {
    /// Its number.
    pub version: i64,
    /// Its file's name without the number, with spaces.
    pub description: String,
}

/// Applies every migration that the database does not have, in order, each in a transaction; and limits the sessions to come:
/// statements 20 s, locks 5 s, idle transactions 10 s.
///
/// # Errors
///
/// [`Error`] if one fails; those before it stay applied.
pub async fn apply(store: &Store) -> Result<(), Error> {
    migrate(store, UNLIMITED, None).await
}

/// Applies those up to `target`, which is applied too, in a session of its own that waits for a lock for 5 s only, and for
/// whoever else migrates no longer.
///
/// # Errors
///
/// [`Error::Unavailable`] if a lock was held for longer; [`Error`] if a migration fails. Those before it stay applied.
pub async fn apply_to(store: &Store, target: i64) -> Result<(), Error> {
    migrate(store, BRIEFLY, Some(target)).await
}

async fn migrate(store: &Store, settings: &'static str, target: Option<i64>) -> Result<(), Error> {
    let mut connection = store.pool.detached().await?;
    let done = migrate_in(&mut connection, settings, target).await;
    // With it go its settings, and the lock of a migration that has failed.
    drop(connection);
    done
}

async fn migrate_in(connection: &mut PgConnection, settings: &'static str, target: Option<i64>) -> Result<(), Error> {
    sqlx::raw_sql(settings).execute(&mut *connection).await?;
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
