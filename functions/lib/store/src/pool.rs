//! Connections to the database.

use crate::Error;
use sqlx::postgres::{PgConnectOptions, PgPoolOptions, PgSslMode};
use sqlx::{Connection as _, PgPool, Postgres, Transaction};
use std::str::FromStr;
use std::time::Duration;

/// A connection that was idle for longer may have been closed by the other side: a restart, a proxy.
const PING_AFTER: Duration = Duration::from_secs(2);
/// How long a ping may take. A connection whose other side is gone without a word would keep a call until it is given up.
const PING_MAX: Duration = Duration::from_secs(1);

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
                        tokio::time::timeout(PING_MAX, connection.ping()).await.map_err(sqlx::Error::protocol)??;
                    }
                    Ok(true)
                })
            })
            .connect_lazy_with(options);
        Ok(Self { pool })
    }

    /// Makes sure of a connection: one that does not answer a ping within a second is given up for a new one.
    ///
    /// For whoever may have been frozen since the last call, without a clock that went on.
    ///
    /// # Errors
    ///
    /// [`Error::Refused`] if the password is not right, [`Error::Unavailable`] if the database does not answer.
    pub async fn revive(&self) -> Result<(), Error> {
        let mut connection = self.pool.acquire().await?;
        if matches!(tokio::time::timeout(PING_MAX, connection.ping()).await, Ok(Ok(()))) {
            return Ok(());
        }
        // Nothing is said to the other side, which might not hear it.
        drop(connection.detach());
        self.pool.acquire().await?;
        Ok(())
    }

    /// Opens connections from now on only to a server of the right name, whose certificate `ca` has signed: PEM, or a file of it.
    pub fn trust(&self, ca: &str) {
        let options = PgConnectOptions::clone(&self.pool.connect_options()).ssl_mode(PgSslMode::VerifyFull);
        let is_pem = ca.trim_start().starts_with("-----BEGIN");
        self.pool.set_connect_options(match is_pem {
            true => options.ssl_root_cert_from_pem(ca.into()),
            false => options.ssl_root_cert(ca.trim()),
        });
    }

    /// Opens connections as `username` (if given) with `password` from now on. Those that are open stay.
    pub fn identify(&self, username: Option<&str>, password: &str) {
        let options = PgConnectOptions::clone(&self.pool.connect_options()).password(password);
        self.pool.set_connect_options(username.into_iter().fold(options, PgConnectOptions::username));
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
