//! The whole life of `callboard-worker run`: make ready, recover, prove that a sandbox works, claim until told to stop.

use crate::api::Api;
use crate::config::Config;
use crate::descriptors;
use crate::exposed;
use crate::isolation::{Unusable, choose, end_containers, tasks};
use crate::metrics::{Metrics, Standing};
use crate::poll::{self, GaveUp, Phase, free_bytes};
use crate::previews::{self, Users, folder};
use crate::recovery::Left;
use crate::remains::{AGAIN_AFTER, Remains};
use crate::run::Shop;
use crate::site::Record;
use crate::stdin;
use crate::strays;
use crate::workplace::{Unfit, Workplace};
use anyhow::{Context as _, anyhow};
use protocol::worker::WorkerInfo;
use std::future::pending;
use std::sync::Arc;
use std::time::Duration;
use thiserror::Error;
use tokio::net::TcpListener;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::{oneshot, watch};
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};
use tracing::{info, warn};
use uuid::Uuid;

/// How long recovery may keep a worker from its first claim.
const RECOVERY_FIRST: Duration = Duration::from_secs(10);

/// How long `recover` tries to report an end to a board that does not answer.
const REPORT_PATIENCE: Duration = Duration::from_secs(60);

/// Why a worker ended otherwise than it was told to.
#[derive(Debug, Error)]
pub enum Failed {
    /// No sandbox works here: exit code 69.
    #[error("no build can run here: {0}; see `callboard-worker doctor`")]
    NoSandbox(String),
    /// This host gives less than the operator accepts: exit code 69.
    #[error("{0}; `callboard-worker doctor` tries it again")]
    NotEnforced(String),
    /// The builds root is not fit: exit code 73, or 75 if another worker has it.
    #[error(transparent)]
    Unfit(#[from] Unfit),
    /// The board does not let it in (77), or its host is at fault (70).
    #[error(transparent)]
    GaveUp(#[from] GaveUp),
    /// This process may not open enough for its slots: exit code 71.
    #[error("{0}; set it with {fix}", fix = descriptors::fix(*.1))]
    Limit(String, u32),
    /// The board could not be told of all ends: exit code 76.
    #[error(
        "the ends of {0} builds could not be reported, see the warnings above; the worker's next start tells the board, or \
         `callboard-worker recover`"
    )]
    Unreported(usize),
    /// What it is told lacks something, or can't be: exit code 78.
    #[error(transparent)]
    Settings(anyhow::Error),
    /// Anything else: exit code 1.
    #[error(transparent)]
    Other(#[from] anyhow::Error),
}

impl From<Unusable> for Failed {
    fn from(unusable: Unusable) -> Self {
        match unusable {
            Unusable::Broken(why) => Self::NoSandbox(why),
            Unusable::NotEnforced(why) => Self::NotEnforced(why),
        }
    }
}

impl Failed {
    /// The exit code, as `sysexits.h` has it.
    #[must_use]
    pub fn exit_code(&self) -> u8 {
        match self {
            Self::NoSandbox(_) | Self::NotEnforced(_) => 69,
            Self::Unfit(Unfit::Taken(_)) => 75,
            Self::Unfit(Unfit::Closed { .. } | Unfit::Unusable(..)) => 73,
            Self::GaveUp(GaveUp::TokenRefused) => 77,
            Self::GaveUp(GaveUp::Unhealthy(_)) => 70,
            Self::Limit(..) => 71,
            Self::Unreported(_) => 76,
            Self::Settings(_) => 78,
            Self::Other(_) => 1,
        }
    }
}

/// Runs a worker until `phase` tells it to drain and its last build has ended.
///
/// # Errors
///
/// Why it ended otherwise.
pub async fn run(config: Config, phase: watch::Receiver<Phase>) -> Result<(), Failed> {
    let workplace = Workplace::take(&config.place)?;
    let api = Arc::new(Api::new(&config)?);
    let (metrics, mut exposing) = (Arc::new(Metrics::default()), JoinSet::new());
    expose(&config, &metrics, &mut exposing).await?;
    let host_id = workplace.host_id(config.host_id_file.as_deref()).context("this host's number")?;
    let (remains, mut beside) = (Arc::new(Remains::default()), JoinSet::new());
    if !recover_first(&config, &api, &workplace, &remains, &mut beside, phase.clone()).await? {
        return all_reported(&workplace);
    }
    let isolation = choose(&config, &host_id).await?;
    metrics.works_in(isolation.name());
    let info = WorkerInfo {
        name: config.name.clone(),
        version: env!("CARGO_PKG_VERSION").into(),
        host_id,
        isolation: isolation.names().into_iter().map(str::to_owned).collect(),
        labels: config.labels.clone(),
    };
    let users = Arc::new(Users::of(&config.place.builds_root).context("the builds that are kept for previews")?);
    let shop = Arc::new(Shop { config, api, isolation, remains, metrics, users, token_refused: Arc::default() });
    let reconciling = previews::start(&shop, &info.host_id).context("previews")?;
    info!(worker.name = info.name, slots = shop.config.slots, url = shop.config.api_url, "worker ready");
    let ended = poll::poll(shop, info, phase).await;
    reconciling.end().await;
    ended?;
    all_reported(&workplace)
}

/// Whether the board knows the ends of all builds that were here: of one that it does not, the record stays.
fn all_reported(workplace: &Workplace) -> Result<(), Failed> {
    let recorded = |build: &Uuid| Record::read(&workplace.root.join(build.to_string())).is_some();
    let builds = workplace.builds().context("the builds root can't be read")?;
    match builds.iter().filter(|build| recorded(build)).count() {
        0 => Ok(()),
        unreported => Err(Failed::Unreported(unreported)),
    }
}

/// Serves metrics, if that is asked for, as long as `exposing` lives.
async fn expose(config: &Config, metrics: &Arc<Metrics>, exposing: &mut JoinSet<()>) -> anyhow::Result<()> {
    let Some(address) = config.metrics_addr else {
        return Ok(());
    };
    let wrong = || format!("metrics can't be served on {address}; choose another --metrics-addr");
    let listener = TcpListener::bind(address).await.with_context(wrong)?;
    let (slots, root) = (config.slots, config.place.builds_root.clone());
    let standing = move || Standing { slots, free_bytes: free_bytes(&root).ok() };
    exposing.spawn(exposed::serve(listener, Arc::clone(metrics), Arc::new(standing)));
    Ok(())
}

/// Ends what an earlier worker left behind, for a while; what takes longer goes on `beside` the claims. Says whether there is
/// to be any claim: a worker that is told to drain has nothing else to wait for, and leaves the rest to the next start.
async fn recover_first(
    config: &Config,
    api: &Arc<Api>,
    workplace: &Workplace,
    remains: &Arc<Remains>,
    beside: &mut JoinSet<()>,
    mut phase: watch::Receiver<Phase>,
) -> anyhow::Result<bool> {
    let told = async { phase.wait_for(|phase| *phase != Phase::Working).await.is_ok() };
    tokio::pin!(told);
    let left = tokio::select! {
        left = left_behind(config, workplace) => left.context("what an earlier worker left behind")?,
        true = &mut told => return Ok(false),
    };
    let (done, is_done) = oneshot::channel();
    let (api, place, remains) = (Arc::clone(api), config.place.clone(), Arc::clone(remains));
    let tasks = tasks(config).await;
    beside.spawn(async move {
        left.settle((&api, tasks.as_ref()), &place, &remains, None).await;
        done.send(()).ok();
        if let Some(tasks) = &tasks {
            strays::end(tasks, &api).await;
        }
        remains.try_again(AGAIN_AFTER).await;
    });
    tokio::select! {
        _ = is_done => Ok(true),
        true = &mut told => Ok(false),
        () = sleep(RECOVERY_FIRST) => {
            warn!("not all that an earlier worker left behind is seen to; that goes on beside new builds");
            Ok(true)
        }
    }
}

/// Ends the processes and the containers that an earlier worker left behind.
async fn left_behind(config: &Config, workplace: &Workplace) -> anyhow::Result<Left> {
    let left = Left::behind(&config.place, workplace).await?;
    // Those of previews are their keepers', or the next look's.
    let kept = folder::kept(&config.place.builds_root)?.into_iter().map(|folder| folder.build.to_string()).collect();
    end_containers(config, &workplace.host_id(config.host_id_file.as_deref())?, &kept).await;
    Ok(left)
}

/// Ends what an earlier worker left behind. Beside a live worker it does nothing, and that is no error.
///
/// # Errors
///
/// If the builds root is not fit, or something can't be ended.
pub async fn recover(config: Config) -> Result<(), Failed> {
    let workplace = match Workplace::take(&config.place) {
        Ok(workplace) => workplace,
        Err(Unfit::Taken(root)) => {
            info!(root = %root.display(), "a live worker has this builds root; nothing to recover");
            return Ok(());
        }
        Err(unfit) => return Err(unfit.into()),
    };
    let api = Api::new(&config)?;
    let left = left_behind(&config, &workplace).await.context("what an earlier worker left behind")?;
    let (tasks, remains) = (tasks(&config).await, Remains::default());
    let recovered = left.settle((&api, tasks.as_ref()), &config.place, &remains, Some(REPORT_PATIENCE)).await;
    if let Some(tasks) = &tasks
        && timeout(REPORT_PATIENCE, strays::end(tasks, &api)).await.is_err()
    {
        warn!("ECS or the board does not answer; tasks of builds that have ended are left to end by themselves");
    }
    let host_id = workplace.host_id(config.host_id_file.as_deref()).context("this host's number")?;
    if !previews::recover(config, &host_id, REPORT_PATIENCE).await? {
        warn!("not all previews could be seen to; the next start or recovery goes on");
    }
    info!(processes = recovered.processes, builds = recovered.builds, "recovered");
    match (recovered.unreported, recovered.stuck) {
        (0, 0) => Ok(()),
        (0, stuck) => Err(anyhow!("{stuck} directories of builds can't be removed; see the errors above").into()),
        (unreported, _) => Err(Failed::Unreported(unreported)),
    }
}

/// The first SIGTERM or SIGINT drains; a second, the end of `drain_timeout`, or, if it was asked for, the end of standard
/// input stops.
///
/// # Errors
///
/// If signals, or the end of standard input, can't be heard.
pub fn phases(drain_timeout: Duration, until_stdin_ends: bool) -> std::io::Result<watch::Receiver<Phase>> {
    let (mut term, mut int) = (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?);
    let (told, phase) = watch::channel(Phase::Working);
    let stdin_end = until_stdin_ends.then(stdin::end).transpose()?;
    tokio::spawn(async move {
        let alone = alone(stdin_end);
        tokio::pin!(alone);
        let drains = tokio::select! { _ = term.recv() => true, _ = int.recv() => true, () = &mut alone => false };
        if drains {
            info!("draining: no more claims, running builds go on; a second signal stops them");
            told.send(Phase::Draining).ok();
            tokio::select! {
                _ = term.recv() => {}
                _ = int.recv() => {}
                () = tokio::time::sleep(drain_timeout) => {}
                () = &mut alone => {}
            }
        }
        warn!("stopping the running builds");
        told.send(Phase::Stopping).ok();
        told.closed().await;
    });
    Ok(phase)
}

/// Comes when whoever started us is gone, as far as standard input tells; never, if that was not asked for.
async fn alone(stdin_end: Option<oneshot::Receiver<()>>) {
    match stdin_end {
        Some(end) => drop(end.await),
        None => pending().await,
    }
}
