//! Where queries are sent to: the pool, each by itself, or a transaction.

use crate::Error;
use crate::connections::Opener;
use crate::held::{Answered, Held, Statements};
use deadpool::managed::{self, PoolError};
use futures::future::BoxFuture;
use futures::stream::{self, BoxStream};
use futures::{FutureExt as _, StreamExt as _, TryFutureExt as _, TryStreamExt as _};
use sqlx::postgres::{PgConnection, PgQueryResult, PgRow, PgStatement, PgTypeInfo};
use sqlx::{Describe, Either, Execute, Executor, Postgres, SqlStr};
use std::time::Duration;

/// How long a call waits for a connection.
const WAIT_MAX: Duration = Duration::from_secs(5);

/// Connections; cheap to clone.
#[derive(Clone, Debug)]
pub(crate) struct Pool {
    pub(crate) connections: managed::Pool<Opener>,
    pub(crate) statements: Statements,
}

impl Pool {
    /// A connection, opened if there is none.
    ///
    /// # Errors
    ///
    /// Why none could be opened, or that none was free for 5 s.
    pub(crate) async fn hold(&self) -> Result<Held, sqlx::Error> {
        let got = tokio::time::timeout(WAIT_MAX, self.connections.get()).await;
        match got.map_err(|_| sqlx::Error::PoolTimedOut)? {
            Ok(object) => Ok(Held::new(object, self.statements)),
            Err(PoolError::Backend(error)) => Err(error),
            Err(PoolError::Closed) => Err(sqlx::Error::PoolClosed),
            Err(_) => Err(sqlx::Error::PoolTimedOut),
        }
    }

    /// A connection that does not come back to the pool.
    ///
    /// # Errors
    ///
    /// As [`hold`](Self::hold).
    pub(crate) async fn detached(&self) -> Result<PgConnection, sqlx::Error> {
        self.hold().await?.detach()
    }

    async fn send<'q, E: Execute<'q, Postgres> + 'q>(&self, query: E) -> Result<Answered, sqlx::Error> {
        self.hold().await?.send(query).await
    }
}

/// Statements that happen together or not at all. Dropped without a commit, nothing of it has happened.
#[derive(Debug)]
pub struct Transaction {
    held: Held,
}

impl Transaction {
    pub(crate) async fn begin(pool: &Pool) -> Result<Self, Error> {
        let mut held = pool.hold().await?;
        held.begin().await?;
        Ok(Self { held })
    }

    /// Makes it happen.
    ///
    /// # Errors
    ///
    /// [`Error::Unavailable`] if the answer did not come: it may have happened. [`Error::Conflict`] as its statements.
    pub async fn commit(mut self) -> Result<(), Error> {
        Ok(self.held.commit().await?)
    }
}

/// What is read is read whole: no query of this project has more rows than it keeps, and a connection is free the sooner.
fn rows<'e>(
    answered: impl Future<Output = Result<Answered, sqlx::Error>> + Send + 'e,
) -> BoxStream<'e, Result<Either<PgQueryResult, PgRow>, sqlx::Error>> {
    stream::once(answered).map_ok(|all| stream::iter(all.into_iter().map(Ok))).try_flatten().boxed()
}

fn first<'e>(
    answered: impl Future<Output = Result<Answered, sqlx::Error>> + Send + 'e,
) -> BoxFuture<'e, Result<Option<PgRow>, sqlx::Error>> {
    answered.map_ok(|all| all.into_iter().find_map(Either::right)).boxed()
}

/// Nothing here prepares a statement without sending it.
fn never<'e, T: Send + 'e>() -> BoxFuture<'e, Result<T, sqlx::Error>> {
    futures::future::ready(Err(sqlx::Error::Protocol("statements are sent, not prepared".into()))).boxed()
}

impl<'p> Executor<'p> for &'p Pool {
    type Database = Postgres;

    fn fetch_many<'e, 'q: 'e, E>(self, query: E) -> BoxStream<'e, Result<Either<PgQueryResult, PgRow>, sqlx::Error>>
    where
        'p: 'e,
        E: 'q + Execute<'q, Postgres>,
    {
        rows(self.send(query))
    }

    fn fetch_optional<'e, 'q: 'e, E>(self, query: E) -> BoxFuture<'e, Result<Option<PgRow>, sqlx::Error>>
    where
        'p: 'e,
        E: 'q + Execute<'q, Postgres>,
    {
        first(self.send(query))
    }

    fn prepare_with<'e>(self, _: SqlStr, _: &'e [PgTypeInfo]) -> BoxFuture<'e, Result<PgStatement, sqlx::Error>>
    where
        'p: 'e,
    {
        never()
    }

    fn describe<'e>(self, _: SqlStr) -> BoxFuture<'e, Result<Describe<Postgres>, sqlx::Error>>
    where
        'p: 'e,
    {
        never()
    }
}

impl<'t> Executor<'t> for &'t mut Transaction {
    type Database = Postgres;

    fn fetch_many<'e, 'q: 'e, E>(self, query: E) -> BoxStream<'e, Result<Either<PgQueryResult, PgRow>, sqlx::Error>>
    where
        't: 'e,
        E: 'q + Execute<'q, Postgres>,
    {
        rows(self.held.send(query))
    }

    fn fetch_optional<'e, 'q: 'e, E>(self, query: E) -> BoxFuture<'e, Result<Option<PgRow>, sqlx::Error>>
    where
        't: 'e,
        E: 'q + Execute<'q, Postgres>,
    {
        first(self.held.send(query))
    }

    fn prepare_with<'e>(self, _: SqlStr, _: &'e [PgTypeInfo]) -> BoxFuture<'e, Result<PgStatement, sqlx::Error>>
    where
        't: 'e,
    {
        never()
    }

    fn describe<'e>(self, _: SqlStr) -> BoxFuture<'e, Result<Describe<Postgres>, sqlx::Error>>
    where
        't: 'e,
    {
        never()
    }
}
