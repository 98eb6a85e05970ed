//! How connections are opened, looked after, and given up.

use deadpool::managed::{self, Metrics, RecycleError, RecycleResult};
use sqlx::postgres::{PgConnectOptions, PgConnection};
use sqlx::{Connection as _, Error};
use std::io::ErrorKind;
use std::sync::{PoisonError, RwLock};
use std::time::Duration;

/// A connection that was idle for longer may have been closed by the other side: a restart, a proxy.
const PING_AFTER: Duration = Duration::from_secs(2);
/// How long a ping may take. A connection whose other side is gone without a word would keep a call until it is given up.
const PING_MAX: Duration = Duration::from_secs(1);
/// A connection is not used for longer, so that a name that leads elsewhere by then is followed.
const AGE_MAX: Duration = Duration::from_secs(30 * 60);
/// Between two tries to connect to a server that is starting.
const TRY_AGAIN: Duration = Duration::from_millis(100);

/// Opens connections for the pool.
#[derive(Debug)]
pub(crate) struct Opener {
    options: RwLock<PgConnectOptions>,
}

impl Opener {
    pub(crate) fn new(options: PgConnectOptions) -> Self {
        Self { options: RwLock::new(options) }
    }

    /// How connections are opened now.
    pub(crate) fn options(&self) -> PgConnectOptions {
        self.options.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Opens connections otherwise from now on. Those that are open stay.
    pub(crate) fn change(&self, change: impl FnOnce(PgConnectOptions) -> PgConnectOptions) {
        let mut options = self.options.write().unwrap_or_else(PoisonError::into_inner);
        *options = change(options.clone());
    }
}

impl managed::Manager for Opener {
    type Type = PgConnection;
    type Error = Error;

    /// Opens one; one that is refused since the server starts or stops is tried again for as long as the caller waits.
    async fn create(&self) -> Result<PgConnection, Error> {
        loop {
            match PgConnection::connect_with(&self.options()).await {
                Err(error) if passes(&error) => tokio::time::sleep(TRY_AGAIN).await,
                opened => return opened,
            }
        }
    }

    /// Pings one that was idle for a while: each time would be a round trip a call. One that died in between costs the call that
    /// meets it a 503, and is not used again.
    async fn recycle(&self, connection: &mut PgConnection, metrics: &Metrics) -> RecycleResult<Error> {
        if metrics.age() > AGE_MAX {
            return Err(RecycleError::message("of age"));
        }
        if metrics.last_used() > PING_AFTER && !answers(connection).await {
            return Err(RecycleError::message("no answer"));
        }
        Ok(())
    }
}

/// Whether it answers a ping within a second.
pub(crate) async fn answers(connection: &mut PgConnection) -> bool {
    matches!(tokio::time::timeout(PING_MAX, connection.ping()).await, Ok(Ok(())))
}

fn passes(error: &Error) -> bool {
    if let Error::Io(error) = error {
        return error.kind() == ErrorKind::ConnectionRefused;
    }
    error.as_database_error().is_some_and(|error| error.is_transient_in_connect_phase())
}
