//! Renews the lease on one build, on a thread, a runtime and a connection of its own, so that nothing the build does
//! can delay it. Goes on until the end is acknowledged.

use crate::api::{Api, Failure};
use crate::backoff::{Backoff, jittered};
use crate::clock::Boot;
use crate::lease::Lease;
use crate::metrics::Metrics;
use crate::run::Shop;
use crate::stop::{Stop, Why};
use protocol::Code;
use protocol::worker::Job;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;
use tokio::time::sleep;
use tokio_util::sync::{CancellationToken, DropGuard};
use tracing::{Instrument as _, Span, debug, warn};
use uuid::Uuid;

/// How long a build must be at something for it to be told: short steps in a row are not a heartbeat each.
const SETTLED: Duration = Duration::from_secs(1);

/// Heartbeats go on as long as this lives.
#[derive(Debug)]
pub struct Beating {
    _until: DropGuard,
}

/// Begins to renew the lease on the build of `job`, each time it is at something new and at least as often as the job says.
///
/// # Errors
///
/// If there is no thread to be had.
pub fn start(shop: &Shop, job: &Job, lease: Arc<Lease>, stop: Stop) -> anyhow::Result<Beating> {
    let (api, until) = (Api::new(&shop.config)?.traced(job.traceparent), CancellationToken::new());
    let (metrics, every) = (Arc::clone(&shop.metrics), Duration::from_millis(job.heartbeat_every_ms.max(10)));
    let token_refused = Arc::clone(&shop.token_refused);
    let (build, span) = (job.build_id, Span::current());
    let beats = Beats { api, metrics, token_refused, build, lease, stop, every, span };
    let (until, guard) = (until.clone(), until.drop_guard());
    std::thread::Builder::new().name("heartbeat".into()).spawn(move || thread(&beats, &until))?;
    Ok(Beating { _until: guard })
}

fn thread(beats: &Beats, until: &CancellationToken) -> io::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(until.run_until_cancelled(beats.beat().instrument(beats.span.clone())));
    Ok(())
}

struct Beats {
    api: Api,
    metrics: Arc<Metrics>,
    token_refused: Arc<AtomicBool>,
    build: Uuid,
    lease: Arc<Lease>,
    stop: Stop,
    every: Duration,
    /// What its log lines stand in.
    span: Span,
}

impl Beats {
    /// After a failure the next try comes sooner: there is room for several before the fence.
    async fn beat(&self) {
        let mut backoff = Backoff::new(self.every / 8, self.every / 2);
        self.pause(jittered(self.every * 4 / 5)).await;
        loop {
            let sent_at = Boot::now();
            let wait = match self.api.heartbeat(self.build, &self.lease.heartbeat()).await {
                Ok(renewed) => {
                    debug!(build.id = %self.build, lease.ttl_ms = renewed.lease_ttl_ms, "lease renewed");
                    self.lease.renewed(sent_at, &renewed);
                    self.metrics.beat(true);
                    renewed.cancel.into_iter().for_each(|reason| self.stop.ask(Why::Cancel(reason)));
                    backoff.reset();
                    self.pause(jittered(self.every * 4 / 5)).await;
                    continue;
                }
                Err(Failure::NotOurs { code }) => {
                    warn!(build.id = %self.build, code = code.as_str(), "the build is not ours any more");
                    if code == Code::Unauthorized {
                        self.token_refused.store(true, Relaxed);
                    }
                    self.stop.ask(Why::Lost);
                    return;
                }
                Err(failure) => self.missed(&failure, &mut backoff),
            };
            sleep(wait).await;
        }
    }

    /// Waits for the next heartbeat's time, or until the build is at something new: people see that by heartbeats.
    async fn pause(&self, wait: Duration) {
        let news = async {
            self.lease.entered().await;
            sleep(SETTLED).await;
        };
        tokio::select! { () = sleep(wait) => {}, () = news => {} }
    }

    fn missed(&self, failure: &Failure, backoff: &mut Backoff) -> Duration {
        let (after, why) = match failure {
            Failure::Again { after, why } => (*after, why.clone()),
            Failure::Refused { code, detail } => (None, format!("{}: {detail}", code.as_str())),
            Failure::NotOurs { code } => (None, code.as_str().to_owned()),
            Failure::Resync { .. } => (None, "an answer to another call".to_owned()),
        };
        self.lease.missed();
        self.metrics.beat(false);
        warn!(build.id = %self.build, why, "lease not renewed");
        backoff.next_wait(after.map(|after| after.min(self.every)))
    }
}
