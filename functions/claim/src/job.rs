//! A claimed build as its worker receives it.

use edge::{Rejection, Shell, WorkerToken, trace};
use protocol::worker::{Job, Secret};
use std::time::Duration;
use store::builds::{self, Standing};
use store::claims::Taken;
use uuid::Uuid;

/// Why a claimed build has no job: how it ended.
pub(crate) async fn ended(shell: &Shell, token: &WorkerToken, build: Uuid) -> Result<Rejection, Rejection> {
    Ok(match builds::standing(&shell.store, build, token.parts()).await? {
        Standing::Unauthorized => Rejection::Unauthorized,
        Standing::NotFound => Rejection::NotFound,
        Standing::Held { held, .. } => Rejection::ended(held.status, held.end_reason),
    })
}

/// The job of a build that the token `claimed_by` holds. Nothing here may fail: the build is claimed. A secret that can't be opened is
/// left out, and the logs say so. From here on the request's log lines belong to the build's trace.
pub(crate) fn made_of(shell: &Shell, claimed_by: &str, taken: Taken) -> Job {
    let Taken { build, workspace, spec, .. } = taken;
    spec.traceparent.into_iter().for_each(trace::note);
    let mut opened = shell.open(workspace, taken.sealed);
    let clone_secret = spec.clone_secret.and_then(|name| opened.get(&name).cloned());
    let registry_secrets = Shell::by_registry(spec.registry_secrets, &opened);
    opened.retain(|name, _| spec.secrets.contains(name));
    let (on_cancel, steps) = spec.steps.into_iter().partition(|step| step.on_cancel);
    let timing = &shell.config.timing;
    Job {
        build_id: build,
        repository: spec.repository,
        git_ref: spec.git_ref,
        commit: spec.commit_sha,
        submodules: spec.submodules,
        steps,
        on_cancel,
        env: spec.env,
        secrets: opened,
        clone_secret,
        registry_secrets,
        log_token: Secret(shell.seal.log_token(build, claimed_by)),
        lease_ttl_ms: ms(timing.lease),
        lease_grace_ms: ms(timing.lease_grace),
        heartbeat_every_ms: ms(timing.heartbeat_every),
        deadline_in_ms: u64::try_from(taken.deadline_in_ms).unwrap_or(0),
        max_duration_seconds: u32::try_from(taken.max_duration_seconds).unwrap_or(0),
        log: shell.config.log,
        preview: spec.preview,
        traceparent: spec.traceparent,
    }
}

fn ms(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}
