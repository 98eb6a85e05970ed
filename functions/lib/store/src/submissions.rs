//! Putting builds into the queue, and asking for their end (SPEC.md, Admission).

use crate::claims::ms;
use crate::columns::traceparent;
use crate::{Error, Store, Transaction};
use protocol::pipeline::{Env, PipelineSpec, PreviewSpec, Step};
use protocol::trace::Traceparent;
use rules::billing;
use rules::budget::{Plan, PreviewLimits, Usage};
use rules::routing::Needs;
use rules::{CancelReason, EndReason, Seconds, Status, Timestamp, Timing};
use sqlx::types::Json;
use sqlx::{Executor, Postgres};
use std::collections::BTreeMap;
use uuid::Uuid;

/// A submit that came with an `Idempotency-Key`.
#[derive(Clone, Copy, Debug)]
pub struct Key<'a> {
    /// The key.
    pub key: &'a str,
    /// The SHA-256 of what was asked.
    pub body_digest: &'a [u8],
}

/// What an earlier submit with the same key came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Earlier {
    /// The same was asked: this build.
    Same(Uuid),
    /// Something else was asked.
    Other,
}

/// Looks an `Idempotency-Key` up; one older than it is kept does not count.
///
/// # Errors
///
/// [`Error`] if the database fails.
pub async fn earlier(store: &Store, workspace: Uuid, key: Key<'_>, timing: &Timing) -> Result<Option<Earlier>, Error> {
    look_up(&store.pool, workspace, key, timing).await
}

/// [`earlier`], in a transaction that has locked the workspace: what was stored while it waited is found.
///
/// # Errors
///
/// [`Error`] if the database fails.
pub async fn earlier_in(
    tx: &mut Transaction,
    workspace: Uuid,
    key: Key<'_>,
    timing: &Timing,
) -> Result<Option<Earlier>, Error> {
    look_up(tx, workspace, key, timing).await
}

async fn look_up<'e>(
    on: impl Executor<'e, Database = Postgres>,
    workspace: Uuid,
    key: Key<'_>,
    timing: &Timing,
) -> Result<Option<Earlier>, Error> {
    let row = sqlx::query!(
        "select build_id, body_digest from idempotency_keys
         where workspace_id = $1 and key = $2 and created_at > clock_timestamp() - $3::bigint * interval '1 ms'",
        workspace,
        key.key,
        ms(timing.idempotency)
    )
    .fetch_optional(on)
    .await?;
    Ok(row.map(|row| if row.body_digest == key.body_digest { Earlier::Same(row.build_id) } else { Earlier::Other }))
}

/// A pipeline to build from.
#[derive(Clone, Debug)]
pub struct Source {
    /// Its id.
    pub id: Uuid,
    /// What it runs.
    pub spec: PipelineSpec,
}

/// Reads a pipeline by name.
///
/// # Errors
///
/// [`Error`] if the database fails.
pub async fn source(store: &Store, workspace: Uuid, slug: &str) -> Result<Option<Source>, Error> {
    let row = sqlx::query!(
        r#"select id, spec as "spec: Json<PipelineSpec>" from pipelines where workspace_id = $1 and slug = $2"#,
        workspace,
        slug
    )
    .fetch_optional(&store.pool)
    .await?;
    Ok(row.map(|row| Source { id: row.id, spec: row.spec.0 }))
}

/// Locks a workspace until the transaction ends; returns its plan (`None`: it can't be read, or is stale) and what it uses,
/// the month's charge as of when the lock was ours: the clock is read outside of the query that waits. `None` if there is no
/// such workspace.
///
/// # Errors
///
/// [`Error`] if the database fails.
pub async fn lock_workspace(
    tx: &mut Transaction,
    workspace: Uuid,
    timing: &Timing,
) -> Result<Option<(Option<Plan>, Usage)>, Error> {
    let row = sqlx::query!(
        r#"select p.seconds_per_month as "seconds_per_month?", p.build_seconds_max as "build_seconds_max?",
               p.running_max as "running_max?", p.pending_max as "pending_max?",
               p.previews_max as "previews_max?", p.preview_seconds_max as "preview_seconds_max?",
               (extract(epoch from p.fetched_at) * 1000)::bigint as fetched_ms,
               (extract(epoch from clock_timestamp()) * 1000)::bigint as "now_ms!",
               case when w.charged_month >= month_of(clock_timestamp()) then w.charged_seconds else 0 end as "charged!",
               w.reserved_seconds as "reserved_seconds!", w.running as "running!", w.pending as "pending!"
           from (select * from workspaces where id = $1 for no key update) w
           left join plans p on p.workspace_id = w.id and not p.lapsed"#,
        workspace
    )
    .fetch_optional(tx)
    .await?;
    fail::fail_point!("admission.locked");
    Ok(row.map(|row| {
        let plan = || {
            Some(Plan {
                seconds_per_month: seconds(row.seconds_per_month?),
                build_seconds_max: seconds(row.build_seconds_max?),
                running_max: count(row.running_max?),
                pending_max: count(row.pending_max?),
                previews: PreviewLimits {
                    live_max: count(row.previews_max?),
                    seconds_max: seconds(row.preview_seconds_max?),
                },
            })
        };
        let usage = Usage {
            charged: seconds(row.charged),
            reserved: seconds(row.reserved_seconds),
            running: count(row.running),
            pending: count(row.pending),
        };
        let is_fresh = billing::is_fresh(row.fetched_ms.map(Timestamp), timing, Timestamp(row.now_ms));
        (plan().filter(|_| is_fresh), usage)
    }))
}

