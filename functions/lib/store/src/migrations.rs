//! The migrations of this release, and whether a database has them.

use crate::{Error, Store};
use sqlx::migrate::Migrator;
use sqlx::{PgPool, Row as _};

static MIGRATIONS: Migrator = sqlx::migrate!("../../../migrations");

/// Applies every migration that the database does not have, in order, each in a transaction.
///
/// # Errors
///
/// [`Error`] if one fails; those before it stay applied.
pub async fn apply(store: &Store) -> Result<(), Error> {
    MIGRATIONS.run(&store.pool).await.map_err(|error| Error::Failed(sqlx::Error::Migrate(Box::new(error))))
}

/// Whether the newest migration of this release is applied.
pub(crate) async fn are_applied(pool: &PgPool) -> Result<bool, Error> {
    let newest = MIGRATIONS.iter().map(|migration| migration.version).max().unwrap_or(0);
    let table = sqlx::query_scalar!("select to_regclass('_sqlx_migrations') is not null").fetch_one(pool).await?;
    if table != Some(true) {
        return Ok(false);
    }
    // The table is the migrator's own, so the checked macros of a new database can't know it.
    #[expect(clippy::disallowed_methods)]
    let applied = sqlx::query("select coalesce(max(version), 0) from _sqlx_migrations where success").fetch_one(pool);
    let applied: i64 = applied.await?.get(0);
    Ok(applied >= newest)
}
