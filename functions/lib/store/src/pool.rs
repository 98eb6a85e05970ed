//! Connections to the database.

use crate::Error;
use sqlx::postgres::{PgConnectOptions, PgPoolOptions};
use sqlx::{Connection as _, PgPool, Postgres, Transaction};
use std::str::FromStr;
use std::time::Duration;

/// A connection that was idle for longer may have been closed by the other side: a restart, a proxy.
const PING_AFTER: Duration = Duration::from_secs(2);

/// A pool of connections; cheap to clone.
#[derive(Clone, Debug)]
pub struct Store {
    pub(crate) pool: PgPool,
}

impl Store {
    /// A pool for `database_url` of at most `connections`, opened when first used.
    ///
    /// A connection is pinged before use only if it was idle for a while: each time would be a round trip a call. One that
    /// died in between costs the call that meets it a 503, and is not used again.
    ///
    /// # Errors
    ///
    /// [`Error::Failed`] if the address can't be read.
    pub fn connect_lazy(database_url: &str, connections: u32) -> Result<Self, Error> {
        let options = PgConnectOptions::from_str(database_url)?.application_name("callboard");
        let pool = PgPoolOptions::new()
            .max_connections(connections)
            .acquire_timeout(Duration::from_secs(5))
            .test_before_acquire(false)
            .before_acquire(|connection, meta| {
                Box::pin(async move {
                    if meta.idle_for > PING_AFTER {
                        connection.ping().await?;
                    }
                    Ok(true)
                })
            })
            .connect_lazy_with(options);
        Ok(Self { pool })
    }

    /// Begins a transaction.
    ///
    /// # Errors
    ///
    /// [`Error::Unavailable`] if the database can't be asked.
    pub async fn begin(&self) -> Result<Transaction<'static, Postgres>, Error> {
        Ok(self.pool.begin().await?)
    }

    /// Whether the database answers and has every migration of this release.
    ///
    /// # Errors
    ///
    /// [`Error`] if it does not answer, or can't say.
    pub async fn is_ready(&self) -> Result<bool, Error> {
        crate::migrations::are_applied(&self.pool).await
    }

    /// Closes every connection, after their transactions.
    pub async fn close(&self) {
        self.pool.close().await;
    }
}
