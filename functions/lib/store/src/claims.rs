//! Taking builds out of the queues (SPEC.md, Claim): one statement that decides under the workspaces' locks and answers with
//! the jobs, so that nothing which can fail comes after the commit.

use crate::columns;
use crate::{Error, Store};
use protocol::pipeline::{Env, PreviewSpec, Step};
use protocol::trace::Traceparent;
use protocol::worker::ClaimRequest;
use rules::Timing;
use serde::Deserialize;
use sqlx::types::Json;
use std::collections::BTreeMap;
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
    /// Others hold what could be taken; wait for this workspace.
    Contended(Uuid),
    /// Nothing to do.
    Nothing,
}

/// Workers that may take the same builds: one token's, with the same back ends and labels.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fleet<'a> {
    /// The token's id and digest.
    pub token: (&'a str, &'a [u8]),
    /// Its back ends.
    pub isolation: &'a [String],
    /// Its labels.
    pub labels: &'a [String],
}

/// Which workspaces and builds the caller has already decided on, in this call.
#[derive(Clone, Debug, Default)]
pub struct Known {
    /// Builds found runnable.
    pub verified: Vec<Uuid>,
    /// Workspaces to leave alone.
    pub skip: Vec<Uuid>,
    /// A workspace to wait for.
    pub wait: Option<Uuid>,
    /// One of the claims met itself elsewhere: it is looked for first.
    pub repeats: bool,
}

impl Known {
    fn is_nothing(&self) -> bool {
        self.verified.is_empty() && self.skip.is_empty() && self.wait.is_none() && !self.repeats
    }
}

/// What a call came to.
#[derive(Debug, Default)]
pub struct Served {
    /// What each `claim_id` came to.
    pub claims: Vec<(Uuid, Claimed)>,
    /// Builds that were admitted under other rules, or whose pipeline is gone, with their workspaces: to be ended or verified
    /// before the claims that got nothing are asked again.
    pub unverified: Vec<(Uuid, Uuid)>,
}

/// Gives each claim of a fleet a build, in the order of the board. `claim_id`s must differ.
///
/// # Errors
///
/// [`Error::Conflict`] if one of the claims took another build at this moment: ask again to get that one. Nothing was
/// written then.
pub async fn serve(
    store: &Store,
    fleet: Fleet<'_>,
    claims: &[&ClaimRequest],
    timing: &Timing,
    known: &Known,
) -> Result<Served, Error> {
    fail::fail_point!("claim.asked");
    let rows = match claims {
        [claim] if known.is_nothing() => one(store, fleet, claim, timing).await?,
        claims => many(store, fleet, claims, timing, known).await?,
    };
    fail::fail_point!("claim.taken");
    let mut served = Served::default();
    for row in rows {
        row.read(&mut served)?;
    }
    Ok(served)
}

/// What most calls are, by the statements that cost least.
async fn one(store: &Store, fleet: Fleet<'_>, claim: &ClaimRequest, timing: &Timing) -> Result<Vec<Row>, Error> {
    Ok(sqlx::query_as!(
        Row,
        r#"select claim, outcome as "outcome!", build, workspace, max_seconds, deadline_in_ms, repository, git_ref, commit_sha,
               submodules, steps as "steps: Json<Vec<Step>>", env as "env: Json<Env>", secrets, clone_secret,
               registry_secrets as "registry_secrets: Json<BTreeMap<String, String>>", preview as "preview: Json<PreviewSpec>",
               sealed as "sealed: Json<Vec<Sealed>>", (select s.traceparent from build_specs s where s.build_id = build) as traceparent
           from claim_build($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12)"#,
        fleet.token.0,
        fleet.token.1,
        claim.claim_id,
        claim.worker.name,
        claim.worker.version,
        claim.worker.host_id,
        fleet.isolation,
        fleet.labels,
        ms(timing.lease),
        seconds(timing.deadline_max),
        rules::runnable::RULES_VERSION,
        ms(timing.billing_stale),
    )
    .fetch_all(&store.pool)
    .await?)
}

