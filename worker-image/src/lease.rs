//! What is known of the lease on one build: until when it may run, and which task must hear of it.
//!
//! Shared by the thread that renews it, the task that runs the build and, by way of the task's control, the guard.

use crate::clock::{Boot, millis};
use crate::config::Grace;
use crate::isolation::Control;
use protocol::worker::{Heartbeat, Job, Renewed};
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::Notify;

/// The lease on one build.
#[derive(Debug)]
pub struct Lease {
    /// When the claim that was answered had been sent.
    pub sent_at: Boot,
    lease_grace: Duration,
    grace: Grace,
    now: Mutex<State>,
    entered: Notify,
    misses: AtomicU32,
}

#[derive(Debug)]
struct State {
    fence_at: Boot,
    deadline_at: Boot,
    renewed_at: Option<Boot>,
    phase: String,
    last_output_at: Option<Boot>,
    task: Option<Arc<dyn Control>>,
}

impl Lease {
    /// The lease that a claim, sent at `sent_at`, was answered with.
    #[must_use]
    pub fn new(job: &Job, sent_at: Boot, grace: Grace) -> Self {
        let lease_grace = Duration::from_millis(job.lease_grace_ms);
        let now = State {
            fence_at: fence(sent_at, job.lease_ttl_ms, lease_grace, grace),
            deadline_at: sent_at.plus(Duration::from_millis(job.deadline_in_ms)),
            renewed_at: None,
            phase: "clone".into(),
            last_output_at: None,
            task: None,
        };
        Self { sent_at, lease_grace, grace, now: Mutex::new(now), entered: Notify::new(), misses: AtomicU32::new(0) }
    }

    /// Takes note of a renewal that was asked for at `sent_at`, and tells the running task's guard.
    pub fn renewed(&self, sent_at: Boot, answer: &Renewed) {
        let mut now = self.state();
        now.fence_at = now.fence_at.max(fence(sent_at, answer.lease_ttl_ms, self.lease_grace, self.grace));
        now.deadline_at = sent_at.plus(Duration::from_millis(answer.deadline_in_ms));
        now.renewed_at = Some(sent_at);
        self.misses.store(0, Relaxed);
        let (fence_at, task) = (now.fence_at, now.task.clone());
        drop(now);
        if let Some(task) = task {
            task.renew(fence_at);
        }
    }

    /// Takes note of a heartbeat that was not acknowledged.
    pub fn missed(&self) {
        self.misses.fetch_add(1, Relaxed);
    }

    /// How many heartbeats in a row were not acknowledged.
    #[must_use]
    pub fn misses(&self) -> u32 {
        self.misses.load(Relaxed)
    }

    /// When all steps must begin to end unless the lease is renewed before.
    #[must_use]
    pub fn fence_at(&self) -> Boot {
        self.state().fence_at
    }

    /// When the last renewal that was acknowledged had been sent.
    #[must_use]
    pub fn renewed_at(&self) -> Option<Boot> {
        self.state().renewed_at
    }

    /// When the build must have ended.
    #[must_use]
    pub fn deadline_at(&self) -> Boot {
        self.state().deadline_at
    }

    /// Notes that `task` runs, for renewals to reach its guard.
    pub fn hold(&self, task: Arc<dyn Control>) {
        let mut now = self.state();
        now.task = Some(Arc::clone(&task));
        let fence_at = now.fence_at;
        drop(now);
        task.renew(fence_at);
    }

    /// Notes that no task runs.
    pub fn release(&self) {
        self.state().task = None;
    }

    /// Notes what the build is at: `clone`, or a step's name.
    pub fn enter(&self, phase: &str) {
        let mut now = self.state();
        phase.clone_into(&mut now.phase);
        now.last_output_at = None;
        drop(now);
        self.entered.notify_one();
    }

    /// Waits until the build is at something that [`Lease::heartbeat`] has not told since this was waited for last.
    pub async fn entered(&self) {
        self.entered.notified().await;
    }

    /// What the build is at.
    #[must_use]
    pub fn phase(&self) -> String {
        self.state().phase.clone()
    }

    /// Notes that the running step wrote something.
    pub fn output_seen(&self) {
        self.state().last_output_at = Some(Boot::now());
    }

    /// When the running step last wrote something, if it did.
    #[must_use]
    pub fn last_output_at(&self) -> Option<Boot> {
        self.state().last_output_at
    }

    /// What a heartbeat says now.
    #[must_use]
    pub fn heartbeat(&self) -> Heartbeat {
        let now = self.state();
        let age = now.last_output_at.map(|at| millis(Boot::now().since(at)));
        Heartbeat { phase: Some(now.phase.clone()), last_output_age_ms: age }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.now.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn fence(sent_at: Boot, lease_ttl_ms: u64, lease_grace: Duration, grace: Grace) -> Boot {
    let lease = Duration::from_millis(lease_ttl_ms);
    sent_at.plus(rules::lease::fence_after(lease, lease_grace, grace.kill, grace.fence_margin))
}
