//! What is known of the lease on one build: until when it may run, and who must hear of it.
//!
//! Shared by the thread that renews it, the task that runs the build and, by way of their controls, the guards.

use crate::clock::{Boot, millis};
use crate::config::Grace;
use crate::isolation::Control;
use protocol::worker::{Heartbeat, Job, Renewed};
use std::collections::BTreeMap;
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
    held: BTreeMap<u64, Held>,
    /// The number of what is held next.
    next: u64,
}

/// What must hear of renewals.
#[derive(Clone, Debug)]
struct Held {
    control: Arc<dyn Control>,
    /// How much longer than to the fence it may go on.
    after: Duration,
}

impl Held {
    fn renew(&self, fence_at: Boot) {
        self.control.renew(fence_at.plus(self.after));
    }
}

/// Something hears of renewals until this is dropped.
#[derive(Debug)]
#[must_use]
pub struct Hold {
    lease: Arc<Lease>,
    number: u64,
}

impl Drop for Hold {
    fn drop(&mut self) {
        self.lease.state().held.remove(&self.number);
    }
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
            held: BTreeMap::new(),
            next: 0,
        };
        Self { sent_at, lease_grace, grace, now: Mutex::new(now), entered: Notify::new(), misses: AtomicU32::new(0) }
    }

    /// Takes note of a renewal that was asked for at `sent_at`, and tells all guards.
    pub fn renewed(&self, sent_at: Boot, answer: &Renewed) {
        let mut now = self.state();
        now.fence_at = now.fence_at.max(fence(sent_at, answer.lease_ttl_ms, self.lease_grace, self.grace));
        now.deadline_at = sent_at.plus(Duration::from_millis(answer.deadline_in_ms));
        now.renewed_at = Some(sent_at);
        self.misses.store(0, Relaxed);
        let (fence_at, held) = (now.fence_at, now.held.clone());
        drop(now);
        held.values().for_each(|held| held.renew(fence_at));
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

    /// When the last step has ended unless the lease is renewed before.
    #[must_use]
    pub fn over_at(&self) -> Boot {
        self.fence_at().plus(self.grace.kill)
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

    /// Notes that `task` runs, for renewals to reach its guard: it may go on until [`Lease::fence_at`].
    pub fn hold(self: &Arc<Self>, task: Arc<dyn Control>) -> Hold {
        self.hold_until(Held { control: task, after: Duration::ZERO })
    }

    /// The same of what a task needs to its end: it may go on until [`Lease::over_at`].
    pub fn hold_beside(self: &Arc<Self>, task: Arc<dyn Control>) -> Hold {
        self.hold_until(Held { control: task, after: self.grace.kill })
    }

    fn hold_until(self: &Arc<Self>, held: Held) -> Hold {
        let mut now = self.state();
        let (number, fence_at) = (now.next, now.fence_at);
        now.next += 1;
        now.held.insert(number, held.clone());
        drop(now);
        held.renew(fence_at);
        Hold { lease: Arc::clone(self), number }
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

#[cfg(test)]
mod tests {
    use super::*;

    /// Until when it may go on, as it heard last.
    #[derive(Debug, Default)]
    struct Heard(Mutex<Option<Boot>>);

    impl Heard {
        fn last(&self) -> Option<Boot> {
            self.0.lock().unwrap().take()
        }
    }

    impl Control for Heard {
        fn renew(&self, fence_at: Boot) {
            *self.0.lock().unwrap() = Some(fence_at);
        }

        fn terminate(&self) {}

        fn kill(&self) {}
    }

    const KILL: Duration = Duration::from_secs(3);

    fn lease() -> Lease {
        let grace = Grace { kill: KILL, ..Grace::default() };
        let (fence_at, deadline_at) = (Boot(1_000), Boot(1_000));
        let state = State {
            fence_at,
            deadline_at,
            renewed_at: None,
            phase: String::new(),
            last_output_at: None,
            held: BTreeMap::new(),
            next: 0,
        };
        let lease_grace = Duration::from_secs(120);
        let (entered, misses) = (Notify::new(), AtomicU32::new(0));
        Lease { sent_at: Boot(0), lease_grace, grace, now: Mutex::new(state), entered, misses }
    }

    #[test]
    fn all_that_is_held_hears_of_renewals_and_what_is_released_does_not() {
        let lease = Arc::new(lease());
        let (task, beside) = (Arc::new(Heard::default()), Arc::new(Heard::default()));
        let held = lease.hold(Arc::<Heard>::clone(&task));
        let _beside = lease.hold_beside(Arc::<Heard>::clone(&beside));
        assert_eq!((task.last(), beside.last()), (Some(lease.fence_at()), Some(lease.over_at())));
        assert_eq!(lease.over_at(), lease.fence_at().plus(KILL), "it lasts as long as the grace of what needs it");
        let renewed = Renewed { lease_ttl_ms: 60_000, deadline_in_ms: 1, cancel: None };
        lease.renewed(Boot(5_000), &renewed);
        assert_eq!((task.last(), beside.last()), (Some(lease.fence_at()), Some(lease.over_at())));
        drop(held);
        lease.renewed(Boot(6_000), &renewed);
        assert_eq!((task.last(), beside.last()), (None, Some(lease.over_at())));
    }
}