async fn many(
    store: &Store,
    fleet: Fleet<'_>,
    claims: &[&ClaimRequest],
    timing: &Timing,
    known: &Known,
) -> Result<Vec<Row>, Error> {
    // Whoever asks for several slots at once is one worker.
    let workers: BTreeMap<_, _> =
        claims.iter().map(|claim| ((&claim.worker.host_id, &claim.worker.name), &claim.worker.version)).collect();
    Ok(sqlx::query_as!(
        Row,
        r#"select claim, outcome as "outcome!", build, workspace, max_seconds, deadline_in_ms, repository, git_ref, commit_sha,
               submodules, steps as "steps: Json<Vec<Step>>", env as "env: Json<Env>", secrets, clone_secret,
               registry_secrets as "registry_secrets: Json<BTreeMap<String, String>>", preview as "preview: Json<PreviewSpec>",
               sealed as "sealed: Json<Vec<Sealed>>", (select s.traceparent from build_specs s where s.build_id = build) as traceparent
           from claim_builds($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16)"#,
        fleet.token.0,
        fleet.token.1,
        &claims.iter().map(|claim| claim.claim_id).collect::<Vec<_>>(),
        &workers.keys().map(|(_, name)| (*name).clone()).collect::<Vec<_>>(),
        &workers.values().map(|version| (*version).clone()).collect::<Vec<_>>(),
        &workers.keys().map(|(host, _)| (*host).clone()).collect::<Vec<_>>(),
        fleet.isolation,
        fleet.labels,
        ms(timing.lease),
        seconds(timing.deadline_max),
        rules::runnable::RULES_VERSION,
        ms(timing.billing_stale),
        &known.verified,
        &known.skip,
        known.wait,
        &worker_of(claims, &workers.keys().copied().collect::<Vec<_>>()),
    )
    .fetch_all(&store.pool)
    .await?)
}

/// Which of `workers`, each a host and a name, made each claim: its place, from 1 as Postgres counts.
fn worker_of(claims: &[&ClaimRequest], workers: &[(&String, &String)]) -> Vec<i32> {
    let place = |claim: &&ClaimRequest| {
        let at = workers.iter().position(|worker| *worker == (&claim.worker.host_id, &claim.worker.name));
        at.and_then(|at| i32::try_from(at + 1).ok()).unwrap_or(0)
    };
    claims.iter().map(place).collect()
}

struct Row {
    claim: Option<Uuid>,
    outcome: String,
    build: Option<Uuid>,
    workspace: Option<Uuid>,
    max_seconds: Option<i32>,
    deadline_in_ms: Option<i64>,
    repository: Option<String>,
    git_ref: Option<String>,
    commit_sha: Option<String>,
    submodules: Option<bool>,
    steps: Option<Json<Vec<Step>>>,
    env: Option<Json<Env>>,
    secrets: Option<Vec<String>>,
    clone_secret: Option<String>,
    registry_secrets: Option<Json<BTreeMap<String, String>>>,
    preview: Option<Json<PreviewSpec>>,
    sealed: Option<Json<Vec<Sealed>>>,
    traceparent: Option<String>,
}

impl Row {
    fn spec(&mut self) -> Option<Spec> {
        Some(Spec {
            repository: self.repository.take()?,
            git_ref: self.git_ref.take()?,
            commit_sha: self.commit_sha.take(),
            submodules: self.submodules?,
            steps: self.steps.take()?.0,
            env: self.env.take()?.0,
            secrets: self.secrets.take()?,
            clone_secret: self.clone_secret.take(),
            registry_secrets: self.registry_secrets.take()?.0,
            preview: self.preview.take().map(|preview| preview.0),
            traceparent: columns::traceparent(self.traceparent.take()),
        })
    }

    fn read(mut self, served: &mut Served) -> Result<(), Error> {
        let (build, workspace) = (self.build.unwrap_or_default(), self.workspace.unwrap_or_default());
        let claimed = match self.outcome.as_str() {
            "unverified" => {
                served.unverified.push((build, workspace));
                return Ok(());
            }
            "claimed" | "repeat" => Claimed::Build(Box::new(Taken {
                build,
                workspace,
                spec: self.spec().ok_or_else(|| Error::Unreadable(format!("the spec of {build}")))?,
                max_duration_seconds: self.max_seconds.unwrap_or(0),
                deadline_in_ms: self.deadline_in_ms.unwrap_or(0),
                sealed: self.sealed.map(|sealed| sealed.0).unwrap_or_default(),
            })),
            "ended" => Claimed::Ended(build),
            "unauthorized" => Claimed::Unauthorized,
            "contended" => Claimed::Contended(workspace),
            "none" => Claimed::Nothing,
            other => return Err(Error::Unreadable(format!("claim_builds' outcome {other}"))),
        };
        let claim = self.claim.ok_or_else(|| Error::Unreadable(format!("{} without a claim", self.outcome)))?;
        served.claims.push((claim, claimed));
        Ok(())
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

/// What a build runs.
#[derive(Debug)]
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
    /// The names of the secrets that registries are shown, by registry.
    pub registry_secrets: BTreeMap<String, String>,
    /// What is started after success.
    pub preview: Option<PreviewSpec>,
    /// The trace that it belongs to.
    pub traceparent: Option<Traceparent>,
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
