//! Configuration: read once, from the environment, with SPEC.md's numbers as defaults.

mod numbers;

use numbers::Numbers;
use protocol::worker::{LogLimits, Secret};
use rules::Timing;
use rules::fairness::Order;
use std::borrow::Cow;
use std::time::Duration;
use store::Statements;

/// Everything that can be set. The names of the variables are those in the CloudFormation template.
#[derive(Clone)]
pub struct Config {
    /// `CALLBOARD_DATABASE_URL` or `DATABASE_URL`: where Postgres is.
    pub database_url: String,
    /// `CALLBOARD_DATABASE_CONNECTIONS`: how many connections this process may hold (1).
    pub database_connections: u32,
    /// `CALLBOARD_DATABASE_STATEMENTS`: `named` (the default), or `unnamed` behind a pooler that gives each transaction another session.
    pub database_statements: Statements,
    /// `CALLBOARD_DATABASE_CA`: PEM, or a file of it: who must have signed the database's certificate; `None`: as its address says.
    pub database_ca: Option<String>,
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
#[derive(thiserror::Error, PartialEq, Eq)]
#[error("{name}: {problem}")]
pub struct BadSetting {
    /// The variable.
    pub name: &'static str,
    /// What is wrong with it, and what it may be. Its value only where that is a number: a text may be a secret that was put
    /// into the wrong variable.
    pub problem: Cow<'static, str>,
}

/// The words for people: it is what a `main` that fails prints.
impl std::fmt::Debug for BadSetting {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{self}")
    }
}

impl BadSetting {
    /// A setting that can't be used.
    pub fn new(name: &'static str, problem: impl Into<Cow<'static, str>>) -> Self {
        Self { name, problem: problem.into() }
    }
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
        let database_url = lookup("CALLBOARD_DATABASE_URL")
            .or_else(|| lookup("DATABASE_URL"))
            .ok_or_else(|| BadSetting::new("CALLBOARD_DATABASE_URL", "not set; give postgres://user@host/database"))?;
        let no_key = || BadSetting::new("CALLBOARD_SECRETS_KEY", KEY);
        let key = lookup("CALLBOARD_SECRETS_KEY").ok_or_else(no_key)?;
        let secrets_key = SecretsKey::parse(&key).ok_or_else(no_key)?;
        let number = Numbers(&lookup);
        let connections = number.within("CALLBOARD_DATABASE_CONNECTIONS", 1, 1..=1000)?;
        let batch_max = number.within("CALLBOARD_BATCH_MAX", BATCH_MAX, 1..=1000)?;
        let timing = number.timing()?;
        Ok(Self {
            database_url,
            database_connections: u32::try_from(connections).unwrap_or(1000),
            database_statements: match lookup("CALLBOARD_DATABASE_STATEMENTS") {
                None => Statements::default(),
                Some(word) => Statements::parse(word.trim())
                    .ok_or_else(|| BadSetting::new("CALLBOARD_DATABASE_STATEMENTS", "neither named nor unnamed"))?,
            },
            database_ca: lookup("CALLBOARD_DATABASE_CA").filter(|ca| !ca.trim().is_empty()),
            batch_max: usize::try_from(batch_max).unwrap_or(1),
            claim_order: match lookup("CALLBOARD_CLAIM_ORDER") {
                None => Order::default(),
                Some(word) => Order::parse(word.trim())
                    .ok_or_else(|| BadSetting::new("CALLBOARD_CLAIM_ORDER", "neither oldest nor fair"))?,
            },
            secrets_key,
            timing,
            log: number.log()?,
            billing: number.billing(&timing)?,
        })
    }
}

const KEY: &str = "not a key; give <id>:<64 hex digits>, such as k1:$(openssl rand -hex 32)";

#[cfg(test)]
mod tests {
    use super::*;

