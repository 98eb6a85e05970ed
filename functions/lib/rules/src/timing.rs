//! The numbers of SPEC.md's table, as configuration with those defaults, so that a test runs the same rules in seconds.

use std::time::Duration;

const fn s(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

/// Every duration that the rules know.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timing {
    /// How long a claim or a heartbeat keeps a build (60 s).
    pub lease: Duration,
    /// How often the worker calls back (30 s).
    pub heartbeat_every: Duration,
    /// How long after its lease lapsed a build is declared lost (120 s).
    pub lease_grace: Duration,
    /// The longest that any build may run (30 min).
    pub deadline_max: Duration,
    /// How long past its deadline a build is declared overdue (120 s).
    pub deadline_grace: Duration,
    /// How often the reaper sweeps (30 s).
    pub reap_every: Duration,
    /// How long a build may wait for a worker (24 h).
    pub queue_expiry: Duration,
    /// How long ended builds and their logs are kept (90 d).
    pub retention: Duration,
    /// Between asking a step to end and ending it (10 s).
    pub kill_grace: Duration,
    /// What a worker keeps in hand between its last kill and the reaper (15 s).
    pub fence_margin: Duration,
    /// How long after a complete its worker may still append logs (10 min).
    pub late_logs: Duration,
    /// How long an `Idempotency-Key` is kept (24 h).
    pub idempotency: Duration,
    /// How old the billing service's answer about a plan may be before it is asked again (60 s).
    pub billing_refresh: Duration,
    /// How old its answer may be before the plan counts as unreadable (15 min).
    pub billing_stale: Duration,
    /// How often a host that holds previews calls (10 s).
    pub preview_sync_every: Duration,
    /// How often the scheduler cleans previews up (30 s); zero: never, unless an operator sweeps.
    pub preview_cleanup_every: Duration,
    /// How long destroyed previews are kept (90 d); zero: for ever.
    pub preview_retention: Duration,
    /// How long after its last sync a host counts as lost (15 min).
    pub host_lost: Duration,
    /// How long after its last sync nobody waits any more for a host to confirm what it was to destroy (7 d).
    pub host_forgotten: Duration,
}

impl Default for Timing {
    fn default() -> Self {
        Self {
            lease: s(60),
            heartbeat_every: s(30),
            lease_grace: s(120),
            deadline_max: s(30 * 60),
            deadline_grace: s(120),
            reap_every: s(30),
            queue_expiry: s(24 * 3600),
            retention: s(90 * 24 * 3600),
            kill_grace: s(10),
            fence_margin: s(15),
            late_logs: s(600),
            idempotency: s(24 * 3600),
            billing_refresh: s(60),
            billing_stale: s(15 * 60),
            preview_sync_every: s(10),
            preview_cleanup_every: s(30),
            preview_retention: s(90 * 24 * 3600),
            host_lost: s(15 * 60),
            host_forgotten: s(7 * 24 * 3600),
        }
    }
}
