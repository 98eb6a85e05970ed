//! A board to measure: a database with what was seeded, and a server over it.

use crate::http::Connection;
use crate::postgres::Postgres;
use crate::seed;
use crate::server::{Combine, Server};

/// A board that is served.
pub struct Board<'a> {
    postgres: &'a Postgres,
    database: String,
    /// Its server.
    pub server: Server,
}

impl<'a> Board<'a> {
    /// Serves a database. One server at a time has it.
    pub async fn serve(postgres: &'a Postgres, database: &str, combine: Combine) -> anyhow::Result<Self> {
        let server = Server::start(&postgres.dir().join(database), &postgres.url(database), combine).await?;
        Ok(Self { postgres, database: database.to_owned(), server })
    }

    /// Serves a copy of a database that is gone when [`Board::end`] is.
    pub async fn copy(
        postgres: &'a Postgres,
        template: &str,
        database: &str,
        combine: Combine,
    ) -> anyhow::Result<Self> {
        postgres.remove(database).await?;
        postgres.create(database, Some(template)).await?;
        postgres.settle(database).await?;
        Self::serve(postgres, database, combine).await
    }

    /// A worker's connection.
    pub async fn worker(&self) -> anyhow::Result<Connection> {
        Connection::open(self.server.address, &self.server.worker).await
    }

    /// An operator's connection.
    pub async fn operator(&self) -> anyhow::Result<Connection> {
        Connection::open(self.server.address, &self.server.operator).await
    }

    /// Stops the server; the database stays, to be checked when all is done.
    pub async fn stop(self) -> anyhow::Result<()> {
        self.server.stop().await?;
        self.postgres.settle(&self.database).await
    }

    /// Stops the server, checks what it left, and removes it.
    pub async fn end(self) -> anyhow::Result<()> {
        self.server.stop().await?;
        seed::check(self.postgres, &self.database).await?;
        self.postgres.remove(&self.database).await
    }
}
