//! One round after the other: looks at what is here, says it, does what is told.

use super::call::Call;
use super::decide::{self, Busy, Deed, End, Found, Lost};
use super::end::end;
use super::exact::Root;
use super::folder::{self, Folder};
use super::hear::{Heard, listen};
use super::keeper::{Ask, Told};
use super::start;
use super::users::Users;
use crate::config::Config;
use crate::isolation::Isolation;
use crate::metrics::Metrics;
use crate::run::Shop;
use futures::future::join_all;
use protocol::preview::{PreviewOrder, PreviewReport, PreviewRun, PreviewSync, REPORTS_MAX};
use rules::preview::{Order, Seen};
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};
use uuid::Uuid;

/// How long it may take to hear that keepers are over which are.
const HEARD_PATIENCE: Duration = Duration::from_secs(2);
/// How many of those that rest are told in one round.
const RESTING_AT_A_TIME: usize = 100;

/// What rounds need to know of their host.
#[derive(Debug)]
pub(super) struct Host {
    config: Config,
    /// None: nothing is started.
    isolation: Option<Arc<dyn Isolation>>,
    users: Arc<Users>,
    id: String,
    root: Root,
    /// None: nobody asks.
    metrics: Option<Arc<Metrics>>,
}

impl Host {
    pub(super) fn new(shop: &Shop, id: &str) -> io::Result<Self> {
        Ok(Self {
            config: shop.config.clone(),
            isolation: Some(Arc::clone(&shop.isolation)),
            users: Arc::clone(&shop.users),
            id: id.to_owned(),
            root: Root::of(&shop.config.place.builds_root)?,
            metrics: Some(Arc::clone(&shop.metrics)),
        })
    }

    /// Of one that only recovers.
    pub(super) fn recovering(config: Config, users: Arc<Users>, id: String) -> io::Result<Self> {
        let root = Root::of(&config.place.builds_root)?;
        Ok(Self { config, isolation: None, users, id, root, metrics: None })
    }

    fn folder(&self, build: Uuid) -> Folder {
        Folder::of(&self.config.place.builds_root, build)
    }
}

/// What is remembered of a preview from one round to the next.
#[derive(Debug, Default)]
struct Known {
    version: Option<i64>,
    lives: Option<PreviewReport>,
    /// How it was lost if its keeper is gone.
    lost: Lost,
    busy: Option<(Busy, CancellationToken)>,
    /// Its directory was looked for and is not here.
    is_missing: bool,
    /// What could not be done, until it is.
    trouble: Option<String>,
    /// What of its log the board was told with which version, and what it is being told.
    told: Option<Tail>,
    telling: Option<Tail>,
}

/// A version, and the end of a log.
type Tail = (Option<i64>, Option<String>);

/// What was heard between rounds.
#[derive(Debug)]
enum News {
    /// A keeper was heard.
    Heard(Uuid, Heard),
    /// Something is done.
    Done(Uuid, Deed, Result<(), String>),
}

#[derive(Debug)]
pub(super) struct Round {
    host: Arc<Host>,
    known: BTreeMap<Uuid, Known>,
    tell: UnboundedSender<News>,
    news: UnboundedReceiver<News>,
    /// After which of those that rest the next round goes on.
    rested: Option<Uuid>,
}

impl Round {
    pub(super) fn new(host: Host) -> Self {
        let (tell, news) = unbounded_channel();
        Self { host: Arc::new(host), known: BTreeMap::new(), tell, news, rested: None }
    }

    /// Waits for something to tell. That a service wrote something waits for the next round.
    pub(super) async fn changed(&mut self) {
        let host = Arc::clone(&self.host);
        loop {
            tokio::select! {
                Some(news) = self.news.recv() => if self.take_in(news) { return },
                () = host.users.changed() => return,
            }
        }
    }

    /// Looks at what is here, does what is due, and says what is to be told.
    pub(super) async fn syncs(&mut self) -> Vec<PreviewSync> {
        while let Ok(news) = self.news.try_recv() {
            self.take_in(news);
        }
        self.look().await;
        let builds: Vec<Uuid> = self.known.keys().copied().collect();
        for build in &builds {
            if let Some(deed) = decide::due(&self.found(*build)) {
                self.begin(*build, deed, None);
            }
        }
        let reports: Vec<PreviewReport> = builds.into_iter().map(|build| self.report(build)).collect();
        if let Some(metrics) = &self.host.metrics {
            metrics.previews(&reports, self.host.config.previews.ports);
        }
        let reports = self.chosen(reports);
        let chosen: BTreeSet<Uuid> = reports.iter().map(|report| report.build_id).collect();
        let others = self.known.iter_mut().filter(|(build, _)| !chosen.contains(build));
        others.for_each(|(_, known)| known.telling = None);
        let sync = |previews: &[PreviewReport]| PreviewSync {
            host_id: self.host.id.clone(),
            ports: self.host.config.previews.ports,
            previews: previews.to_vec(),
        };
        if reports.is_empty() { vec![sync(&[])] } else { reports.chunks(REPORTS_MAX).map(sync).collect() }
    }

