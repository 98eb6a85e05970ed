//! What can go wrong with the database, as far as a caller must tell it apart.

/// A failure of the database.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// It could not be asked: no connection, a timeout, a shutdown. Trying again may help.
    #[error("the database did not answer: {0}")]
    Unavailable(#[source] sqlx::Error),
    /// It does not let us in: another password, or none such user. Nothing has been asked.
    #[error("the database lets nobody in with this name and password: {0}")]
    Refused(#[source] sqlx::Error),
    /// A migration gave up waiting for what others hold, and nothing of it was applied. Applying it again may help.
    #[error("{0}")]
    Locked(String),
    /// A unique index refused the write: somebody else wrote the same first.
    #[error("taken: {0}")]
    Conflict(String),
    /// A statement failed: our fault.
    #[error("a statement failed: {0}")]
    Failed(#[source] sqlx::Error),
    /// A stored value is not one that this release knows.
    #[error("stored value can't be read: {0}")]
    Unreadable(String),
}

/// Classes of SQLSTATE in which nothing is wrong with the statement: connection, transaction rollback (deadlock,
/// serialization), insufficient resources, operator intervention.
const PASSING: [&str; 4] = ["08", "40", "53", "57"];

impl From<sqlx::Error> for Error {
    fn from(error: sqlx::Error) -> Self {
        let unreachable = matches!(
            error,
            sqlx::Error::Io(_)
                | sqlx::Error::Tls(_)
                | sqlx::Error::Protocol(_)
                | sqlx::Error::PoolTimedOut
                | sqlx::Error::PoolClosed
                | sqlx::Error::WorkerCrashed
        );
        if unreachable {
            return Self::Unavailable(error);
        }
        let code = error.as_database_error().and_then(|db| db.code()).map(|code| code.into_owned());
        match code.as_deref() {
            Some("23505") => Self::Conflict(error.to_string()),
            // Said of a new connection only, before it takes a statement.
            Some("28P01" | "28000") => Self::Refused(error),
            // A lock that others hold for longer than a call waits.
            Some("55P03") => Self::Unavailable(error),
            Some(code) if PASSING.contains(&&code[..2]) => Self::Unavailable(error),
            Some(_) | None => Self::Failed(error),
        }
    }
}
