//! Taking a build out of the queue (SPEC.md, Claim): one statement that decides under the workspace's lock and answers with
//! the job, so that nothing which can fail comes after the commit.

use crate::{Error, Store};
use protocol::pipeline::{Env, Step};
use protocol::worker::ClaimRequest;
use rules::Timing;
use serde::Deserialize;
use sqlx::types::Json;
use uuid::Uuid;

/// What a worker's claim came to.
#[derive(Debug)]
pub enum Claimed {
    /// The build is this worker's now, or was already by the same `claim_id`: its job.
    Build(Box<Taken>),
    /// This `claim_id` took it before, and it has ended.
    Ended(Uuid),
    /// No such worker token, or revoked.
    Unauthorized,
    /// The workspace's oldest build was admitted under other rules, or its pipeline is gone.
    Unverified {
        /// The build.
        build: Uuid,
        /// Its workspace.
        workspace: Uuid,
    },
    /// The workspace's month is spent.
    Exhausted(Uuid),
    /// Others hold what could be taken; wait for this workspace.
    Contended(Uuid),
    /// Nothing to do.
    Nothing,
}

/// Which workspaces and builds the caller has already decided on, in this claim.
#[derive(Clone, Debug, Default)]
pub struct Known {
    /// Builds found runnable.
    pub verified: Vec<Uuid>,
    /// Workspaces to leave alone.
    pub skip: Vec<Uuid>,
    /// A workspace to wait for.
    pub wait: Option<Uuid>,
}

/// Gives the worker the oldest build of the first eligible workspace.
///
/// # Errors
///
/// [`Error::Conflict`] if the same `claim_id` took another build at this moment: ask again to get that one.
pub async fn take(
    store: &Store,
    token: (&str, &[u8]),
    request: &ClaimRequest,
    timing: &Timing,
    known: &Known,
) -> Result<Claimed, Error> {
    let worker = &request.worker;
    fail::fail_point!("claim.asked");
    let row = sqlx::query!(
        r#"select outcome, build, workspace, max_seconds, deadline_in_ms, spec as "spec: Json<Spec>",
               sealed as "sealed: Json<Vec<Sealed>>"
           from claim_build($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14)"#,
        token.0,
        token.1,
        request.claim_id,
        ms(timing.lease),
        seconds(timing.deadline_max),
        rules::runnable::RULES_VERSION,
        &known.verified,
        &known.skip,
        known.wait,
        worker.name,
        worker.version,
        worker.host_id,
        &worker.isolation,
        &worker.labels,
    )
    .fetch_one(&store.pool)
    .await?;
    fail::fail_point!("claim.taken");
    let (build, workspace) = (row.build.unwrap_or_default(), row.workspace.unwrap_or_default());
    match row.outcome.as_deref() {
        Some("claimed" | "repeat") => Ok(Claimed::Build(Box::new(Taken {
            build,
            workspace,
            spec: row.spec.map(|spec| spec.0).ok_or_else(|| Error::Unreadable(format!("the spec of {build}")))?,
            max_duration_seconds: row.max_seconds.unwrap_or(0),
            deadline_in_ms: row.deadline_in_ms.unwrap_or(0),
            sealed: row.sealed.map(|sealed| sealed.0).unwrap_or_default(),
        }))),
        Some("ended") => Ok(Claimed::Ended(build)),
        Some("unauthorized") => Ok(Claimed::Unauthorized),
        Some("unverified") => Ok(Claimed::Unverified { build, workspace }),
        Some("exhausted") => Ok(Claimed::Exhausted(workspace)),
        Some("contended") => Ok(Claimed::Contended(workspace)),
        Some("none") => Ok(Claimed::Nothing),
        other => Err(Error::Unreadable(format!("claim_build's outcome {other:?}"))),
    }
}

/// What `rules::runnable` decides on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Facts {
    /// Whether the pipeline still exists.
    pub has_pipeline: bool,
    /// Where the source is.
    pub repository: String,
    /// What is to be built.
    pub git_ref: String,
}

/// Reads what decides whether a build can be run. `None` if it is gone.
///
/// # Errors
///
/// [`Error`] if the database fails.
pub async fn facts(store: &Store, build: Uuid) -> Result<Option<Facts>, Error> {
    Ok(sqlx::query_as!(
        Facts,
        r#"select p.id is not null as "has_pipeline!", s.repository as "repository!", s.git_ref as "git_ref!"
           from build_specs s left join pipelines p on p.id = s.pipeline_id where s.build_id = $1"#,
        build
    )
    .fetch_optional(&store.pool)
    .await?)
}

/// A build's job as it was claimed; secrets still sealed.
#[derive(Debug)]
pub struct Taken {
    /// The build.
    pub build: Uuid,
    /// Its workspace.
    pub workspace: Uuid,
    /// What it runs.
    pub spec: Spec,
    /// How long it may run in all, in seconds.
    pub max_duration_seconds: i32,
    /// How long until its deadline; 0 if that is past.
    pub deadline_in_ms: i64,
    /// The secrets among those named, as they are stored.
    pub sealed: Vec<Sealed>,
}

/// What a build runs: its row of `build_specs`, as JSON.
#[derive(Debug, Deserialize)]
pub struct Spec {
    /// Where its source is.
    pub repository: String,
    /// What is to be built.
    pub git_ref: String,
    /// The exact commit, where it is tried again.
    pub commit_sha: Option<String>,
    /// Whether the clone brings submodules.
    pub submodules: bool,
    /// What to run.
    pub steps: Vec<Step>,
    /// Variables of every step.
    pub env: Env,
    /// The names of the secrets that the steps see.
    pub secrets: Vec<String>,
    /// The name of the secret that the clone gets.
    pub clone_secret: Option<String>,
}

/// A secret as it is stored; bytes as hex digits.
#[derive(Debug, Deserialize)]
pub struct Sealed {
    /// Its name.
    pub name: String,
    /// The name of the key.
    pub key_id: String,
    /// What the cipher began with.
    pub nonce: String,
    /// The value and its tag.
    pub ciphertext: String,
}

pub(crate) fn ms(duration: std::time::Duration) -> i64 {
    i64::try_from(duration.as_millis()).unwrap_or(i64::MAX)
}

fn seconds(duration: std::time::Duration) -> i32 {
    i32::try_from(duration.as_millis().div_ceil(1000)).unwrap_or(i32::MAX)
}
