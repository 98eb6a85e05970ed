//! What a worker counts of itself, as Prometheus reads it, and whether it is well.
//!
//! Nothing here names a tenant: no workspace, no pipeline, no build.

use crate::clock::{Boot, millis};
use crate::lease::Lease;
use crate::logs::Journal;
use protocol::preview::{PortRange, PreviewReport};
use protocol::{EndReason, Status};
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;
use uuid::Uuid;

/// How long the claim loop may take for one turn: a claim that is answered late, and the longest wait after it, twice.
const TURN_MAX: Duration = Duration::from_secs(120);
/// So many heartbeats of one build in a row, and it is no accident.
const MISSES_MAX: u32 = 3;

/// What a claim was answered with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    /// A build.
    Build,
    /// Nothing to do.
    Nothing,
    /// None, or none of the board's.
    Failed,
    /// A refusal.
    Refused,
}

const ANSWERS: [(Answer, &str); 4] =
    [(Answer::Build, "build"), (Answer::Nothing, "nothing"), (Answer::Failed, "failed"), (Answer::Refused, "refused")];

/// The counts of one worker.
#[derive(Debug, Default)]
pub struct Metrics {
    /// The back ends, by name, once they are known.
    isolation: OnceLock<String>,
    claims: [AtomicU64; ANSWERS.len()],
    claims_ms: AtomicU64,
    heartbeats: AtomicU64,
    heartbeats_failed: AtomicU64,
    log_bytes: AtomicU64,
    troubles: AtomicU32,
    /// When the claim loop last turned; 0 for not yet, or no longer.
    turned_at: AtomicU64,
    ended: Mutex<BTreeMap<(&'static str, &'static str), u64>>,
    held: Mutex<BTreeMap<Uuid, Held>>,
    /// None until they were first looked at.
    previews: Mutex<Option<Previews>>,
}

/// This host's previews.
#[derive(Clone, Debug)]
struct Previews {
    by_state: BTreeMap<&'static str, u64>,
    ports_used: u64,
    ports: u64,
}

#[derive(Debug)]
struct Held {
    lease: Arc<Lease>,
    journal: Option<Arc<Journal>>,
}

/// What does not count, but is.
#[derive(Clone, Debug)]
pub struct Standing {
    /// How many builds it may hold.
    pub slots: u32,
    /// The free space of the builds root, if it can be asked.
    pub free_bytes: Option<u64>,
}

/// A build is held as long as this lives.
#[derive(Debug)]
pub struct Holding {
    metrics: Arc<Metrics>,
    build: Uuid,
}

impl Holding {
    /// Its log has a journal now.
    pub fn logs(&self, journal: &Arc<Journal>) {
        if let Some(held) = self.metrics.held().get_mut(&self.build) {
            held.journal = Some(Arc::clone(journal));
        }
    }
}

impl Drop for Holding {
    fn drop(&mut self) {
        self.metrics.held().remove(&self.build);
    }
}

impl Metrics {
    /// Steps run in this back end, or these.
    pub fn works_in(&self, isolation: &str) {
        self.isolation.set(isolation.to_owned()).ok();
    }

    /// A build is held from now on.
    #[must_use]
    pub fn hold(self: &Arc<Self>, build: Uuid, lease: &Arc<Lease>) -> Holding {
        self.held().insert(build, Held { lease: Arc::clone(lease), journal: None });
        Holding { metrics: Arc::clone(self), build }
    }

    /// A claim was answered after `took`.
    pub fn claimed(&self, answer: Answer, took: Duration) {
        let at = ANSWERS.iter().position(|(known, _)| *known == answer).unwrap_or(0);
        self.claims[at].fetch_add(1, Relaxed);
        self.claims_ms.fetch_add(millis(took), Relaxed);
    }

    /// The claim loop turned.
    pub fn turned(&self) {
        self.turned_at.store(Boot::now().0, Relaxed);
    }

    /// The claim loop has ended; builds go on.
    pub fn turns_no_more(&self) {
        self.turned_at.store(0, Relaxed);
    }

    /// The board answered a heartbeat, or did not.
    pub fn beat(&self, renewed: bool) {
        if renewed { &self.heartbeats } else { &self.heartbeats_failed }.fetch_add(1, Relaxed);
    }

    /// The board has so many more bytes of logs.
    pub fn shipped(&self, bytes: u64) {
        self.log_bytes.fetch_add(bytes, Relaxed);
    }

    /// So many builds in a row failed for the host's reasons.
    pub fn troubles(&self, in_a_row: u32) {
        self.troubles.store(in_a_row, Relaxed);
    }

    /// This host's previews are so, and may have these ports.
    pub fn previews(&self, reports: &[PreviewReport], ports: PortRange) {
        let mut by_state = BTreeMap::new();
        reports.iter().for_each(|report| *by_state.entry(report.state.as_str()).or_default() += 1);
        let used = reports.iter().filter(|report| report.port.is_some()).count();
        let ports = u64::from(ports.last.saturating_sub(ports.first)) + 1;
        let previews = Previews { by_state, ports_used: u64::try_from(used).unwrap_or(0), ports };
        *self.previews.lock().unwrap_or_else(PoisonError::into_inner) = Some(previews);
    }