/// A build to put into the queue: all that its pipeline said, copied.
#[derive(Clone, Debug)]
pub struct NewBuild {
    /// Its pipeline's id.
    pub pipeline: Uuid,
    /// Its pipeline's name.
    pub slug: String,
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
    /// The names of the secrets that its steps see.
    pub secrets: Vec<String>,
    /// The name of the secret that its clone gets.
    pub clone_secret: Option<String>,
    /// Secrets for pulling images, by registry.
    pub registry_secrets: BTreeMap<String, String>,
    /// Labels that a worker must have.
    pub requires: Vec<String>,
    /// The build that it tries again.
    pub retry_of: Option<Uuid>,
    /// The trace that it belongs to. A build that is tried again is of another.
    pub traceparent: Option<Traceparent>,
    /// What is started once it has succeeded.
    pub preview: Option<PreviewSpec>,
    /// How long it may run at most, in seconds: what is reserved for it.
    pub timeout_seconds: u32,
}

/// Puts a build at the end of its workspace's queue of its class. The workspace must be locked, so that the order of numbers is
/// the order of commits.
///
/// # Errors
///
/// [`Error::Conflict`] if a submit with the same `Idempotency-Key` was faster.
pub async fn insert(
    tx: &mut Transaction,
    workspace: Uuid,
    build: &NewBuild,
    key: Option<Key<'_>>,
    timing: &Timing,
) -> Result<Uuid, Error> {
    let timeout = i32::try_from(build.timeout_seconds).unwrap_or(i32::MAX);
    let images = build.steps.iter().map(|step| step.image.as_str());
    let images = images.chain(build.preview.iter().map(|preview| preview.image.as_str()));
    let needs = Needs::of(&build.requires, images);
    let id = sqlx::query_scalar!(
        r#"with new as (
               insert into builds (workspace_id, timeout_seconds, rules_version, class_id, has_preview)
               values ($1, $2, $3, class_of($20, $21, $22), $23::jsonb is not null)
               returning id, number, class_id
           ), spec as (
               insert into build_specs (build_id, workspace_id, pipeline_id, pipeline_slug, repository, git_ref,
                   commit_sha, submodules, steps, env, secrets, clone_secret, registry_secrets, requires, retry_of,
                   preview, traceparent)
               select id, $1, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $23, $24 from new
           ), head as (
               insert into log_heads (build_id) select id from new
           ), forgotten as (
               delete from idempotency_keys where workspace_id = $1 and key = $17
                   and created_at <= clock_timestamp() - $19::bigint * interval '1 ms'
               returning key
           ), key as (
               insert into idempotency_keys (workspace_id, key, body_digest, build_id)
               select $1, $17, $18, new.id from new left join forgotten on true where $17::text is not null
           ), queue as (
               insert into queues as q (workspace_id, class_id, pending, head_number, head_seconds)
               select $1, class_id, 1, number, $2 from new
               on conflict (workspace_id, class_id) do update
               set pending = q.pending + 1, head_number = coalesce(q.head_number, excluded.head_number),
                   head_seconds = coalesce(q.head_seconds, excluded.head_seconds), changed_at = clock_timestamp()
           ), counted as (
               update workspaces set pending = pending + 1 where id = $1
           )
           select id as "id!" from new"#,
        workspace,
        timeout,
        rules::runnable::RULES_VERSION,
        build.pipeline,
        build.slug,
        build.repository,
        build.git_ref,
        build.commit,
        build.submodules,
        Json(&build.steps) as _,
        Json(&build.env) as _,
        &build.secrets,
        build.clone_secret,
        Json(&build.registry_secrets) as _,
        &build.requires,
        build.retry_of,
        key.map(|key| key.key),
        key.map(|key| key.body_digest),
        ms(timing.idempotency),
        &needs.requires,
        needs.host,
        needs.image,
        build.preview.as_ref().map(Json) as _,
        build.traceparent.map(|traceparent| traceparent.to_string()),
    )
    .fetch_one(tx)
    .await?;
    fail::fail_point!("admission.inserted");
    Ok(id)
}

