//! One build from its claim to the acknowledged end: renews, runs, ships, reports, cleans up.

use crate::away::{self, Afar};
use crate::beat::{self, Beating};
use crate::clock::{Boot, millis, sleep_until};
use crate::complete::{self, Reported};
use crate::config::Config;
use crate::course::{Course, Covered};
use crate::equip::equip;
use crate::isolation::Isolation;
use crate::isolation::ecs::Ecs;
use crate::lease::Lease;
use crate::logs::{Journal, Shipped, Sink, ship};
use crate::mask::Masks;
use crate::metrics::{Holding, Metrics};
use crate::outcome::Fail;
use crate::poll::{self, Phase};
use crate::previews::{Users, folder::Folder};
use crate::remains::{Remains, clear_at_last};
use crate::site::{Record, Site};
use crate::stop::{Stop, Why};
use crate::{api::Api, clone};
use protocol::worker::{Complete, Job};
use protocol::{EndReason, Status};
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, OnceLock};
use std::time::Duration;
use tokio::sync::watch;
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::{Instant, sleep, sleep_until as sleep_until_instant, timeout};
use tracing::{Instrument as _, error, info, warn};

/// How long a cancelled build may tidy up in all.
const TIDY_MAX: Duration = Duration::from_secs(60);
/// How long a worker that is told to stop still tries to send a build's log and to report it once its steps have ended, in all.
const LAST_WORDS: Duration = Duration::from_secs(5);

/// How long it waits, besides the grace, for a task elsewhere to end and say so.
const LAST_WORDS_AFAR: Duration = Duration::from_secs(20);

/// What all builds of a worker share.
#[derive(Debug)]
pub struct Shop {
    /// How the worker is set up.
    pub config: Config,
    /// The control plane.
    pub api: Arc<Api>,
    /// The back end.
    pub isolation: Arc<dyn Isolation>,
    /// What could not be removed.
    pub remains: Arc<Remains>,
    /// What is counted.
    pub metrics: Arc<Metrics>,
    /// Whom builds with a preview run as.
    pub users: Arc<Users>,
    /// Whether the board refused our token since it last gave us a build.
    pub token_refused: Arc<AtomicBool>,
}

/// Whether the worker itself was up to it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Health {
    /// It was.
    Fine,
    /// The worker or its host is at fault, and how.
    Trouble(String),
    /// The board took no note of the build's end: the worker was stopped before, or its token refused. The next start tells it.
    Unreported,
}

/// Runs `job`, whose claim had been sent at `sent_at`, in `slot`.
pub async fn run(shop: &Shop, job: Job, sent_at: Boot, slot: u32, phase: watch::Receiver<Phase>) -> Health {
    let build = job.build_id;
    info!(build.id = %build, slot, "build claimed");
    let (stop, lease) = (Stop::default(), Arc::new(Lease::new(&job, sent_at, shop.config.grace)));
    let beating = beat::start(shop, &job, Arc::clone(&lease), stop.clone());
    let mut watching = JoinSet::new();
    watching.spawn(deadline(Arc::clone(&lease), stop.clone()));
    watching.spawn(shutdown(phase.clone(), stop.clone()));
    let holding = shop.metrics.hold(build, &lease);
    let user = if job.preview.is_some() { shop.users.begin(build) } else { slot };
    let (kept, silent_at) = (OnceLock::new(), OnceLock::new());
    let api = Arc::new(shop.api.traced(job.traceparent));
    let held = Held { shop, api, job: &job, slot: user, lease, stop, phase, holding, kept, silent_at };
    let health = match beating {
        Ok(beating) => held.work(beating).await,
        Err(error) => held.fail(&Fail::Internal(format!("no heartbeats: {error:#}"))).await,
    };
    if held.kept.get().is_none() {
        shop.users.release(build);
    }
    info!(build.id = %build, slot, healthy = health == Health::Fine, "slot free");
    health
}

async fn deadline(lease: Arc<Lease>, stop: Stop) {
    sleep_until(|| lease.deadline_at()).await;
    stop.ask(Why::Deadline);
}

async fn shutdown(phase: watch::Receiver<Phase>, stop: Stop) {
    poll::told_to_stop(&phase).await;
    stop.ask(Why::Shutdown);
}

struct Held<'a> {
    shop: &'a Shop,
    /// For calls about it.
    api: Arc<Api>,
    job: &'a Job,
    /// Its slot, or what stands for it.
    slot: u32,
    lease: Arc<Lease>,
    stop: Stop,
    phase: watch::Receiver<Phase>,
    holding: Holding,
    /// Set once its directory is its preview's.
    kept: OnceLock<()>,
    /// When the last words must have been said, once the worker is to stop.
    silent_at: OnceLock<Instant>,
}