    /// A build's end was reported.
    pub fn ended(&self, status: Status, reason: Option<EndReason>) {
        let mut ended = self.ended.lock().unwrap_or_else(PoisonError::into_inner);
        *ended.entry((status.as_str(), reason.map_or("", EndReason::as_str))).or_default() += 1;
    }

    /// Whether the worker is well.
    ///
    /// # Errors
    ///
    /// What is the matter, for a person.
    pub fn health(&self, now: Boot) -> Result<(), String> {
        let turned_at = self.turned_at.load(Relaxed);
        if turned_at > 0 && now.since(Boot(turned_at)) > TURN_MAX {
            return Err(format!("the claim loop stood still for {} s", now.since(Boot(turned_at)).as_secs()));
        }
        let misses = self.held().values().map(|held| held.lease.misses()).max().unwrap_or(0);
        if misses >= MISSES_MAX {
            return Err(format!("{misses} heartbeats in a row were not acknowledged"));
        }
        Ok(())
    }

    /// All of it, in Prometheus's text format.
    #[must_use]
    pub fn text(&self, standing: &Standing, now: Boot) -> String {
        let mut page = Page(String::new());
        let version = env!("CARGO_PKG_VERSION");
        let isolation = self.isolation.get().map_or("", String::as_str);
        let info = format!("version=\"{version}\",isolation=\"{isolation}\"");
        page.family("info", "gauge", "The worker itself.", [(info, 1)]);
        page.one("slots", "gauge", "Builds that may be held at once.", u64::from(standing.slots));
        let claims = ANSWERS.iter().zip(&self.claims);
        let claims = claims.map(|((_, name), count)| (format!("answer=\"{name}\""), count.load(Relaxed)));
        page.family("claims_total", "counter", "Claims by what they were answered with.", claims);
        page.one(
            "claim_wait_ms_total",
            "counter",
            "Milliseconds that claims waited for.",
            self.claims_ms.load(Relaxed),
        );
        let ended = self.ended.lock().unwrap_or_else(PoisonError::into_inner).clone().into_iter();
        let ended = ended.map(|((status, reason), count)| (format!("status=\"{status}\",reason=\"{reason}\""), count));
        page.family("builds_ended_total", "counter", "Builds whose end was reported.", ended);
        self.of_held(&mut page, now);
        self.of_previews(&mut page);
        let beats = [("renewed", &self.heartbeats), ("failed", &self.heartbeats_failed)];
        let beats = beats.map(|(name, count)| (format!("result=\"{name}\""), count.load(Relaxed)));
        page.family("heartbeats_total", "counter", "Heartbeats by whether they were acknowledged.", beats);
        page.one("log_bytes_total", "counter", "Bytes of logs that the board has.", self.log_bytes.load(Relaxed));
        let troubles = u64::from(self.troubles.load(Relaxed));
        page.one("troubles_in_a_row", "gauge", "Builds in a row that failed for the host's reasons.", troubles);
        if let Some(bytes) = standing.free_bytes {
            page.one("free_bytes", "gauge", "Free space in the builds root.", bytes);
        }
        page.0
    }

    fn of_held(&self, page: &mut Page, now: Boot) {
        let held = self.held();
        let age = |held: &Held| now.since(held.lease.renewed_at().unwrap_or(held.lease.sent_at));
        let oldest = held.values().map(age).max().unwrap_or_default();
        let spooled =
            held.values().filter_map(|held| held.journal.as_ref()).map(|journal| journal.spooled_bytes()).sum();
        page.one("builds_held", "gauge", "Builds that are held now.", u64::try_from(held.len()).unwrap_or(0));
        page.one(
            "heartbeat_age_ms",
            "gauge",
            "Since the oldest acknowledged heartbeat of a held build.",
            millis(oldest),
        );
        page.one("log_spool_bytes", "gauge", "Bytes of logs on disk that wait for the board.", spooled);
    }

    fn of_previews(&self, page: &mut Page) {
        let previews = self.previews.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let Some(Previews { by_state, ports_used, ports }) = previews else { return };
        let by_state = by_state.into_iter().map(|(state, count)| (format!("state=\"{state}\""), count));
        page.family("previews", "gauge", "Previews of this host, by how they are.", by_state);
        page.one("preview_ports_used", "gauge", "Ports that previews hold.", ports_used);
        page.one("preview_ports", "gauge", "Ports that previews may have.", ports);
    }

    fn held(&self) -> MutexGuard<'_, BTreeMap<Uuid, Held>> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

struct Page(String);

impl Page {
    fn one(&mut self, name: &str, kind: &str, help: &str, value: u64) {
        self.family(name, kind, help, [(String::new(), value)]);
    }

    fn family(&mut self, name: &str, kind: &str, help: &str, values: impl IntoIterator<Item = (String, u64)>) {
        let name = format!("callboard_worker_{name}");
        // Writing to a string can't fail.
        writeln!(self.0, "# HELP {name} {help}\n# TYPE {name} {kind}").ok();
        for (labels, value) in values {
            let labels = if labels.is_empty() { labels } else { format!("{{{labels}}}") };
            writeln!(self.0, "{name}{labels} {value}").ok();
        }
    }
}

#[cfg(test)]
#[path = "metrics_tests.rs"]
mod tests;
