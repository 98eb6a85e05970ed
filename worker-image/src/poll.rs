//! Asks the board for builds, as long as a slot is free, and sees them through.

use crate::api::{Claimed, Failure};
use crate::backoff::{Backoff, jittered};
use crate::clock::Boot;
use crate::metrics::Answer;
use crate::protection::Protection;
use crate::protection::rule::Because;
use crate::run::{self, Health, Shop};
use crate::trace::span;
use protocol::worker::{ClaimRequest, Job, WorkerInfo};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;
use thiserror::Error;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tracing::{Instrument as _, error, info, warn};
use uuid::Uuid;

/// The longest wait for work.
const WAIT_MAX: Duration = Duration::from_secs(15);
/// How long a worker that is told to stop still waits for a claim's answer.
const CLAIM_LAST_WAIT: Duration = Duration::from_secs(2);
/// So many infrastructure failures in a row, and the worker claims no more.
const TROUBLES_MAX: usize = 3;

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
    #[error("the board does not know this worker's token; make one with `callboard token create --kind worker`")]
    TokenRefused,
    /// Its host does not let it work.
    #[error("builds in a row failed for reasons of this host: {}; see `callboard-worker doctor`", .0.join("; then "))]
    Unhealthy(Vec<String>),
}

/// Waits until builds are to stop; for ever, if nobody can tell any more.
pub async fn told_to_stop(phase: &watch::Receiver<Phase>) {
    if phase.clone().wait_for(|phase| *phase == Phase::Stopping).await.is_err() {
        std::future::pending::<()>().await;
    }
}

/// Claims and runs builds until `phase` says otherwise, and waits for the last.
///
/// # Errors
///
/// Why it gave up. No build is held then.
pub async fn poll(shop: Arc<Shop>, info: WorkerInfo, phase: watch::Receiver<Phase>) -> Result<(), GaveUp> {
    let free = (0..shop.config.slots).rev().collect();
    let wait = Backoff::new(Duration::from_secs(1), WAIT_MAX);
    let (builds, troubles, protection) = (JoinSet::new(), Vec::new(), Protection::begin(&shop.config.protection).await);
    let mut polling = Polling { shop, info, phase, free, builds, troubles, wait, protection };
    let ended = polling.until_told().await;
    polling.shop.metrics.turns_no_more();
    info!(builds.running = polling.builds.len(), "no more claims");
    while let Some(ended) = polling.builds.join_next().await {
        polling.freed(ended);
    }
    polling.protection.release().await;
    // A worker that drains claims no more, which would have told.
    match ended {
        Ok(()) if polling.shop.token_refused.load(Relaxed) => Err(GaveUp::TokenRefused),
        ended => ended,
    }
}

struct Polling {
    shop: Arc<Shop>,
    info: WorkerInfo,
    phase: watch::Receiver<Phase>,
    free: Vec<u32>,
    builds: JoinSet<(u32, Health)>,
    /// Why builds failed, since one last did not for the host's reasons.
    troubles: Vec<String>,
    wait: Backoff,
    protection: Protection,
}

impl Polling {
    async fn until_told(&mut self) -> Result<(), GaveUp> {
        while self.is_working() {
            self.shop.metrics.turned();
            while let Some(ended) = self.builds.try_join_next() {
                self.freed(ended);
            }
            if self.troubles.len() >= TROUBLES_MAX {
                return Err(GaveUp::Unhealthy(std::mem::take(&mut self.troubles)));
            }
            if let Some(why) = self.protection.wants_aside(self.builds.len()) {
                self.step_aside(why).await;
                continue;
            }
            match self.free.pop() {
                None => self.pause(WAIT_MAX).await,
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
            self.pause(WAIT_MAX).await;
            return Ok(());
        }
        match self.claim().await? {
            Asked::Job(job, sent_at) => {
                self.wait.reset();
                self.shop.token_refused.store(false, Relaxed);
                self.protection.claimed(Duration::from_millis(job.deadline_in_ms));
                let (shop, phase, span) = (Arc::clone(&self.shop), self.phase.clone(), span(job.traceparent));
                let run = async move { (slot, run::run(&shop, *job, sent_at, slot, phase).await) };
                self.builds.spawn(run.instrument(span));
            }
            Asked::Wait(wait) => {
                self.free.push(slot);
                self.pause(wait).await;
            }
        }
        Ok(())
    }

    /// Asks with one `claim_id` until there is an answer: the board may have given us a build that we don't know of.
    async fn claim(&mut self) -> Result<Asked, GaveUp> {
        let request = ClaimRequest { claim_id: Uuid::new_v4(), worker: self.info.clone() };
        let mut backoff = Backoff::new(Duration::from_millis(500), WAIT_MAX);
        loop {
            self.shop.metrics.turned();
            let sent_at = Boot::now();
            let answer = tokio::select! {
                answer = self.shop.api.claim(&request) => answer,
                () = too_late(&self.phase) => return Ok(Asked::Wait(Duration::ZERO)),
            };
            self.shop.metrics.claimed(kind(&answer), Boot::now().since(sent_at));
            match answer {
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

    /// Claims nothing until the builds have ended and ECS had the time to end this task; goes on if it did not.
    async fn step_aside(&mut self, why: Because) {
        info!(?why, builds.running = self.builds.len(), "stepping aside: no claims for a while");
        while self.is_working() && !self.builds.is_empty() {
            self.shop.metrics.turned();
            self.pause(WAIT_MAX).await;
        }
        if !self.is_working() {
            return;
        }
        let until = Boot::now().plus(self.protection.release().await);
        while self.is_working() && !until.has_come() {
            self.shop.metrics.turned();
            self.pause(until.since(Boot::now()).min(WAIT_MAX)).await;
        }
        if self.is_working() {
            self.protection.take().await;
        }
    }

    /// Waits for `wait`, but not longer than until a build ends or the phase changes.
    async fn pause(&mut self, wait: Duration) {
        tokio::select! {
            () = tokio::time::sleep(wait) => {}
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
                self.troubles = vec![format!("a build's task broke: {error}"); TROUBLES_MAX];
                return;
            }
        };
        match health {
            Health::Fine => self.troubles.clear(),
            Health::Unreported => {}
            Health::Trouble(why) => self.troubles.push(why),
        }
        self.shop.metrics.troubles(u32::try_from(self.troubles.len()).unwrap_or(u32::MAX));
    }

    fn has_room(&self) -> bool {
        let (root, least) = (&self.shop.config.place.builds_root, self.shop.config.free_bytes_min);
        match free_bytes(root) {
            Ok(free) if free >= least => true,
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

/// How much room the file system of `root` has for us.
///
/// # Errors
///
/// If it can't be asked.
pub fn free_bytes(root: &Path) -> nix::Result<u64> {
    nix::sys::statvfs::statvfs(root).map(|disk| disk.blocks_available() * disk.fragment_size())
}

fn kind(answer: &Result<Claimed, Failure>) -> Answer {
    match answer {
        Ok(Claimed::Job(_)) => Answer::Build,
        Ok(Claimed::Nothing { .. }) => Answer::Nothing,
        Err(Failure::Again { .. }) => Answer::Failed,
        Err(Failure::NotOurs { .. } | Failure::Resync { .. } | Failure::Refused { .. }) => Answer::Refused,
    }
}

/// A claim is waited for, since its answer may be a build; but not for ever by a worker that is told to stop.
async fn too_late(phase: &watch::Receiver<Phase>) {
    told_to_stop(phase).await;
    tokio::time::sleep(CLAIM_LAST_WAIT).await;
}

enum Asked {
    Job(Box<Job>, Boot),
    Wait(Duration),
}