/// A build of a workspace, to be tried again or cancelled.
#[derive(Clone, Debug)]
pub struct Snapshot {
    /// Its state.
    pub status: Status,
    /// Raised by every change of state.
    pub version: i64,
    /// What it ran, at the commit it ran.
    pub build: NewBuild,
}

/// Reads a build of this workspace with all that it ran. `None`: unknown, or another workspace's.
///
/// # Errors
///
/// [`Error`] if the database fails.
pub async fn snapshot(store: &Store, workspace: Uuid, build: Uuid) -> Result<Option<Snapshot>, Error> {
    let row = sqlx::query!(
        r#"select b.status, b.version, b.timeout_seconds, coalesce(b.commit_sha, s.commit_sha) as commit_sha,
               s.pipeline_id, s.pipeline_slug, s.repository, s.git_ref, s.submodules,
               s.steps as "steps: Json<Vec<Step>>", s.env as "env: Json<Env>", s.secrets, s.clone_secret,
               s.registry_secrets as "registry_secrets: Json<BTreeMap<String, String>>", s.requires,
               s.preview as "preview: Json<PreviewSpec>", s.traceparent
           from builds b join build_specs s on s.build_id = b.id where b.id = $1 and b.workspace_id = $2"#,
        build,
        workspace
    )
    .fetch_optional(&store.pool)
    .await?;
    let Some(row) = row else { return Ok(None) };
    let snapshot = NewBuild {
        pipeline: row.pipeline_id,
        slug: row.pipeline_slug,
        repository: row.repository,
        git_ref: row.git_ref,
        commit: row.commit_sha,
        submodules: row.submodules,
        steps: row.steps.0,
        env: row.env.0,
        secrets: row.secrets,
        clone_secret: row.clone_secret,
        registry_secrets: row.registry_secrets.0,
        requires: row.requires,
        retry_of: Some(build),
        traceparent: traceparent(row.traceparent),
        preview: row.preview.map(|preview| preview.0),
        timeout_seconds: u32::try_from(row.timeout_seconds).unwrap_or(1),
    };
    let status = Status::parse(&row.status).ok_or(Error::Unreadable(row.status))?;
    Ok(Some(Snapshot { status, version: row.version, build: snapshot }))
}

/// Asks for the end of a running build; a second request changes nothing. `false` if it does not run, or has not the
/// given version.
///
/// # Errors
///
/// [`Error`] if the database fails.
pub async fn request_cancel(
    store: &Store,
    build: Uuid,
    reason: CancelReason,
    version: Option<i64>,
) -> Result<bool, Error> {
    let done = sqlx::query!(
        "update builds set cancel_requested_at = coalesce(cancel_requested_at, clock_timestamp()),
             cancel_reason = coalesce(cancel_reason, $2), version = version + (cancel_reason is null)::int
         where id = $1 and status = 'running' and ($3::bigint is null or version = $3)",
        build,
        reason.as_str(),
        version
    )
    .execute(&store.pool)
    .await?;
    fail::fail_point!("cancel.requested");
    Ok(done.rows_affected() == 1)
}

/// Ends pending builds of one workspace, those named or its oldest `limit`; returns those that it ended, with their traces. A build
/// that a worker is just claiming is not among them.
///
/// # Errors
///
/// [`Error`] if the database fails.
pub async fn end_pending(
    store: &Store,
    workspace: Uuid,
    builds: Option<&[Uuid]>,
    limit: i32,
    reason: EndReason,
    message: &str,
) -> Result<Vec<(Uuid, Option<Traceparent>)>, Error> {
    let ended = sqlx::query!(
        r#"select e.id as "id!", (select s.traceparent from build_specs s where s.build_id = e.id) as traceparent
           from end_pending($1, $2, $3, $4, $5, $6) e (id)"#,
        workspace,
        builds,
        limit,
        reason.status().as_str(),
        reason.as_str(),
        message
    )
    .fetch_all(&store.pool)
    .await?;
    fail::fail_point!("pending.ended");
    Ok(ended.into_iter().map(|row| (row.id, traceparent(row.traceparent))).collect())
}

fn seconds(number: i32) -> Seconds {
    Seconds(count(number))
}

fn count(number: i32) -> u32 {
    u32::try_from(number).unwrap_or(0)
}