    /// Does what the board says.
    pub(super) fn obey(&mut self, orders: Vec<PreviewOrder>) {
        for PreviewOrder { build_id: build, order, version, run } in orders {
            if self.host.users.runs(build) {
                continue;
            }
            let known = self.known.entry(build).or_default();
            known.version = version;
            known.told = known.telling.take().or(known.told.take());
            known.is_missing = !self.host.folder(build).is_there();
            if known.is_missing {
                if order == Order::Forget {
                    self.known.remove(&build);
                }
                continue;
            }
            // A start that waits for an image is not waited for.
            if matches!(order, Order::Stop | Order::Destroy | Order::Forget)
                && let Some((Busy::Starts, enough)) = &known.busy
            {
                enough.cancel();
            }
            if let Some(deed) = decide::deed(order, &self.found(build)) {
                self.begin(build, deed, run);
            }
        }
    }

    /// Ends all that runs, if that ends with the worker; says whether it did.
    pub(super) async fn leave(&mut self) -> bool {
        let host = Arc::clone(&self.host);
        if !host.config.previews_end {
            return false;
        }
        self.look().await;
        let living = self.known.iter().filter(|(_, known)| known.lives.is_some()).map(|(build, _)| *build);
        let ends = living.map(async |build| {
            let (isolation, how) = (host.isolation.as_deref(), End::Lost(Lost::Left));
            if let Err(error) = end(&host.config, isolation, &host.root, &host.folder(build), how).await {
                warn!(build.id = %build, %error, "a preview can't be ended");
            }
        });
        join_all(ends).await;
        // What they last said is on its way: that they are over comes after it.
        let heard = async {
            while self.known.values().any(|known| known.lives.is_some()) {
                match self.news.recv().await {
                    Some(news) => self.take_in(news),
                    None => return,
                };
            }
        };
        timeout(HEARD_PATIENCE, heard).await.ok();
        true
    }

    /// Whether something is being done.
    pub(super) fn is_busy(&self) -> bool {
        self.known.values().any(|known| known.busy.is_some())
    }

    /// Finds what is kept, and the keepers that live and are not heard yet.
    async fn look(&mut self) {
        let kept = match folder::kept(&self.host.config.place.builds_root) {
            Ok(kept) => kept,
            Err(error) => return warn!(%error, "the builds root can't be read"),
        };
        let kept: BTreeSet<Uuid> =
            kept.into_iter().map(|folder| folder.build).filter(|build| !self.host.users.runs(*build)).collect();
        self.known.retain(|build, known| kept.contains(build) || known.is_missing || known.busy.is_some());
        let mut unheard = kept;
        unheard.retain(|build| {
            let known = self.known.entry(*build).or_default();
            known.lives.is_none() && known.busy.is_none()
        });
        // One that does not answer is waited for, and should keep nobody else waiting.
        let found = join_all(unheard.into_iter().map(|build| call(self.host.folder(build)))).await;
        for (folder, call, told) in found.into_iter().flatten() {
            self.hear(folder, call, told.report);
        }
    }

    /// Goes on to listen to a keeper that lives.
    fn hear(&mut self, folder: Folder, call: Call, report: PreviewReport) {
        let (build, tell) = (folder.build, self.tell.clone());
        let known = self.known.entry(build).or_default();
        (known.lives, known.lost) = (Some(report), Lost::Killed);
        listen(call, folder, self.host.config.previews.health_every, move |heard| {
            tell.send(News::Heard(build, heard)).ok();
        });
    }

    /// Says whether it is to be told at once.
    fn take_in(&mut self, news: News) -> bool {
        match news {
            News::Heard(build, heard) => {
                let without_log = |report: &PreviewReport| PreviewReport { log_tail: None, ..report.clone() };
                let known = self.known.entry(build).or_default();
                let (report, lost) = match heard {
                    Heard::Says(report) => (Some(report), Lost::Killed),
                    Heard::Over => (None, Lost::Killed),
                    Heard::Silent => (None, Lost::Silent),
                };
                known.lost = lost;
                let before = std::mem::replace(&mut known.lives, report);
                before.as_ref().map(without_log) != known.lives.as_ref().map(without_log)
            }
            News::Done(build, deed, done) => {
                self.done(build, deed, done);
                true
            }
        }
    }

    fn done(&mut self, build: Uuid, deed: Deed, done: Result<(), String>) {
        let known = self.known.entry(build).or_default();
        known.busy = None;
        known.trouble = done.err();
        match &known.trouble {
            Some(why) => warn!(build.id = %build, ?deed, why, "a preview is not as it should be; it is tried again"),
            None if deed == Deed::End(End::Forget) => {
                self.host.users.release(build);
                self.known.remove(&build);
                info!(build.id = %build, "preview forgotten, its build's directory removed");
            }
            None => info!(build.id = %build, ?deed, "preview"),
        }
    }

