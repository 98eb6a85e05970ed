//! The build, from its job to its report: lets the rooms in, runs its course, ships its log.

use super::End;
use super::door::Door;
use super::fetch::Fetched;
use super::report::{Reporter, outcome};
use super::rooms::{NO_NETWORK, Rooms};
use super::settings::Settings;
use super::told::Told;
use super::volumes;
use crate::api::Api;
use crate::clock::{Boot, millis, sleep_until};
use crate::clone;
use crate::course::{Course, Covered, none_yet};
use crate::isolation::StartError;
use crate::lease::Lease;
use crate::logs::{Alive, Journal, Shipped, Sink, ship};
use crate::mask::Masks;
use crate::metrics::Metrics;
use crate::network::WayOut;
use crate::outcome::Fail;
use crate::site::Site;
use crate::stop::{Stop, Why};
use crate::task::not_started;
use protocol::build::StepResult;
use protocol::pipeline::Network;
use protocol::runner::{Outcome, Report};
use protocol::worker::Job;
use std::sync::Arc;
use std::time::Duration;
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::{sleep, timeout};
use tracing::info;
use uuid::Uuid;

/// How long a cancelled build may tidy up in all.
const TIDY_MAX: Duration = Duration::from_secs(60);
/// How long a runner that is told to stop still tries to send the log once the steps have ended.
const LAST_WORDS: Duration = Duration::from_secs(5);

/// One build that a runner has.
pub(super) struct Build {
    settings: Settings,
    api: Arc<Api>,
    fetch_id: Uuid,
    job: Job,
    lease: Arc<Lease>,
    alive: Arc<Alive>,
    stop: Stop,
    told: Told,
}

impl Build {
    pub(super) fn new(settings: Settings, api: Api, fetch_id: Uuid, fetched: Fetched, told: Told) -> Self {
        let Fetched { job, sent_at, claimed_at } = fetched;
        let mut lease = Lease::new(&job, sent_at, settings.grace);
        // What the log says is counted from the claim; when all must end, from what the board was asked last.
        lease.sent_at = claimed_at;
        let lease = Arc::new(lease);
        let alive = Alive::new(Arc::clone(&lease), sent_at, settings.lease_ttl_ms, settings.every * 4 / 5);
        let api = Arc::new(api.traced(job.traceparent));
        let (alive, stop) = (Arc::new(alive), Stop::default());
        Self { settings, api, fetch_id, job, lease, alive, stop, told }
    }

    /// Runs it.
    pub(super) async fn run(self, site: Site, door: Door) -> End {
        let journal = match Journal::new(self.job.log, &site.directory) {
            Ok(journal) => Arc::new(journal),
            Err(error) => return self.without_a_log(&Fail::Internal(format!("no place for the log: {error}"))).await,
        };
        let mut watching = JoinSet::new();
        watching.spawn(ask_at(Arc::clone(&self.lease), Lease::deadline_at, self.stop.clone(), Why::Deadline));
        watching.spawn(ask_at(Arc::clone(&self.lease), Lease::fence_at, self.stop.clone(), Why::Fenced));
        watching.spawn(self.told.clone().heed(Arc::clone(&self.alive), self.stop.clone()));
        let shipping = self.ship(&journal);
        let masks = Arc::new(self.masks());
        let sink = Sink {
            journal: Arc::clone(&journal),
            masks: Arc::clone(&masks),
            lease: Arc::clone(&self.lease),
            step: "clone".into(),
        };
        let mut covered = Covered { steps: none_yet(&self.job), ..Covered::default() };
        let ended = self.course(&site, door, sink, &mut covered).await;
        let tidied = covered.ended_at.map(|ended_at| Boot::now().since(ended_at));
        journal.finish();
        let logs_lost = self.logs_lost(shipping).await;
        let tidied_ms = tidied.filter(|_| self.tidies(&ended, &covered)).map(millis);
        let report = Report {
            commit: covered.commit,
            last_seq: journal.last_seq(),
            logs_lost,
            tidied_ms,
            ..success(&covered.steps)
        };
        self.report(ended.as_ref().err(), report, &masks).await
    }

    fn ship(&self, journal: &Arc<Journal>) -> JoinHandle<Shipped> {
        let (api, token, alive) = (Arc::clone(&self.api), self.settings.log_token.0.clone(), Arc::clone(&self.alive));
        let (stop, metrics) = (self.stop.clone(), Arc::new(Metrics::default()));
        tokio::spawn(ship(api, self.job.build_id, token, Arc::clone(journal), stop, metrics, Some(alive)))
    }

    fn masks(&self) -> Masks {
        let secrets = self.job.secrets.values().map(|secret| secret.0.as_str());
        Masks::new(secrets.chain(clone::secrets(&self.job)))
    }

