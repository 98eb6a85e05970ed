//! Configuration: read once, from the environment, with SPEC.md's numbers as defaults.

use protocol::worker::{LogLimits, Secret};
use rules::Timing;
use rules::fairness::Order;
use std::time::Duration;

/// Everything that can be set. The names of the variables are those in the CloudFormation template.
#[derive(Clone)]
pub struct Config {
    /// `CALLBOARD_DATABASE_URL` or `DATABASE_URL`: where Postgres is.
    pub database_url: String,
    /// `CALLBOARD_DATABASE_CONNECTIONS`: how many connections this process may hold (1).
    pub database_connections: u32,
    /// `CALLBOARD_BATCH_MAX`: how many calls that wait at the same time are served together (64); 1: each by itself.
    pub batch_max: usize,
    /// `CALLBOARD_CLAIM_ORDER`: `oldest` (the default) or `fair`; the sweep sets it for the board.
    pub claim_order: Order,
    /// `CALLBOARD_SECRETS_KEY`: `<id>:<64 hex digits>`, the key that seals secrets and signs log tokens.
    pub secrets_key: SecretsKey,
    /// `CALLBOARD_LEASE_MS` and the like: the numbers of SPEC.md's table.
    pub timing: Timing,
    /// `CALLBOARD_LOG_CHUNK_BYTES` and the like: how logs are to be sent.
    pub log: LogLimits,
    /// `CALLBOARD_BILLING_URL` and the like: where plans come from; `None`: the plan tables.
    pub billing: Option<BillingService>,
}

/// A billing service to ask for plans.
#[derive(Clone, PartialEq, Eq)]
pub struct BillingService {
    /// `CALLBOARD_BILLING_URL`: below it is `workspaces/{slug}/plan`.
    pub url: String,
    /// `CALLBOARD_BILLING_TOKEN`: what the service knows us by.
    pub token: Secret,
    /// `CALLBOARD_BILLING_TIMEOUT_MS`: how long one question may take (2 s).
    pub timeout: Duration,
}

/// A key and its name.
#[derive(Clone, PartialEq, Eq)]
pub struct SecretsKey {
    /// Its name, stored with what it sealed.
    pub id: String,
    /// The key.
    pub bytes: [u8; 32],
}

impl SecretsKey {
    /// Reads `<id>:<64 hex digits>`.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let (id, digits) = text.trim().split_once(':')?;
        let bytes = hex::decode(digits).ok()?.try_into().ok()?;
        (!id.is_empty()).then(|| Self { id: id.to_owned(), bytes })
    }
}

/// A setting that can't be used: which, and what it should be.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[error("{name}: {problem}")]
pub struct BadSetting {
    /// The variable.
    pub name: &'static str,
    /// What is wrong with it. Never its value.
    pub problem: &'static str,
}

/// How many calls are served together, unless set otherwise: enough to share a commit, few enough to answer soon.
pub const BATCH_MAX: u64 = 64;

/// How logs are to be sent, unless set otherwise.
pub const LOG_LIMITS: LogLimits = LogLimits {
    max_chunk_bytes: 64 * 1024,
    max_batch_bytes: 512 * 1024,
    interval_ms: 1000,
    cap_bytes: 64 * 1024 * 1024,
};

/// How long the billing service may take, unless set otherwise.
const BILLING_TIMEOUT: Duration = Duration::from_secs(2);
/// How long it may be given: a submit waits for it.
const BILLING_TIMEOUT_MAX: Duration = Duration::from_secs(10);

impl Config {
    /// Reads the environment.
    ///
    /// # Errors
    ///
    /// The first setting that is missing or can't be read.
    pub fn from_env() -> Result<Self, BadSetting> {
        // The one place that reads the environment.
        #[expect(clippy::disallowed_methods)]
        Self::read(|name| std::env::var(name).ok())
    }