    fn found(&self, build: Uuid) -> Found {
        let known = self.known.get(&build);
        Found {
            said: self.host.folder(build).report(),
            lives: known.and_then(|known| known.lives.clone()),
            busy: known.and_then(|known| known.busy.as_ref()).map(|(busy, _)| *busy),
            lost: known.map(|known| known.lost).unwrap_or_default(),
        }
    }

    fn report(&mut self, build: Uuid) -> PreviewReport {
        let found = self.found(build);
        let known = self.known.entry(build).or_default();
        if known.is_missing {
            let message = Some("its build's directory is not on its host any more".into());
            return PreviewReport { version: known.version, message, ..folder::of(build, Seen::Destroyed) };
        }
        let report = decide::report(&found);
        let message = known.trouble.clone().filter(|_| report.state == Seen::Destroying).or(report.message);
        let tail = (known.version, report.log_tail);
        known.telling = Some(tail.clone()).filter(|_| known.told.as_ref() != Some(&tail));
        let log_tail = tail.1.filter(|_| known.telling.is_some());
        PreviewReport { version: known.version, message, log_tail, ..report }
    }

    /// All but those that rest, and of these as many as have their turn.
    fn chosen(&mut self, reports: Vec<PreviewReport>) -> Vec<PreviewReport> {
        let (resting, mut chosen): (Vec<_>, Vec<_>) = reports.into_iter().partition(decide::rests);
        let after = self.rested.take();
        let turn = resting.into_iter().filter(|report| after.is_none_or(|after| report.build_id > after));
        let turn: Vec<_> = turn.take(RESTING_AT_A_TIME).collect();
        self.rested = turn.last().filter(|_| turn.len() == RESTING_AT_A_TIME).map(|report| report.build_id);
        chosen.extend(turn);
        chosen
    }

    /// Begins to do something, beside the rounds.
    fn begin(&mut self, build: Uuid, deed: Deed, run: Option<PreviewRun>) {
        let (host, tell, enough) = (Arc::clone(&self.host), self.tell.clone(), CancellationToken::new());
        let busy = match deed {
            Deed::Start if host.isolation.is_none() || run.is_none() => return,
            Deed::Start => Busy::Starts,
            Deed::Rebind(_) => Busy::Starts,
            Deed::End(_) => Busy::Ends,
        };
        if let Deed::End(End::Lost(lost)) = deed {
            // Whatever becomes of the end, it has failed.
            let folder = host.folder(build);
            folder.say(&decide::failed(&folder.report(), lost)).ok();
        }
        self.known.entry(build).or_default().busy = Some((busy, enough.clone()));
        tokio::spawn(async move {
            let done = host.act(&host.folder(build), deed, run, enough).await;
            tell.send(News::Done(build, deed, done.map_err(|error| error.to_string()))).ok();
        });
    }
}

/// Calls the keeper of `folder`, if one lives.
async fn call(folder: Folder) -> Option<(Folder, Call, Told)> {
    if !matches!(folder.report().state, Seen::Starting | Seen::Running | Seen::Destroying) {
        return None;
    }
    let (call, told) = Call::to(&folder, Ask::Watch).await?;
    Some((folder, call, told))
}

impl Host {
    async fn act(
        &self,
        folder: &Folder,
        deed: Deed,
        run: Option<PreviewRun>,
        enough: CancellationToken,
    ) -> io::Result<()> {
        match deed {
            Deed::Start => match (&self.isolation, run) {
                (Some(isolation), Some(run)) => self.start(isolation.as_ref(), folder, run, enough).await,
                (_, _) => Ok(()),
            },
            Deed::Rebind(port) => {
                Call::to(folder, Ask::Rebind(port)).await;
                Ok(())
            }
            Deed::End(how) => end(&self.config, self.isolation.as_deref(), &self.root, folder, how).await,
        }
    }

    /// What can't be started has failed, which is on disk before anybody is told.
    async fn start(
        &self,
        isolation: &dyn Isolation,
        folder: &Folder,
        run: PreviewRun,
        enough: CancellationToken,
    ) -> io::Result<()> {
        let Some(Err(failed)) = enough.run_until_cancelled(start::start(&self.config, isolation, folder, run)).await
        else {
            return Ok(());
        };
        warn!(build.id = %folder.build, stage = %failed.stage, why = failed.why, "a preview can't be started");
        let message = Some(failed.why);
        folder.say(&PreviewReport { stage: Some(failed.stage), message, ..folder::of(folder.build, Seen::Failed) })
    }
}

#[cfg(test)]
#[path = "round_tests.rs"]
mod tests;
