//! Asks the board for builds, as long as a slot is free, and sees them through.

use crate::api::{Claimed, Failure};
use crate::backoff::{Backoff, jittered};
use crate::clock::Boot;
use crate::run::{self, Health, Shop};
use protocol::worker::{ClaimRequest, Job, WorkerInfo};
use std::sync::Arc;
use std::time::Duration;
use thiserror::Error;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tracing::{error, info, warn};
use uuid::Uuid;

/// The longest wait for work.
const WAIT_MAX: Duration = Duration::from_secs(15);
/// So many infrastructure failures in a row, and the worker claims no more.
const TROUBLES_MAX: u32 = 3;

/// What a worker is at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// It claims.
    Working,
    /// It claims no more; builds go on to their end.
    Draining,
    /// Builds are to stop.
    Stopping,
}

/// Why a worker gave up.
#[derive(Debug, Error)]
pub enum GaveUp {
    /// Its token is unknown or revoked.
    #[error("the board does not know this worker's token; make one with `callboard token create --worker`")]
    TokenRefused,
    /// Its host does not let it work.
    #[error(
        "{TROUBLES_MAX} builds in a row failed for reasons of this host; see the errors above and `callboard-worker doctor`"
    )]
    Unhealthy,
}

/// Claims and runs builds until `phase` says otherwise, and waits for the last.
///
/// # Errors
///
/// Why it gave up. No build is held then.
pub async fn poll(shop: Arc<Shop>, info: WorkerInfo, phase: watch::Receiver<Phase>) -> Result<(), GaveUp> {
    let free = (0..shop.config.slots).rev().collect();
    let wait = Backoff::new(Duration::from_secs(1), WAIT_MAX);
    let mut polling = Polling { shop, info, phase, free, builds: JoinSet::new(), troubles: 0, wait };
    let ended = polling.until_told().await;
    info!(builds.running = polling.builds.len(), "no more claims");
    while let Some(ended) = polling.builds.join_next().await {
        polling.freed(ended);
    }
    ended
}

struct Polling {
    shop: Arc<Shop>,
    info: WorkerInfo,
    phase: watch::Receiver<Phase>,
    free: Vec<u32>,
    builds: JoinSet<(u32, Health)>,
    troubles: u32,
    wait: Backoff,
}

impl Polling {
    async fn until_told(&mut self) -> Result<(), GaveUp> {
        while self.is_working() {
            while let Some(ended) = self.builds.try_join_next() {
                self.freed(ended);
            }
            if self.troubles >= TROUBLES_MAX {
                return Err(GaveUp::Unhealthy);
            }
            match self.free.pop() {
                None => self.pause(None).await,
                Some(slot) => self.fill(slot).await?,
            }
        }
        Ok(())
    }

    fn is_working(&self) -> bool {
        *self.phase.borrow() == Phase::Working
    }

    async fn fill(&mut self, slot: u32) -> Result<(), GaveUp> {
        if !self.has_room() {
            self.free.push(slot);
            self.pause(Some(WAIT_MAX)).await;
            return Ok(());
        }
        match self.claim().await? {
            Asked::Job(job, sent_at) => {
                self.wait.reset();
                let (shop, phase) = (Arc::clone(&self.shop), self.phase.clone());
                self.builds.spawn(async move { (slot, run::run(&shop, *job, sent_at, slot, phase).await) });
            }
            Asked::Wait(wait) => {
                self.free.push(slot);
                self.pause(Some(wait)).await;
            }
        }
        Ok(())
    }

    /// Asks with one `claim_id` until there is an answer: the board may have given us a build that we don't know of.
    async fn claim(&mut self) -> Result<Asked, GaveUp> {
        let request = ClaimRequest { claim_id: Uuid::new_v4(), worker: self.info.clone() };
        let mut backoff = Backoff::new(Duration::from_millis(500), WAIT_MAX);
        loop {
            let sent_at = Boot::now();
            match self.shop.api.claim(&request).await {
                Ok(Claimed::Job(job)) => return Ok(Asked::Job(job, sent_at)),
                Ok(Claimed::Nothing { after }) => {
                    let own = self.wait.next_wait(None).min(WAIT_MAX);
                    return Ok(Asked::Wait(after.map_or(own, jittered)));
                }
                Err(Failure::Again { after, why }) => {
                    warn!(why, "no answer to a claim");
                    if !self.is_working() {
                        return Ok(Asked::Wait(Duration::ZERO));
                    }
                    self.pause_claim(backoff.next_wait(after)).await;
                }
                Err(Failure::NotOurs { code: protocol::Code::Unauthorized }) => return Err(GaveUp::TokenRefused),
                // A build that ended before its claim was answered: ask anew.
                Err(Failure::NotOurs { code: protocol::Code::BuildEnded }) => return Ok(Asked::Wait(Duration::ZERO)),
                Err(failure) => {
                    error!(?failure, "the board refused a claim");
                    return Ok(Asked::Wait(WAIT_MAX));
                }
            }
        }
    }

    /// Waits for `wait`, but not longer than until a build ends or the phase changes.
    async fn pause(&mut self, wait: Option<Duration>) {
        let sleep = async {
            match wait {
                Some(wait) => tokio::time::sleep(wait).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            () = sleep => {}
            Some(ended) = self.builds.join_next() => self.freed(ended),
            Ok(()) = self.phase.changed() => {}
        }
    }

    async fn pause_claim(&mut self, wait: Duration) {
        tokio::select! {
            () = tokio::time::sleep(wait) => {}
            Ok(()) = self.phase.changed() => {}
        }
    }

    fn freed(&mut self, ended: Result<(u32, Health), tokio::task::JoinError>) {
        let health = match ended {
            Ok((slot, health)) => {
                self.free.push(slot);
                health
            }
            // Nobody knows what is left in its slot: only a new start can tell.
            Err(error) => {
                error!(%error, "a build's task broke");
                self.troubles = TROUBLES_MAX;
                Health::Trouble
            }
        };
        self.troubles = if health == Health::Fine { 0 } else { self.troubles + 1 };
    }

    fn has_room(&self) -> bool {
        let (root, least) = (&self.shop.config.place.builds_root, self.shop.config.free_bytes_min);
        match nix::sys::statvfs::statvfs(root) {
            Ok(disk) if disk.blocks_available() * disk.fragment_size() >= least => true,
            Ok(_) => {
                warn!(root = %root.display(), "too little free space, nothing is claimed");
                false
            }
            Err(error) => {
                warn!(root = %root.display(), %error, "the builds root can't be read, nothing is claimed");
                false
            }
        }
    }
}

enum Asked {
    Job(Box<Job>, Boot),
    Wait(Duration),
}
