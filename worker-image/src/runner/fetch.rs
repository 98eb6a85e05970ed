//! Fetches the job. It is given to one runner, so that a number that is told to nobody else says which one this is.

use super::settings::Settings;
use crate::api::{Api, Failure};
use crate::backoff::Backoff;
use crate::clock::Boot;
use protocol::runner::RunnerJob;
use protocol::worker::{Job, Secret};
use std::collections::BTreeMap;
use std::time::Duration;
use tokio::time::sleep;
use tracing::warn;
use uuid::Uuid;

/// A job that was fetched.
pub(super) struct Fetched {
    /// What to run.
    pub(super) job: Job,
    /// When it had been asked for.
    pub(super) sent_at: Boot,
    /// When the build was claimed.
    pub(super) claimed_at: Boot,
}

/// Fetches the job, however often that takes; of an answer that is lost nobody here knows but that it did not come.
///
/// # Errors
///
/// Why the board does not give it.
pub(super) async fn fetch(api: &Api, settings: &Settings, id: Uuid) -> Result<Fetched, String> {
    let mut backoff = Backoff::new(Duration::from_millis(250), Duration::from_secs(5));
    loop {
        let sent_at = Boot::now();
        match api.job(settings.build, &settings.log_token.0, id).await {
            Ok(job) => return Ok(fetched(job, settings, sent_at)),
            Err(Failure::Again { after, why }) => {
                warn!(build.id = %settings.build, why, "no job yet");
                sleep(backoff.next_wait(after)).await;
            }
            Err(Failure::NotOurs { code }) => return Err(code.as_str().into()),
            Err(Failure::Refused { code, detail }) => return Err(format!("{}: {detail}", code.as_str())),
            Err(Failure::Resync { .. }) => return Err("an answer to another call".into()),
        }
    }
}

fn fetched(job: RunnerJob, settings: &Settings, sent_at: Boot) -> Fetched {
    let ago = (u64::from(job.max_duration_seconds) * 1000).saturating_sub(job.deadline_in_ms);
    Fetched { job: whole(job, settings), sent_at, claimed_at: Boot(sent_at.0.saturating_sub(ago)) }
}

/// The worker's job again, as far as a runner has it.
fn whole(job: RunnerJob, settings: &Settings) -> Job {
    Job {
        build_id: job.build_id,
        repository: job.repository,
        git_ref: job.git_ref,
        commit: job.commit,
        submodules: job.submodules,
        steps: job.steps,
        on_cancel: job.on_cancel,
        env: job.env,
        secrets: job.secrets,
        clone_secret: job.clone_secret,
        registry_secrets: BTreeMap::new(),
        log_token: Secret(settings.log_token.0.clone()),
        lease_ttl_ms: settings.lease_ttl_ms,
        lease_grace_ms: settings.lease_grace_ms,
        heartbeat_every_ms: u64::try_from(settings.every.as_millis()).unwrap_or(u64::MAX),
        deadline_in_ms: job.deadline_in_ms,
        max_duration_seconds: job.max_duration_seconds,
        log: job.log,
        traceparent: job.traceparent,
        preview: None,
    }
}