    async fn course(&self, site: &Site, door: Door, sink: Sink, covered: &mut Covered) -> Result<(), Fail> {
        let rooms = match self.rooms(door).await {
            Ok(rooms) => rooms,
            Err(fail) => {
                sink.say(&fail.message());
                return Err(fail);
            }
        };
        let Self { settings, job, lease, stop, .. } = self;
        let (limits, grace, way_out) = (settings.limits, settings.grace, &WayOut { sandboxes: None, containers: None });
        let course = Course { job, site, slot: 0, isolation: &rooms, lease, stop, way_out, limits, grace, sink };
        let ended = course.run(covered).await;
        covered.ended_at = Some(Boot::now());
        if let (true, Some(commit)) = (self.tidies(&ended, covered), &covered.commit) {
            self.tidy(course, commit).await;
        }
        rooms.dismiss().await;
        ended
    }

    /// All rooms, once they are there; nothing of the build's has begun before.
    async fn rooms(&self, door: Door) -> Result<Rooms, Fail> {
        let steps = self.job.steps.iter().chain(&self.job.on_cancel);
        if let Some(step) = steps.clone().find(|step| step.network == Network::None) {
            return Err(not_started(StartError::Image(format!("step {:?}: {NO_NETWORK}", step.name))));
        }
        let there_are = self.settings.rooms;
        if self.job.steps.len() > usize::from(there_are) {
            let steps = self.job.steps.len();
            return Err(Fail::NeverStarted(format!(
                "the task has containers for {there_are} steps, the build has {steps}"
            )));
        }
        let within = self.settings.rooms_within;
        tokio::select! {
            biased;
            why = self.stop.asked() => Err(Fail::Stopped(why)),
            rooms = timeout(within, door.all(there_are)) => match rooms {
                Ok(rooms) => {
                    volumes::empty(&self.settings.place.workspace, there_are);
                    Ok(Rooms::new(self.settings.place.clone(), rooms))
                }
                Err(_) => Err(Fail::NeverStarted(format!("not all containers were there after {} s", within.as_secs()))),
            },
        }
    }

    /// Whether it is a build that was cancelled once its source was there, and wants to tidy up.
    fn tidies(&self, ended: &Result<(), Fail>, covered: &Covered) -> bool {
        matches!(ended, Err(Fail::Stopped(Why::Cancel(_))))
            && covered.commit.is_some()
            && !self.job.on_cancel.is_empty()
    }

    /// Not for ever, and not once the build is lost.
    async fn tidy(&self, course: Course<'_>, commit: &str) {
        let stop = Stop::default();
        let ending = async {
            tokio::select! {
                () = sleep(TIDY_MAX) => stop.ask(Why::Deadline),
                () = self.stop.is_lost() => stop.ask(Why::Lost),
            }
            std::future::pending::<()>().await;
        };
        let course = Course { stop: &stop, ..course };
        tokio::select! {
            () = course.tidy(commit) => {}
            () = ending => {}
        }
    }

    /// Waits for the log's last chunk, but not for ever.
    async fn logs_lost(&self, mut shipping: JoinHandle<Shipped>) -> bool {
        let last_words = async {
            self.told.stop().await;
            sleep(LAST_WORDS).await;
        };
        let shipped = tokio::select! {
            shipped = timeout(self.settings.grace.logs, &mut shipping) => shipped.ok(),
            () = last_words => None,
            () = self.is_over() => None,
        };
        if shipped.is_none() {
            shipping.abort();
        }
        !matches!(shipped, Some(Ok(Shipped::All)))
    }

    /// Waits until nobody waits for this build any more.
    async fn is_over(&self) {
        tokio::select! {
            () = self.stop.is_lost() => {}
            () = sleep_until(|| self.lease.over_at()) => {}
        }
    }

    async fn without_a_log(&self, fail: &Fail) -> End {
        let report = Report { logs_lost: true, ..success(&none_yet(&self.job)) };
        self.report(Some(fail), report, &Arc::new(self.masks())).await
    }

    async fn report(&self, fail: Option<&Fail>, report: Report, masks: &Arc<Masks>) -> End {
        let Some(report) = outcome(fail, report, |message| masks.text(message)) else {
            return End::Lost;
        };
        if let Some(Fail::Stopped(Why::Fenced)) = fail {
            return End::Lost;
        }
        info!(build.id = %self.job.build_id, outcome = ?report.outcome, "reporting how the build went");
        let (api, log_token) = (self.api.as_ref(), self.settings.log_token.0.as_str());
        let reporter = Reporter { api, build: self.job.build_id, log_token, fetch_id: self.fetch_id };
        tokio::select! {
            end = reporter.post(&report) => end,
            () = self.is_over() => End::Lost,
        }
    }
}

/// The report of a build that went well, as far as its steps tell.
pub(super) fn success(steps: &[StepResult]) -> Report {
    Report {
        outcome: Outcome::Success,
        end_reason: None,
        error_message: None,
        commit: None,
        steps: steps.to_vec(),
        last_seq: 0,
        logs_lost: false,
        tidied_ms: None,
    }
}

/// Asks for the build's end once an instant has come, which may move.
async fn ask_at(lease: Arc<Lease>, at: fn(&Lease) -> Boot, stop: Stop, why: Why) {
    sleep_until(|| at(&lease)).await;
    stop.ask(why);
}
