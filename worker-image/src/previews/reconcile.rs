//! Makes this host's previews what the board says, and tells the board how they are: in rounds, on a thread and a connection of its
//! own. A round that is late, doubled or answered late does no harm: the board takes only reports of rows as they are, and what is
//! done about a preview is done one thing at a time.

use super::round::{Host, Round};
use super::users::Users;
use crate::api::{Api, Failure};
use crate::backoff::{Backoff, jittered};
use crate::config::Config;
use crate::run::Shop;
use protocol::preview::PreviewOrders;
use std::io;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;
use tokio::time::{sleep, timeout};
use tokio_util::sync::CancellationToken;
use tracing::{error, warn};

/// The first and the longest wait for a board that does not answer.
const AGAIN: (Duration, Duration) = (Duration::from_millis(500), Duration::from_secs(30));
/// What has changed shortly after something else is told with it. A start waits for it twice.
const SETTLED: Duration = Duration::from_millis(5);
/// The shortest time between two rounds in which nothing has changed.
const EVERY_MIN: Duration = Duration::from_millis(20);

/// After so many rounds in a row in which nothing was to be done, nothing will be: one tells the versions, one is told what follows
/// from them.
const QUIET_ROUNDS: u32 = 3;

/// How long a worker that is stopped still tries to tell the board what it has ended.
const LAST_WORDS: Duration = Duration::from_secs(3);

/// Goes on as long as this lives.
#[derive(Debug)]
pub struct Reconciling {
    until: CancellationToken,
    thread: Option<JoinHandle<()>>,
}

impl Reconciling {
    /// Ends it, with all previews if they end with the worker.
    pub async fn end(mut self) {
        self.until.cancel();
        if let Some(thread) = self.thread.take() {
            tokio::task::spawn_blocking(move || thread.join().ok()).await.ok();
        }
    }
}

impl Drop for Reconciling {
    fn drop(&mut self) {
        self.until.cancel();
    }
}

/// Begins.
///
/// # Errors
///
/// If there is no thread or no connection to be had, or the builds root can't be read.
pub fn start(shop: &Arc<Shop>, host_id: &str) -> anyhow::Result<Reconciling> {
    let (api, until) = (Api::new(&shop.config)?, CancellationToken::new());
    let host = Host::new(shop, host_id)?;
    let told = until.clone();
    let thread = std::thread::Builder::new().name("previews".into()).spawn(move || {
        if let Err(error) = thread(&api, host, &told) {
            error!(%error, "previews are not seen to any more");
        }
    })?;
    Ok(Reconciling { until, thread: Some(thread) })
}

fn thread(api: &Api, host: Host, until: &CancellationToken) -> io::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let mut round = Round::new(host);
        until.run_until_cancelled(go_on(api, &mut round)).await;
        if round.leave().await {
            // The board hears it, if it is there.
            timeout(LAST_WORDS, once(api, &mut round)).await.ok();
        }
    });
    // What is being done goes on with the next start.
    runtime.shutdown_background();
    Ok(())
}

async fn go_on(api: &Api, round: &mut Round) {
    let mut backoff = Backoff::new(AGAIN.0, AGAIN.1);
    loop {
        let wait = match once(api, round).await {
            Ok(every) => {
                backoff.reset();
                jittered(every)
            }
            Err(failure) => failed(&failure, &mut backoff),
        };
        tokio::select! {
            () = sleep(wait) => {}
            () = round.changed() => sleep(SETTLED).await,
        }
    }
}

/// One call after the other until all that this host holds was told; how long until the next round.
pub(super) async fn once(api: &Api, round: &mut Round) -> Result<Duration, Failure> {
    let mut every = Duration::MAX;
    for sync in round.syncs().await {
        let PreviewOrders { previews, sync_every_ms } = api.previews(&sync).await?;
        round.obey(previews);
        every = every.min(Duration::from_millis(sync_every_ms));
    }
    Ok(every.max(EVERY_MIN))
}

/// Ends what is not as it should be, and tells the board, for as long as `patience`; starts nothing. Returns once nothing is left
/// to do, and says whether that is so; at once where the board refuses to tell what there is, since asking again does not mend that.
///
/// # Errors
///
/// If there is no connection to be had, or the builds root can't be read.
pub async fn recover(config: Config, host_id: &str, patience: Duration) -> anyhow::Result<bool> {
    let (api, users) = (Api::new(&config)?, Arc::new(Users::of(&config.place.builds_root)?));
    let mut round = Round::new(Host::recovering(config, users, host_id.to_owned())?);
    Ok(timeout(patience, until_quiet(&api, &mut round)).await.unwrap_or(false))
}

/// An order that was just heard may be to do something: there is a last round in which nothing is done. Says whether it came to it.
async fn until_quiet(api: &Api, round: &mut Round) -> bool {
    let mut backoff = Backoff::new(AGAIN.0, AGAIN.1);
    let mut quiet = 0;
    while quiet < QUIET_ROUNDS {
        if let Err(failure) = once(api, round).await {
            let wait = failed(&failure, &mut backoff);
            if !matches!(failure, Failure::Again { .. }) {
                return false;
            }
            sleep(wait).await;
            continue;
        }
        quiet = if round.is_busy() { 0 } else { quiet + 1 };
        while round.is_busy() {
            round.changed().await;
        }
    }
    true
}

fn failed(failure: &Failure, backoff: &mut Backoff) -> Duration {
    match failure {
        Failure::Again { after, why } => {
            warn!(why, "no answer to a sync of previews");
            backoff.next_wait(*after)
        }
        Failure::NotOurs { .. } | Failure::Resync { .. } | Failure::Refused { .. } => {
            error!(?failure, "the board refused a sync of previews; those that run go on");
            backoff.next_wait(Some(AGAIN.1))
        }
    }
}