    /// Reads settings from `lookup`.
    ///
    /// # Errors
    ///
    /// The first setting that is missing or can't be read.
    pub fn read(lookup: impl Fn(&'static str) -> Option<String>) -> Result<Self, BadSetting> {
        let database_url = lookup("CALLBOARD_DATABASE_URL").or_else(|| lookup("DATABASE_URL")).ok_or(BadSetting {
            name: "CALLBOARD_DATABASE_URL",
            problem: "not set; give postgres://user@host/database",
        })?;
        let key = lookup("CALLBOARD_SECRETS_KEY").ok_or(BadSetting { name: "CALLBOARD_SECRETS_KEY", problem: KEY })?;
        let secrets_key = SecretsKey::parse(&key).ok_or(BadSetting { name: "CALLBOARD_SECRETS_KEY", problem: KEY })?;
        let number = Numbers(&lookup);
        let connections = number.read("CALLBOARD_DATABASE_CONNECTIONS", 1)?.clamp(1, 1000);
        let batch_max = number.read("CALLBOARD_BATCH_MAX", BATCH_MAX)?.clamp(1, 1000);
        Ok(Self {
            database_url,
            database_connections: u32::try_from(connections).unwrap_or(1000),
            batch_max: usize::try_from(batch_max).unwrap_or(1),
            claim_order: match lookup("CALLBOARD_CLAIM_ORDER") {
                None => Order::default(),
                Some(word) => Order::parse(word.trim())
                    .ok_or(BadSetting { name: "CALLBOARD_CLAIM_ORDER", problem: "neither oldest nor fair" })?,
            },
            secrets_key,
            timing: number.timing()?,
            log: number.log()?,
            billing: number.billing()?,
        })
    }
}

const KEY: &str = "not a key; give <id>:<64 hex digits>, such as k1:$(openssl rand -hex 32)";

struct Numbers<F>(F);

impl<F: Fn(&'static str) -> Option<String>> Numbers<F> {
    fn read(&self, name: &'static str, default: u64) -> Result<u64, BadSetting> {
        match (self.0)(name) {
            None => Ok(default),
            Some(text) => text.trim().parse().map_err(|_| BadSetting { name, problem: "not a whole number" }),
        }
    }

    fn ms(&self, name: &'static str, default: Duration) -> Result<Duration, BadSetting> {
        let default = u64::try_from(default.as_millis()).unwrap_or(u64::MAX);
        Ok(Duration::from_millis(self.read(name, default)?))
    }

    fn timing(&self) -> Result<Timing, BadSetting> {
        let spec = Timing::default();
        let timing = Timing {
            lease: self.ms("CALLBOARD_LEASE_MS", spec.lease)?,
            heartbeat_every: self.ms("CALLBOARD_HEARTBEAT_EVERY_MS", spec.heartbeat_every)?,
            lease_grace: self.ms("CALLBOARD_LEASE_GRACE_MS", spec.lease_grace)?,
            deadline_max: self.ms("CALLBOARD_DEADLINE_MAX_MS", spec.deadline_max)?,
            deadline_grace: self.ms("CALLBOARD_DEADLINE_GRACE_MS", spec.deadline_grace)?,
            reap_every: self.ms("CALLBOARD_REAP_EVERY_MS", spec.reap_every)?,
            queue_expiry: self.ms("CALLBOARD_QUEUE_EXPIRY_MS", spec.queue_expiry)?,
            retention: self.ms("CALLBOARD_RETENTION_MS", spec.retention)?,
            kill_grace: self.ms("CALLBOARD_KILL_GRACE_MS", spec.kill_grace)?,
            fence_margin: self.ms("CALLBOARD_FENCE_MARGIN_MS", spec.fence_margin)?,
            late_logs: self.ms("CALLBOARD_LATE_LOGS_MS", spec.late_logs)?,
            idempotency: self.ms("CALLBOARD_IDEMPOTENCY_MS", spec.idempotency)?,
            billing_refresh: self.ms("CALLBOARD_BILLING_REFRESH_MS", spec.billing_refresh)?,
            billing_stale: self.ms("CALLBOARD_BILLING_STALE_MS", spec.billing_stale)?,
            preview_sync_every: self.ms("CALLBOARD_PREVIEW_SYNC_EVERY_MS", spec.preview_sync_every)?,
            preview_cleanup_every: self.ms("CALLBOARD_PREVIEW_CLEANUP_EVERY_MS", spec.preview_cleanup_every)?,
            preview_retention: self.ms("CALLBOARD_PREVIEW_RETENTION_MS", spec.preview_retention)?,
            host_lost: self.ms("CALLBOARD_HOST_LOST_MS", spec.host_lost)?,
            host_forgotten: self.ms("CALLBOARD_HOST_FORGOTTEN_MS", spec.host_forgotten)?,
        };
        if timing.heartbeat_every >= timing.lease {
            let problem = "not shorter than CALLBOARD_LEASE_MS: every lease would lapse";
            return Err(BadSetting { name: "CALLBOARD_HEARTBEAT_EVERY_MS", problem });
        }
        Ok(timing)
    }

    fn billing(&self) -> Result<Option<BillingService>, BadSetting> {
        let Some(url) = (self.0)("CALLBOARD_BILLING_URL") else { return Ok(None) };
        let name = "CALLBOARD_BILLING_TOKEN";
        let token = (self.0)(name).ok_or(BadSetting { name, problem: "not set, though CALLBOARD_BILLING_URL is" })?;
        let name = "CALLBOARD_BILLING_TIMEOUT_MS";
        let timeout = self.ms(name, BILLING_TIMEOUT)?;
        if !(Duration::from_millis(1)..=BILLING_TIMEOUT_MAX).contains(&timeout) {
            return Err(BadSetting { name, problem: "give 1 to 10000" });
        }
        let timing = self.timing()?;
        if timing.billing_refresh >= timing.billing_stale {
            let problem =
                "not shorter than CALLBOARD_BILLING_STALE_MS: every plan would be stale before it is asked for";
            return Err(BadSetting { name: "CALLBOARD_BILLING_REFRESH_MS", problem });
        }
        Ok(Some(BillingService { url, token: Secret(token.trim().to_owned()), timeout }))
    }

    fn log(&self) -> Result<LogLimits, BadSetting> {
        let bytes = |name, default: usize| {
            let read = self.read(name, u64::try_from(default).unwrap_or(u64::MAX))?;
            usize::try_from(read).map_err(|_| BadSetting { name, problem: "too large" })
        };
        Ok(LogLimits {
            max_chunk_bytes: bytes("CALLBOARD_LOG_CHUNK_BYTES", LOG_LIMITS.max_chunk_bytes)?,
            max_batch_bytes: bytes("CALLBOARD_LOG_BATCH_BYTES", LOG_LIMITS.max_batch_bytes)?,
            interval_ms: self.read("CALLBOARD_LOG_INTERVAL_MS", LOG_LIMITS.interval_ms)?,
            cap_bytes: self.read("CALLBOARD_LOG_CAP_BYTES", LOG_LIMITS.cap_bytes)?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(set: &[(&'static str, &str)]) -> Result<Config, BadSetting> {
        let key = format!("k1:{}", "07".repeat(32));
        let always = [("DATABASE_URL", "postgres://localhost/x"), ("CALLBOARD_SECRETS_KEY", key.as_str())];
        let all: Vec<_> = always.iter().chain(set).collect();
        Config::read(|name| all.iter().find(|(known, _)| *known == name).map(|(_, value)| (*value).to_owned()))
    }

    #[test]
    fn without_an_address_plans_come_from_the_tables() {
        assert!(read(&[("CALLBOARD_BILLING_TOKEN", "t")]).is_ok_and(|config| config.billing.is_none()));
    }

    #[test]
    fn a_billing_service_has_two_seconds_unless_set_otherwise() {
        let service = |set: &[(&'static str, &str)]| {
            let named = [("CALLBOARD_BILLING_URL", "https://b.example"), ("CALLBOARD_BILLING_TOKEN", " t ")];
            read(&[&named, set].concat()).map(|config| config.billing.expect("a service"))
        };
        assert!(service(&[]).is_ok_and(|service| service.timeout == Duration::from_secs(2) && service.token.0 == "t"));
        let timeout = |ms| service(&[("CALLBOARD_BILLING_TIMEOUT_MS", ms)]).map_or_else(|bad| bad.name, |_| "");
        assert_eq!(["0", "1", "10000", "10001"].map(|ms| timeout(ms).is_empty()), [false, true, true, false]);
        let stale = |ms| service(&[("CALLBOARD_BILLING_STALE_MS", ms)]).map_or_else(|bad| bad.name, |_| "");
        assert_eq!((stale("60001"), stale("60000")), ("", "CALLBOARD_BILLING_REFRESH_MS"));
    }

    #[test]
    fn a_billing_service_without_a_token_is_refused() {
        let refused = read(&[("CALLBOARD_BILLING_URL", "https://b.example")]).err();
        assert_eq!(refused.map(|bad| bad.name), Some("CALLBOARD_BILLING_TOKEN"));
    }
}
