//! Taking a build out of the queue (SPEC.md, Claim): one statement that decides under the workspace's lock, and one that
//! reads the job.

use crate::{Error, Store};
use protocol::pipeline::{Env, Step};
use protocol::worker::ClaimRequest;
use rules::Timing;
use uuid::Uuid;

/// What a worker's claim came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Claimed {
    /// The build is this worker's now, or was already by the same `claim_id`.
    Build(Uuid),
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
        "select outcome, build, workspace from claim_build($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14)",
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
        Some("claimed" | "repeat") => Ok(Claimed::Build(build)),
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
    /// Its workspace.
    pub workspace: Uuid,
    /// Where its source is.
    pub repository: String,
    /// What is to be built.
    pub git_ref: String,
    /// The exact commit, where it is tried again.
    pub commit: Option<String>,
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
    /// How long it may run in all, in seconds.
    pub max_duration_seconds: i32,
    /// How long until its deadline; 0 if that is past.
    pub deadline_in_ms: i64,
    /// The sealed secrets among those named: name, key id, nonce, ciphertext.
    pub sealed: Vec<(String, String, Vec<u8>, Vec<u8>)>,
}

/// Reads the job of a claimed build. `None` if it no longer runs.
///
/// # Errors
///
/// [`Error`] if the database fails.
pub async fn job(store: &Store, build: Uuid) -> Result<Option<Taken>, Error> {
    let row = sqlx::query!(
        r#"select b.workspace_id, s.repository, s.git_ref, s.commit_sha, s.submodules, s.secrets, s.clone_secret,
               s.steps as "steps: sqlx::types::Json<Vec<Step>>", s.env as "env: sqlx::types::Json<Env>",
               b.max_duration_seconds as "max_duration_seconds!",
               greatest(0, (extract(epoch from b.started_at + b.max_duration_seconds * interval '1 s'
                   - clock_timestamp()) * 1000)::bigint) as "deadline_in_ms!",
               coalesce(x.names, '{}') as "names!", coalesce(x.key_ids, '{}') as "key_ids!",
               coalesce(x.nonces, '{}') as "nonces!", coalesce(x.ciphertexts, '{}') as "ciphertexts!"
           from builds b join build_specs s on s.build_id = b.id
           left join lateral (
               select array_agg(k.name) as names, array_agg(k.key_id) as key_ids, array_agg(k.nonce) as nonces,
                   array_agg(k.ciphertext) as ciphertexts
               from secrets k
               where k.workspace_id = b.workspace_id and k.name = any (s.secrets || s.clone_secret)
           ) x on s.secrets <> '{}' or s.clone_secret is not null
           where b.id = $1 and b.status = 'running'"#,
        build
    )
    .fetch_optional(&store.pool)
    .await?;
    Ok(row.map(|row| {
        let sealed = row.names.into_iter().zip(row.key_ids).zip(row.nonces).zip(row.ciphertexts);
        Taken {
            workspace: row.workspace_id,
            repository: row.repository,
            git_ref: row.git_ref,
            commit: row.commit_sha,
            submodules: row.submodules,
            steps: row.steps.0,
            env: row.env.0,
            secrets: row.secrets,
            clone_secret: row.clone_secret,
            max_duration_seconds: row.max_duration_seconds,
            deadline_in_ms: row.deadline_in_ms,
            sealed: sealed.map(|(((name, key_id), nonce), text)| (name, key_id, nonce, text)).collect(),
        }
    }))
}

pub(crate) fn ms(duration: std::time::Duration) -> i64 {
    i64::try_from(duration.as_millis()).unwrap_or(i64::MAX)
}

fn seconds(duration: std::time::Duration) -> i32 {
    i32::try_from(duration.as_millis().div_ceil(1000)).unwrap_or(i32::MAX)
}
