//! What keeps a runner: it has no heartbeats of its own, but each batch that the board acknowledges says that its build still runs.

use crate::clock::{Boot, millis, sleep_until};
use crate::lease::Lease;
use protocol::worker::Renewed;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{Notify, watch};

/// Renews a lease by the batches of a log.
#[derive(Debug)]
pub struct Alive {
    lease: Arc<Lease>,
    lease_ttl_ms: u64,
    every: Duration,
    /// When the last batch that was acknowledged had been sent.
    acknowledged: watch::Sender<Boot>,
    asked: Notify,
}

impl Alive {
    /// Renews `lease`, which was good at `since` and is for `lease_ttl_ms` each time, at least `every` so often.
    #[must_use]
    pub fn new(lease: Arc<Lease>, since: Boot, lease_ttl_ms: u64, every: Duration) -> Self {
        let every = every.max(Duration::from_millis(10));
        Self { lease, lease_ttl_ms, every, acknowledged: watch::Sender::new(since), asked: Notify::new() }
    }

    /// Has a batch sent now, and waits until one that was sent from now on is acknowledged: what the board has to say is heard then.
    ///
    /// # Panics
    ///
    /// Never: the sender lives as long as `self`.
    pub async fn ask(&self) {
        let (since, mut acknowledged) = (Boot::now(), self.acknowledged.subscribe());
        self.asked.notify_one();
        acknowledged.wait_for(|at| *at >= since).await.expect("the sender lives as long as self");
    }

    /// Waits until the next batch must be sent, or was asked for.
    pub(super) async fn due(&self) {
        tokio::select! {
            () = sleep_until(|| self.acknowledged.borrow().plus(self.every)) => {}
            () = self.asked.notified() => {}
        }
    }

    /// The board has taken a batch that was sent then.
    pub(super) fn acknowledged(&self, sent_at: Boot) {
        let deadline_in_ms = millis(self.lease.deadline_at().since(sent_at));
        self.lease.renewed(sent_at, &Renewed { lease_ttl_ms: self.lease_ttl_ms, deadline_in_ms, cancel: None });
        self.acknowledged.send_replace(sent_at);
    }
}
