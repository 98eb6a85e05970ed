//! Sends the journal to the board, in order, one request at a time, until it is finished and empty.

use super::alive::Alive;
use super::journal::Journal;
use crate::api::{Api, Failure};
use crate::backoff::Backoff;
use crate::clock::Boot;
use crate::metrics::Metrics;
use crate::stop::{Stop, Why};
use protocol::log::Chunk;
use std::sync::Arc;
use std::time::Duration;
use tracing::warn;
use uuid::Uuid;

/// How sending ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shipped {
    /// The board has all.
    All,
    /// The board will never have all.
    Lost,
    /// The build is not ours any more.
    NotOurs,
}

/// Sends what waits, at most once an interval but what comes after a pause at once, and all the rest once the journal is finished. With
/// `alive` also a batch that is empty, where none other shows in time that somebody is there.
pub async fn ship(
    api: Arc<Api>,
    build: Uuid,
    token: String,
    journal: Arc<Journal>,
    stop: Stop,
    metrics: Arc<Metrics>,
    alive: Option<Arc<Alive>>,
) -> Shipped {
    let mut shipping = Shipping { api, build, token, journal, stop, metrics, alive, refused: false };
    let interval = Duration::from_millis(shipping.journal.limits().interval_ms.max(10));
    loop {
        let owed = tokio::select! {
            () = shipping.journal.arrived() => false,
            () = shipping.journal.finished() => false,
            () = shipping.due() => true,
        };
        let finished = shipping.journal.is_finished();
        if let Err(end) = shipping.all_that_waits(owed).await {
            return end;
        }
        if finished {
            return Shipped::All;
        }
        tokio::select! {
            () = tokio::time::sleep(interval) => {}
            () = shipping.journal.finished() => {}
        }
    }
}

struct Shipping {
    api: Arc<Api>,
    build: Uuid,
    token: String,
    journal: Arc<Journal>,
    stop: Stop,
    metrics: Arc<Metrics>,
    /// Whom it keeps alive, if anybody.
    alive: Option<Arc<Alive>>,
    /// The board refused the first waiting chunk, which is a marker by now.
    refused: bool,
}

impl Shipping {
    async fn due(&self) {
        match &self.alive {
            Some(alive) => alive.due().await,
            None => std::future::pending().await,
        }
    }

    /// With `owed` an empty batch too, if nothing waits.
    async fn all_that_waits(&mut self, mut owed: bool) -> Result<(), Shipped> {
        let mut backoff = Backoff::new(Duration::from_millis(250), Duration::from_secs(5));
        let mut alone = false;
        loop {
            let mut chunks = self.journal.batch().map_err(|error| self.unreadable(&error))?;
            if chunks.is_empty() && !owed {
                return Ok(());
            }
            if alone {
                chunks.truncate(1);
            }
            let bytes: usize = chunks.iter().map(Chunk::encoded_bytes).sum();
            let sent_at = Boot::now();
            match self.api.logs(self.build, &self.token, chunks).await {
                Ok(stored) => {
                    (alone, owed, self.refused) = (false, false, false);
                    backoff.reset();
                    // Before anybody hears that it was acknowledged.
                    stored.cancel.into_iter().for_each(|reason| self.stop.ask(Why::Cancel(reason)));
                    self.alive.iter().for_each(|alive| alive.acknowledged(sent_at));
                    self.metrics.shipped(u64::try_from(bytes).unwrap_or(0));
                    self.journal.acknowledged(stored.next_seq, stored.capped);
                }
                Err(Failure::Again { after, .. }) => tokio::time::sleep(backoff.next_wait(after)).await,
                Err(Failure::Resync { expected_seq }) => self.resync(expected_seq, &mut backoff).await,
                Err(Failure::NotOurs { .. }) => return Err(self.not_ours()),
                Err(Failure::Refused { .. }) if !alone => alone = true,
                Err(Failure::Refused { detail, .. }) => self.replace_first(&detail)?,
            }
        }
    }

    /// A board that asks for the same again and again must not be asked without a pause.
    async fn resync(&mut self, expected_seq: u64, backoff: &mut Backoff) {
        warn!(build.id = %self.build, log.expected_seq = expected_seq, "log goes on from where the board says");
        self.journal.resync(expected_seq);
        tokio::time::sleep(backoff.next_wait(None)).await;
    }

    fn replace_first(&mut self, detail: &str) -> Result<(), Shipped> {
        warn!(build.id = %self.build, detail, "the board refused a log chunk");
        if std::mem::replace(&mut self.refused, true) {
            return Err(Shipped::Lost);
        }
        self.journal.replace_first().map_err(|error| self.unreadable(&error))
    }

    fn not_ours(&self) -> Shipped {
        self.stop.ask(Why::Lost);
        Shipped::NotOurs
    }

    fn unreadable(&self, error: &std::io::Error) -> Shipped {
        warn!(build.id = %self.build, %error, "the log's spool failed");
        Shipped::Lost
    }
}
