//! The settings that are numbers: each within what can work, by itself and beside the others.

use super::{BadSetting, BillingService, LOG_LIMITS};
use protocol::worker::{LogLimits, Secret};
use rules::Timing;
use rules::lease::fence_after;
use std::ops::RangeInclusive;
use std::time::Duration;

/// The least of what counts as a while: schedulers count in whole seconds.
const SECOND_MS: u64 = 1000;
const DAY_MS: u64 = 24 * 3600 * 1000;
/// The longest that anything is kept: ten years.
const KEPT_MAX_MS: u64 = 3650 * DAY_MS;

/// The least that a chunk may be limited to: with less, the lines around it outweigh it.
const CHUNK_MIN_BYTES: u64 = 1024;
/// The largest batch: with every byte escaped it still fits into the body that the logs call takes.
const BATCH_MAX_BYTES: u64 = 512 * 1024;
/// The longest log: a TiB.
const CAP_MAX_BYTES: u64 = 1 << 40;

/// How long the billing service may take, unless set otherwise.
const BILLING_TIMEOUT: Duration = Duration::from_secs(2);
/// How long it may be given: a submit waits for it.
const BILLING_TIMEOUT_MAX_MS: u64 = 10_000;

/// Reads numbers of the settings that `0` looks up.
pub(super) struct Numbers<F>(pub(super) F);

impl<F: Fn(&'static str) -> Option<String>> Numbers<F> {
    /// The number of a setting, or `default`; an error outside of `allowed`.
    pub(super) fn within(
        &self,
        name: &'static str,
        default: u64,
        allowed: RangeInclusive<u64>,
    ) -> Result<u64, BadSetting> {
        let Some(text) = (self.0)(name) else { return Ok(default) };
        let (least, most) = (allowed.start(), allowed.end());
        match text.trim().parse::<i128>() {
            Ok(number) => match u64::try_from(number).ok().filter(|number| allowed.contains(number)) {
                Some(number) => Ok(number),
                None => Err(BadSetting::new(name, format!("{number} can't work; give {least} to {most}"))),
            },
            Err(_) => Err(BadSetting::new(name, format!("not a whole number; give {least} to {most}"))),
        }
    }

    fn ms(&self, name: &'static str, default: Duration, allowed: RangeInclusive<u64>) -> Result<Duration, BadSetting> {
        let default = u64::try_from(default.as_millis()).unwrap_or(u64::MAX);
        self.within(name, default, allowed).map(Duration::from_millis)
    }

    /// SPEC.md's durations.
    pub(super) fn timing(&self) -> Result<Timing, BadSetting> {
        let spec = Timing::default();
        let timing = Timing {
            lease: self.ms("CALLBOARD_LEASE_MS", spec.lease, SECOND_MS..=DAY_MS)?,
            heartbeat_every: self.ms("CALLBOARD_HEARTBEAT_EVERY_MS", spec.heartbeat_every, 100..=DAY_MS)?,
            lease_grace: self.ms("CALLBOARD_LEASE_GRACE_MS", spec.lease_grace, 0..=DAY_MS)?,
            deadline_max: self.ms("CALLBOARD_DEADLINE_MAX_MS", spec.deadline_max, SECOND_MS..=DAY_MS)?,
            deadline_grace: self.ms("CALLBOARD_DEADLINE_GRACE_MS", spec.deadline_grace, 0..=DAY_MS)?,
            reap_every: self.ms("CALLBOARD_REAP_EVERY_MS", spec.reap_every, SECOND_MS..=DAY_MS)?,
            queue_expiry: self.ms("CALLBOARD_QUEUE_EXPIRY_MS", spec.queue_expiry, SECOND_MS..=KEPT_MAX_MS)?,
            retention: self.ms("CALLBOARD_RETENTION_MS", spec.retention, SECOND_MS..=KEPT_MAX_MS)?,
            kill_grace: self.ms("CALLBOARD_KILL_GRACE_MS", spec.kill_grace, 0..=DAY_MS)?,
            fence_margin: self.ms("CALLBOARD_FENCE_MARGIN_MS", spec.fence_margin, 0..=DAY_MS)?,
            late_logs: self.ms("CALLBOARD_LATE_LOGS_MS", spec.late_logs, 0..=DAY_MS)?,
            idempotency: self.ms("CALLBOARD_IDEMPOTENCY_MS", spec.idempotency, SECOND_MS..=KEPT_MAX_MS)?,
            billing_refresh: self.ms("CALLBOARD_BILLING_REFRESH_MS", spec.billing_refresh, SECOND_MS..=DAY_MS)?,
            billing_stale: self.ms("CALLBOARD_BILLING_STALE_MS", spec.billing_stale, SECOND_MS..=DAY_MS)?,
            preview_sync_every: self.ms("CALLBOARD_PREVIEW_SYNC_EVERY_MS", spec.preview_sync_every, 100..=DAY_MS)?,
            preview_cleanup_every: self.ms(
                "CALLBOARD_PREVIEW_CLEANUP_EVERY_MS",
                spec.preview_cleanup_every,
                0..=DAY_MS,
            )?,
            preview_retention: self.ms("CALLBOARD_PREVIEW_RETENTION_MS", spec.preview_retention, 0..=KEPT_MAX_MS)?,
            host_lost: self.ms("CALLBOARD_HOST_LOST_MS", spec.host_lost, SECOND_MS..=KEPT_MAX_MS)?,
            host_forgotten: self.ms("CALLBOARD_HOST_FORGOTTEN_MS", spec.host_forgotten, SECOND_MS..=KEPT_MAX_MS)?,
        };
        fit_together(&timing).map(|()| timing)
    }

    /// How logs are to be sent.
    pub(super) fn log(&self) -> Result<LogLimits, BadSetting> {
        let bytes = |name, default: usize, least| {
            let read = self.within(name, u64::try_from(default).unwrap_or(u64::MAX), least..=BATCH_MAX_BYTES)?;
            usize::try_from(read).map_err(|_| BadSetting::new(name, "too large for this machine"))
        };
        let max_chunk_bytes = bytes("CALLBOARD_LOG_CHUNK_BYTES", LOG_LIMITS.max_chunk_bytes, CHUNK_MIN_BYTES)?;
        let max_batch_bytes = bytes("CALLBOARD_LOG_BATCH_BYTES", LOG_LIMITS.max_batch_bytes, CHUNK_MIN_BYTES)?;
        let interval_ms = self.within("CALLBOARD_LOG_INTERVAL_MS", LOG_LIMITS.interval_ms, 10..=60_000)?;
        let cap_bytes =
            self.within("CALLBOARD_LOG_CAP_BYTES", LOG_LIMITS.cap_bytes, CHUNK_MIN_BYTES..=CAP_MAX_BYTES)?;
        if max_chunk_bytes > max_batch_bytes {
            let problem = format!("{max_batch_bytes} is less than CALLBOARD_LOG_CHUNK_BYTES ({max_chunk_bytes})");
            return Err(BadSetting::new("CALLBOARD_LOG_BATCH_BYTES", problem));
        }
        Ok(LogLimits { max_chunk_bytes, max_batch_bytes, interval_ms, cap_bytes })
    }

    /// The billing service, if one is named.
    pub(super) fn billing(&self, timing: &Timing) -> Result<Option<BillingService>, BadSetting> {
        let Some(url) = (self.0)("CALLBOARD_BILLING_URL") else { return Ok(None) };
        let name = "CALLBOARD_BILLING_TOKEN";
        let unset = || BadSetting::new(name, "not set, though CALLBOARD_BILLING_URL is");
        let token = (self.0)(name).ok_or_else(unset)?;
        let timeout = self.ms("CALLBOARD_BILLING_TIMEOUT_MS", BILLING_TIMEOUT, 1..=BILLING_TIMEOUT_MAX_MS)?;
        if timing.billing_refresh >= timing.billing_stale {
            let problem =
                "not shorter than CALLBOARD_BILLING_STALE_MS: every plan would be stale before it is asked for";
            return Err(BadSetting::new("CALLBOARD_BILLING_REFRESH_MS", problem));
        }
        Ok(Some(BillingService { url, token: Secret(token.trim().to_owned()), timeout }))
    }
}

