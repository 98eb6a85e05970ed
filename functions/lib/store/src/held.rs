//! A connection taken from the pool, and how it is put back: at once and without a word if it is clean, else after it was
//! tidied beside the call.

use crate::connections::{Opener, answers};
use deadpool::managed::Object;
use futures::TryStreamExt as _;
use sqlx::postgres::{PgArguments, PgConnection, PgQueryResult, PgRow, PgStatement};
use sqlx::{Either, Error, Execute, Executor as _, Postgres, SqlStr};
use std::time::Duration;
use tokio::runtime::Handle;

/// How long a connection may take to end what it is at. Its server may be waiting for a lock.
const TIDY_MAX: Duration = Duration::from_secs(5);

/// How statements are sent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Statements {
    /// Prepared once a connection, under a name: one round trip each time after the first.
    #[default]
    Named,
    /// Prepared each time, without a name, in a transaction: nothing is left in a server's session, so that a pooler may give
    /// every transaction another. Four round trips instead of one.
    Unnamed,
}

impl Statements {
    /// Reads `named` or `unnamed`.
    #[must_use]
    pub fn parse(word: &str) -> Option<Self> {
        match word {
            "named" => Some(Self::Named),
            "unnamed" => Some(Self::Unnamed),
            _ => None,
        }
    }
}

/// What a statement came to, row by row.
pub(crate) type Answered = Vec<Either<PgQueryResult, PgRow>>;

/// A connection of ours until this is dropped.
#[derive(Debug)]
pub(crate) struct Held {
    /// `None` once it was given away.
    object: Option<Object<Opener>>,
    statements: Statements,
    /// A statement was begun and its end not seen, or it failed.
    is_busy: bool,
    in_transaction: bool,
}

impl Held {
    pub(crate) fn new(object: Object<Opener>, statements: Statements) -> Self {
        Self { object: Some(object), statements, is_busy: false, in_transaction: false }
    }

    /// # Errors
    ///
    /// As [`send`](Self::send).
    pub(crate) async fn begin(&mut self) -> Result<(), Error> {
        // Before it is sent: a call may be given up while it waits.
        self.in_transaction = true;
        self.command("begin").await
    }

    /// # Errors
    ///
    /// As [`send`](Self::send).
    pub(crate) async fn commit(&mut self) -> Result<(), Error> {
        self.command("commit").await?;
        self.in_transaction = false;
        Ok(())
    }

    async fn command(&mut self, command: &'static str) -> Result<(), Error> {
        self.is_busy = true;
        self.connection()?.execute(command).await?;
        self.is_busy = false;
        Ok(())
    }

    /// Sends a statement, and reads all that it comes to.
    ///
    /// # Errors
    ///
    /// If it failed, or the connection did.
    pub(crate) async fn send<'q, E: Execute<'q, Postgres> + 'q>(&mut self, query: E) -> Result<Answered, Error> {
        let is_alone = self.statements == Statements::Unnamed && !self.in_transaction;
        if is_alone {
            self.begin().await?;
        }
        self.is_busy = true;
        let sent = Sent { query, is_named: self.statements == Statements::Named };
        let answered = self.connection()?.fetch_many(sent).try_collect().await?;
        self.is_busy = false;
        if is_alone {
            self.commit().await?;
        }
        Ok(answered)
    }

    /// Whether it answers within a second.
    pub(crate) async fn answers(&mut self) -> bool {
        match self.connection() {
            Ok(connection) => answers(connection).await,
            Err(_) => false,
        }
    }

    /// Takes it out of the pool, which may open another.
    ///
    /// # Errors
    ///
    /// [`Error::PoolClosed`], never in fact.
    pub(crate) fn detach(mut self) -> Result<PgConnection, Error> {
        self.object.take().map(Object::take).ok_or(Error::PoolClosed)
    }

    fn connection(&mut self) -> Result<&mut PgConnection, Error> {
        self.object.as_deref_mut().ok_or(Error::PoolClosed)
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        let Some(object) = self.object.take() else { return };
        if !self.is_busy && !self.in_transaction {
            return;
        }
        match Handle::try_current() {
            Ok(runtime) => drop(runtime.spawn(tidy(object, self.in_transaction))),
            Err(_) => drop(Object::take(object)),
        }
    }
}

/// Brings a connection to where another call may use it; one that does not come there is closed, and the server rolls back.
async fn tidy(mut object: Object<Opener>, in_transaction: bool) {
    let connection: &mut PgConnection = &mut object;
    let done = async {
        // Each reads first what was left unread.
        match in_transaction {
            true => connection.execute("rollback").await.is_ok(),
            false => answers(connection).await,
        }
    };
    if !matches!(tokio::time::timeout(TIDY_MAX, done).await, Ok(true)) {
        drop(Object::take(object));
    }
}

/// A query, which keeps nothing in the server's session unless it `is_named`.
struct Sent<E> {
    query: E,
    is_named: bool,
}

impl<'q, E: Execute<'q, Postgres>> Execute<'q, Postgres> for Sent<E> {
    fn sql(self) -> SqlStr {
        self.query.sql()
    }

    fn statement(&self) -> Option<&PgStatement> {
        self.query.statement()
    }

    fn take_arguments(&mut self) -> Result<Option<PgArguments>, sqlx::error::BoxDynError> {
        self.query.take_arguments()
    }

    fn persistent(&self) -> bool {
        self.is_named && self.query.persistent()
    }
}