impl Held<'_> {
    /// The report comes first, since removal takes as long as a build has files; meanwhile the slot is taken, so that there are
    /// never more directories on the disk than slots. What a crash leaves in between, the next start removes.
    async fn work(&self, beating: Beating) -> Health {
        let (place, record) = (&self.shop.config.place, Record::new(self.job, self.lease.sent_at));
        let site = match Site::make(place, self.job.build_id, self.slot, Some(&record)) {
            Ok(site) => site,
            Err(error) => return self.fail(&Fail::Internal(format!("no directory for the build: {error}"))).await,
        };
        let health = tokio::select! {
            health = self.through(&site) => health,
            never = site.note_renewals(&self.lease) => never,
        };
        drop(beating);
        if health != Health::Unreported {
            site.forget();
            self.let_go(&site).await;
        }
        health
    }

    /// Here, or in a task of its own.
    async fn through(&self, site: &Site) -> Health {
        if let Some(tasks) = self.shop.isolation.away() {
            return self.away(site, tasks).await;
        }
        match Journal::new(self.job.log, &site.directory) {
            Ok(journal) => self.with_log(site, Arc::new(journal)).await,
            Err(error) => self.fail(&Fail::Internal(format!("no place for the log: {error}"))).await,
        }
    }

    async fn away(&self, site: &Site, tasks: &Ecs) -> Health {
        let Self { shop, job, lease, stop, .. } = self;
        let Afar { ended, complete } = tokio::select! {
            afar = away::see_through(tasks, &self.api, (job, lease, stop), shop.config.grace.logs) => afar,
            () = self.too_late_afar() => away::never_started(Fail::Stopped(Why::Shutdown), lease.sent_at),
        };
        if ended.is_ok() {
            self.note_preview(site);
        }
        self.report(ended.as_ref().err(), complete, &Arc::new(self.masks())).await
    }

    /// The steps' grace is theirs also where they are not this host's to end; then the worker waits for no task any more, each of
    /// which has been told to stop.
    async fn too_late_afar(&self) {
        poll::told_to_stop(&self.phase).await;
        sleep(self.shop.config.grace.kill + LAST_WORDS_AFAR).await;
    }

    /// Leaves the build's directory to its preview, or removes it.
    async fn let_go(&self, site: &Site) {
        if self.kept.get().is_some() {
            return self.shop.users.keep(self.job.build_id);
        }
        tokio::select! {
            () = self.clear(site) => {}
            () = self.too_late() => {}
        }
    }

    /// Removes all that the build had.
    async fn clear(&self, site: &Site) {
        let build = self.job.build_id;
        if let Err(error) = self.shop.isolation.clear(&build.to_string()).await {
            warn!(build.id = %build, error, "a build's containers and volumes can't be removed; it is tried again");
            tokio::spawn(clear_at_last(Arc::clone(&self.shop.isolation), build.to_string()).in_current_span());
        }
        self.shop.remains.remove(&site.directory).await;
    }

    async fn with_log(&self, site: &Site, journal: Arc<Journal>) -> Health {
        let token = self.job.log_token.0.clone();
        let api = Arc::clone(&self.api);
        self.holding.logs(&journal);
        let (stop, metrics) = (self.stop.clone(), Arc::clone(&self.shop.metrics));
        let shipping = ship(api, self.job.build_id, token, Arc::clone(&journal), stop, metrics, None);
        let shipping = tokio::spawn(shipping.in_current_span());
        let (mut covered, masks) = (Covered::default(), Arc::new(self.masks()));
        let ended = self.course(site, &journal, &masks, &mut covered).await;
        if ended.is_ok() {
            self.note_preview(site);
        }
        let ran_ms = millis(covered.ended_at.unwrap_or_else(Boot::now).since(self.lease.sent_at));
        journal.finish();
        let logs_lost = self.logs_lost(shipping).await;
        let report = Complete {
            status: Status::Success,
            end_reason: None,
            error_message: None,
            commit: covered.commit,
            ran_ms,
            last_seq: journal.last_seq(),
            logs_lost,
            steps: covered.steps,
        };
        self.report(ended.as_ref().err(), report, &masks).await
    }

    /// Before the board makes the preview's row: whoever comes after us is to find the workspace.
    fn note_preview(&self, site: &Site) {
        let folder = Folder { build: self.job.build_id, site: site.directory.clone() };
        if self.job.preview.is_some()
            && let Err(error) = folder.make(self.slot)
        {
            error!(build.id = %self.job.build_id, %error, "the workspace can't be kept for its preview, which will be lost");
        }
    }

    async fn course(
        &self,
        site: &Site,
        journal: &Arc<Journal>,
        masks: &Arc<Masks>,
        covered: &mut Covered,
    ) -> Result<(), Fail> {
        let sink = Sink {
            journal: Arc::clone(journal),
            masks: Arc::clone(masks),
            lease: Arc::clone(&self.lease),
            step: "clone".into(),
        };
        let Self { shop, job, slot, lease, stop, .. } = self;
        let equipped = equip(&shop.config, shop.isolation.as_ref(), job, *slot, site, (&sink, stop)).await;
        let equipped = equipped.map_err(|error| Fail::NeverStarted(format!("it can't be equipped: {error}")))?;
        let (isolation, limits, grace) = (shop.isolation.as_ref(), shop.config.limits, shop.config.grace);
        let way_out = &equipped.way_out();
        let course = Course { job, site, slot: *slot, isolation, lease, stop, way_out, limits, grace, sink };
        let ended = course.run(covered).await;
        // What follows is ours, not the build's: it isn't charged.
        let ended_at = Boot::now();
        covered.ended_at = Some(ended_at);
        if let (Err(Fail::Stopped(Why::Cancel(_))), Some(commit), false) =
            (&ended, &covered.commit, job.on_cancel.is_empty())
        {
            if let Err(error) = site.note_steps_ended(ended_at) {
                warn!(build.id = %job.build_id, %error, "should this worker be killed now, its build is charged for tidying up");
            }
            self.tidy(course, commit).await;
        }
        equipped.end().await;
        ended
    }

    /// A cancelled build may tidy up, but not for ever, and not once it is lost or the worker stops.
    async fn tidy(&self, course: Course<'_>, commit: &str) {
        let stop = Stop::default();
        let ending = async {
            tokio::select! {
                () = sleep(TIDY_MAX) => stop.ask(Why::Deadline),
                () = self.stop.is_lost() => stop.ask(Why::Lost),
                () = poll::told_to_stop(&self.phase) => stop.ask(Why::Shutdown),
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
        let patience = self.shop.config.grace.logs;
        let shipped = tokio::select! {
            shipped = timeout(patience, &mut shipping) => shipped.ok(),
            () = self.too_late() => None,
        };
        if shipped.is_none() {
            shipping.abort();
        }
        !matches!(shipped, Some(Ok(Shipped::All)))
    }

    fn masks(&self) -> Masks {
        let secrets = self.job.secrets.values().map(|secret| secret.0.as_str());
        Masks::new(secrets.chain(clone::secrets(self.job)))
    }

    /// Reports a build that never got as far as a log.
    async fn fail(&self, fail: &Fail) -> Health {
        let report = Complete {
            status: Status::Failed,
            end_reason: Some(EndReason::Internal),
            error_message: None,
            commit: None,
            ran_ms: millis(Boot::now().since(self.lease.sent_at)),
            last_seq: 0,
            logs_lost: true,
            steps: Vec::new(),
        };
        self.report(Some(fail), report, &Arc::new(self.masks())).await
    }

    async fn report(&self, fail: Option<&Fail>, mut report: Complete, masks: &Arc<Masks>) -> Health {
        let build = self.job.build_id;
        // Once steps have run, what keeps the next from starting may be their doing; the host's own trouble shows in the next
        // build's clone.
        let ours = fail.filter(|fail| fail.is_ours() && report.commit.is_none());
        let health = ours.map_or(Health::Fine, |fail| Health::Trouble(masks.text(&fail.message())));
        if let Some(fail) = fail {
            let Some(outcome) = fail.outcome() else {
                return health;
            };
            report.status = outcome.status;
            report.end_reason = Some(outcome.reason);
            report.error_message = Some(masks.text(&outcome.message));
        }
        if self.stop.why() == Some(Why::Lost) {
            return health;
        }
        let reason = report.end_reason.map_or("", EndReason::as_str);
        info!(build.id = %build, build.status = %report.status, end_reason = reason, "reporting the end");
        let (status, end_reason) = (report.status, report.end_reason);
        tokio::select! {
            reported = complete::report(&self.api, build, report) => match reported {
                Reported::Yes => {
                    self.shop.metrics.ended(status, end_reason);
                    if status == Status::Success && self.job.preview.is_some() {
                        self.kept.get_or_init(|| ());
                    }
                    health
                }
                Reported::NotOurs => health,
                Reported::TokenRefused => Health::Unreported,
                Reported::Refused => Health::Trouble("the board refused the report of its end".into()),
            },
            () = self.too_late() => {
                error!(build.id = %build, "stopped before the end could be reported; the next start will do it");
                Health::Unreported
            }
        }
    }

    /// A worker that is told to stop does not wait for its board for ever. To be asked once the steps have ended: what comes after
    /// them shares one time.
    async fn too_late(&self) {
        poll::told_to_stop(&self.phase).await;
        sleep_until_instant(*self.silent_at.get_or_init(|| Instant::now() + LAST_WORDS)).await;
    }
}