    fn read(set: &[(&'static str, &str)]) -> Result<Config, BadSetting> {
        let key = format!("k1:{}", "07".repeat(32));
        let always = [("DATABASE_URL", "postgres://localhost/x"), ("CALLBOARD_SECRETS_KEY", key.as_str())];
        let all: Vec<_> = always.iter().chain(set).collect();
        Config::read(|name| all.iter().find(|(known, _)| *known == name).map(|(_, value)| (*value).to_owned()))
    }

    /// Every variable of a number, with the least and the most that it may be.
    const NUMBERS: [(&str, u64, u64); 26] = [
        ("CALLBOARD_DATABASE_CONNECTIONS", 1, 1000),
        ("CALLBOARD_BATCH_MAX", 1, 1000),
        ("CALLBOARD_LEASE_MS", 1000, 86_400_000),
        ("CALLBOARD_HEARTBEAT_EVERY_MS", 100, 86_400_000),
        ("CALLBOARD_LEASE_GRACE_MS", 0, 86_400_000),
        ("CALLBOARD_DEADLINE_MAX_MS", 1000, 86_400_000),
        ("CALLBOARD_DEADLINE_GRACE_MS", 0, 86_400_000),
        ("CALLBOARD_REAP_EVERY_MS", 1000, 86_400_000),
        ("CALLBOARD_QUEUE_EXPIRY_MS", 1000, 315_360_000_000),
        ("CALLBOARD_RETENTION_MS", 1000, 315_360_000_000),
        ("CALLBOARD_KILL_GRACE_MS", 0, 86_400_000),
        ("CALLBOARD_FENCE_MARGIN_MS", 0, 86_400_000),
        ("CALLBOARD_LATE_LOGS_MS", 0, 86_400_000),
        ("CALLBOARD_IDEMPOTENCY_MS", 1000, 315_360_000_000),
        ("CALLBOARD_BILLING_REFRESH_MS", 1000, 86_400_000),
        ("CALLBOARD_BILLING_STALE_MS", 1000, 86_400_000),
        ("CALLBOARD_PREVIEW_SYNC_EVERY_MS", 100, 86_400_000),
        ("CALLBOARD_PREVIEW_CLEANUP_EVERY_MS", 0, 86_400_000),
        ("CALLBOARD_PREVIEW_RETENTION_MS", 0, 315_360_000_000),
        ("CALLBOARD_HOST_LOST_MS", 1000, 315_360_000_000),
        ("CALLBOARD_HOST_FORGOTTEN_MS", 1000, 315_360_000_000),
        ("CALLBOARD_BILLING_TIMEOUT_MS", 1, 10_000),
        ("CALLBOARD_LOG_CHUNK_BYTES", 1024, 524_288),
        ("CALLBOARD_LOG_BATCH_BYTES", 1024, 524_288),
        ("CALLBOARD_LOG_INTERVAL_MS", 10, 60_000),
        ("CALLBOARD_LOG_CAP_BYTES", 1024, 1_099_511_627_776),
    ];

    /// What is said about a setting beside a billing service; empty if it is fine by itself.
    fn said(name: &'static str, value: &str) -> String {
        let billed = [("CALLBOARD_BILLING_URL", "https://b.example"), ("CALLBOARD_BILLING_TOKEN", "t")];
        match read(&[&billed[..], &[(name, value)]].concat()) {
            Err(bad) if bad.problem.contains("; give ") => bad.to_string(),
            // Fine by itself, though perhaps not beside the defaults of others.
            Ok(_) | Err(_) => String::new(),
        }
    }

    #[test]
    fn a_number_that_cant_work_is_refused_with_its_name_its_value_and_what_is_allowed() {
        for (name, least, most) in NUMBERS {
            let allowed = format!("; give {least} to {most}");
            let huge = [(most + 1).to_string(), u64::MAX.to_string(), "9".repeat(30)];
            let small = least.checked_sub(1).map(|below| below.to_string()).into_iter().chain(["-1".to_owned()]);
            for value in huge.into_iter().chain(small) {
                assert_eq!(said(name, &value), format!("{name}: {value} can't work{allowed}"));
            }
            for text in ["", "ten", "1.5", "0x10", "1 000", &"9".repeat(60)] {
                assert_eq!(said(name, text), format!("{name}: not a whole number{allowed}"), "{text:?}");
            }
            assert_eq!([said(name, &least.to_string()), said(name, &format!(" {most} "))], ["", ""], "{name}");
        }
    }

    #[test]
    fn a_main_that_fails_prints_words_for_people() {
        let bad = read(&[("CALLBOARD_LEASE_MS", "0")]).err().expect("no lease is that short");
        assert_eq!(format!("{bad:?}"), "CALLBOARD_LEASE_MS: 0 can't work; give 1000 to 86400000");
    }

    #[test]
    fn every_number_is_in_the_table() {
        let asked = std::cell::RefCell::new(std::collections::BTreeSet::new());
        let key = format!("k1:{}", "07".repeat(32));
        let _ = Config::read(|name| {
            asked.borrow_mut().insert(name);
            match name {
                "CALLBOARD_SECRETS_KEY" => Some(key.clone()),
                "CALLBOARD_DATABASE_URL" | "CALLBOARD_BILLING_URL" | "CALLBOARD_BILLING_TOKEN" => Some("x".into()),
                _ => None,
            }
        });
        let numbers = |name: &&str| ["_MS", "_BYTES", "_MAX", "_CONNECTIONS"].iter().any(|end| name.ends_with(end));
        let known: std::collections::BTreeSet<_> = NUMBERS.iter().map(|(name, ..)| *name).collect();
        assert_eq!(asked.into_inner().into_iter().filter(numbers).collect::<std::collections::BTreeSet<_>>(), known);
    }

    #[test]
    fn numbers_that_cant_work_beside_each_other_are_refused() {
        for (set, refused) in [
            (&[("CALLBOARD_LEASE_MS", "30000")][..], "CALLBOARD_HEARTBEAT_EVERY_MS"),
            (&[("CALLBOARD_LEASE_MS", "30001"), ("CALLBOARD_REAP_EVERY_MS", "30001")], ""),
            (&[("CALLBOARD_FENCE_MARGIN_MS", "140000")], "CALLBOARD_LEASE_GRACE_MS"),
            (&[("CALLBOARD_FENCE_MARGIN_MS", "139999")], ""),
            (&[("CALLBOARD_REAP_EVERY_MS", "180001")], "CALLBOARD_REAP_EVERY_MS"),
            (&[("CALLBOARD_REAP_EVERY_MS", "180000")], ""),
            (&[("CALLBOARD_RETENTION_MS", "599999")], "CALLBOARD_RETENTION_MS"),
            (&[("CALLBOARD_RETENTION_MS", "600000")], ""),
            (&[("CALLBOARD_LOG_BATCH_BYTES", "65535")], "CALLBOARD_LOG_BATCH_BYTES"),
            (&[("CALLBOARD_LOG_BATCH_BYTES", "65536")], ""),
        ] {
            assert_eq!(read(set).map_or_else(|bad| bad.name, |_| ""), refused, "{set:?}");
        }
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
