//! Connections to the database.

use crate::Error;
use crate::connections::Opener;
use crate::executor::{Pool, Transaction};
use crate::held::Statements;
use deadpool::managed::{self, QueueMode};
use sqlx::Connection as _;
use sqlx::postgres::{PgConnectOptions, PgSslMode};
use std::str::FromStr;

/// A pool of connections; cheap to clone.
#[derive(Clone, Debug)]
pub struct Store {
    pub(crate) pool: Pool,
}

impl Store {
    /// A pool for `database_url` of at most `connections`, opened when first used.
    ///
    /// # Errors
    ///
    /// [`Error::Failed`] if the address can't be read.
    pub fn connect_lazy(database_url: &str, connections: u32) -> Result<Self, Error> {
        let options = PgConnectOptions::from_str(database_url)?
            .application_name("callboard")
            // The server's own default is exact too, and a pooler might refuse a parameter that it does not know.
            .extra_float_digits(None);
        let connections = managed::Pool::builder(Opener::new(options))
            .max_size(connections as usize)
            // The one that was used last: the fewest are in use, and their caches are warm.
            .queue_mode(QueueMode::Lifo)
            .build()
            .map_err(|error| Error::Failed(sqlx::Error::Configuration(Box::new(error))))?;
        Ok(Self { pool: Pool { connections, statements: Statements::default() } })
    }

    /// The same, with statements sent so.
    #[must_use]
    pub fn sending(mut self, statements: Statements) -> Self {
        self.pool.statements = statements;
        self
    }

    /// Makes sure of a connection: one that does not answer a ping within a second is given up for a new one.
    ///
    /// For whoever may have been frozen since the last call, without a clock that went on.
    ///
    /// # Errors
    ///
    /// [`Error::Refused`] if the password is not right, [`Error::Unavailable`] if the database does not answer.
    pub async fn revive(&self) -> Result<(), Error> {
        let mut held = self.pool.hold().await?;
        if held.answers().await {
            return Ok(());
        }
        // Nothing is said to the other side, which might not hear it.
        drop(held.detach());
        self.pool.hold().await?;
        Ok(())
    }

    /// Opens connections from now on only to a server of the right name, whose certificate `ca` has signed: PEM, or a file of it.
    pub fn trust(&self, ca: &str) {
        let is_pem = ca.trim_start().starts_with("-----BEGIN");
        self.pool.connections.manager().change(|options| {
            let options = options.ssl_mode(PgSslMode::VerifyFull);
            match is_pem {
                true => options.ssl_root_cert_from_pem(ca.into()),
                false => options.ssl_root_cert(ca.trim()),
            }
        });
    }

    /// The host and the port that connections are opened to.
    #[must_use]
    pub fn address(&self) -> (String, u16) {
        let options = self.pool.connections.manager().options();
        (options.get_host().to_owned(), options.get_port())
    }

    /// Opens connections as `username` (if given) with `password` from now on. Those that are open stay.
    pub fn identify(&self, username: Option<&str>, password: &str) {
        let change = |options: PgConnectOptions| username.into_iter().fold(options, PgConnectOptions::username);
        self.pool.connections.manager().change(|options| change(options).password(password));
    }

    /// Begins a transaction.
    ///
    /// # Errors
    ///
    /// [`Error::Unavailable`] if the database can't be asked.
    pub async fn begin(&self) -> Result<Transaction, Error> {
        Transaction::begin(&self.pool).await
    }

    /// Whether the database answers and has every migration of this release.
    ///
    /// # Errors
    ///
    /// [`Error`] if it does not answer, or can't say.
    pub async fn is_ready(&self) -> Result<bool, Error> {
        crate::migrations::are_applied(&self.pool).await
    }

    /// Closes every connection: those that are idle now, the others when their calls have ended.
    pub async fn close(&self) {
        self.pool.connections.close();
        for connection in self.pool.connections.retain(|_, _| false).removed {
            // One that is gone already is closed too.
            connection.close().await.ok();
        }
    }
}