/// Whether durations that can each work do so beside each other.
fn fit_together(timing: &Timing) -> Result<(), BadSetting> {
    let Timing { lease, heartbeat_every, lease_grace, reap_every, kill_grace, fence_margin, .. } = *timing;
    if heartbeat_every >= lease {
        let problem = "not shorter than CALLBOARD_LEASE_MS: every lease would lapse";
        return Err(BadSetting::new("CALLBOARD_HEARTBEAT_EVERY_MS", problem));
    }
    if fence_after(lease, lease_grace, kill_grace, fence_margin) <= heartbeat_every {
        let problem = "too short: CALLBOARD_LEASE_MS and it, less CALLBOARD_KILL_GRACE_MS and CALLBOARD_FENCE_MARGIN_MS, must \
                       be more than CALLBOARD_HEARTBEAT_EVERY_MS, or a worker ends its steps before it could renew";
        return Err(BadSetting::new("CALLBOARD_LEASE_GRACE_MS", problem));
    }
    if reap_every > lease + lease_grace {
        let problem = "longer than CALLBOARD_LEASE_MS and CALLBOARD_LEASE_GRACE_MS: every sweep would be the first after an outage";
        return Err(BadSetting::new("CALLBOARD_REAP_EVERY_MS", problem));
    }
    if timing.retention < timing.late_logs {
        let problem = "shorter than CALLBOARD_LATE_LOGS_MS: builds would be purged while their logs may still come";
        return Err(BadSetting::new("CALLBOARD_RETENTION_MS", problem));
    }
    Ok(())
}
