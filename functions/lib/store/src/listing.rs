//! Builds as their workspace sees them: one, a page of them, and the front of the queue that they wait in.

use crate::columns::{self, count, status, unsigned};
use crate::{Error, Store};
use protocol::build::{Build, StepResult};
use rules::Status;
use sqlx::types::Json;
use time::OffsetDateTime;
use uuid::Uuid;

/// A build, and what decides how long it waits.
#[derive(Clone, Debug, PartialEq)]
pub struct Listed {
    /// The build; without its place in the queue.
    pub build: Build,
    /// Its number in the queue.
    pub number: i64,
    /// Its queue's class.
    pub class: Option<i32>,
    /// Labels that a worker must have.
    pub requires: Vec<String>,
    /// The images of its steps and its preview.
    pub images: Vec<String>,
}

struct Row {
    id: Uuid,
    pipeline_slug: String,
    status: String,
    repository: String,
    git_ref: String,
    commit: Option<String>,
    retry_of: Option<Uuid>,
    created_at: OffsetDateTime,
    waited_ms: i64,
    started_at: Option<OffsetDateTime>,
    ended_at: Option<OffsetDateTime>,
    phase: Option<String>,
    lease_expires_at: Option<OffsetDateTime>,
    claimed_by: Option<String>,
    max_duration_seconds: Option<i32>,
    cancel_requested: bool,
    end_reason: Option<String>,
    error_message: Option<String>,
    duration_ms: Option<i64>,
    charged_seconds: Option<i32>,
    step_results: Option<Json<Vec<StepResult>>>,
    version: i64,
    number: i64,
    class_id: Option<i32>,
    requires: Vec<String>,
    step_names: Json<Vec<String>>,
    images: Json<Vec<String>>,
}

impl Row {
    fn build(self, status: Status) -> Build {
        let running = status == Status::Running;
        Build {
            id: self.id,
            pipeline: self.pipeline_slug,
            status,
            repository: self.repository,
            git_ref: self.git_ref,
            commit: self.commit,
            retry_of: self.retry_of,
            created_at: self.created_at,
            started_at: self.started_at,
            ended_at: self.ended_at,
            waited_ms: (status == Status::Pending).then(|| unsigned(self.waited_ms)),
            position: None,
            waiting_for: None,
            phase: self.phase.filter(|_| running),
            lease_expires_at: self.lease_expires_at.filter(|_| running),
            claimed_by: self.claimed_by,
            max_duration_seconds: self.max_duration_seconds.map(count),
            cancel_requested: self.cancel_requested,
            end_reason: self.end_reason.map(columns::end_reason),
            error_message: self.error_message,
            duration_ms: self.duration_ms.map(unsigned),
            charged_seconds: self.charged_seconds.map(count),
            step_names: self.step_names.0,
            steps: self.step_results.map(|steps| steps.0).unwrap_or_default(),
            version: self.version,
        }
    }
}

impl TryFrom<Row> for Listed {
    type Error = Error;

    fn try_from(mut row: Row) -> Result<Self, Error> {
        let status = status(std::mem::take(&mut row.status))?;
        let (number, requires) = (row.number, std::mem::take(&mut row.requires));
        let (class, images) = (row.class_id, std::mem::take(&mut row.images.0));
        Ok(Self { build: row.build(status), number, class, requires, images })
    }
}

/// Those of these builds that are the workspace's, newest first.
///
/// # Errors
///
/// [`Error`] if the database fails.
pub async fn builds(store: &Store, workspace: Uuid, ids: &[Uuid]) -> Result<Vec<Listed>, Error> {
    let rows = sqlx::query_as!(
        Row,
        r#"select b.id, s.pipeline_slug, b.status, s.repository, s.git_ref, coalesce(b.commit_sha, s.commit_sha) as commit,
               s.retry_of, b.created_at,
               (extract(epoch from clock_timestamp() - b.created_at) * 1000)::bigint as "waited_ms!", b.started_at, b.ended_at, b.phase, b.lease_expires_at, b.claimed_by,
               b.max_duration_seconds, b.cancel_requested_at is not null as "cancel_requested!", b.end_reason,
               b.error_message, b.duration_ms, b.charged_seconds, b.step_results as "step_results: Json<Vec<StepResult>>",
               b.version, b.number, b.class_id, s.requires,
               jsonb_path_query_array(s.steps::jsonb, '$[*] ? (!exists(@.on_cancel)).name') as "step_names!: Json<Vec<String>>",
               jsonb_path_query_array(s.steps::jsonb, '$[*].image')
                   || case when s.preview is null then '[]' else jsonb_build_array(s.preview -> 'image') end as "images!: Json<Vec<String>>"
           from builds b join build_specs s on s.build_id = b.id
           where b.id = any ($2) and b.workspace_id = $1
           order by b.id desc"#,
        workspace,
        ids
    )
    .fetch_all(&store.pool)
    .await?;
    rows.into_iter().map(Listed::try_from).collect()
}

/// A build of the workspace, without its place in the queue. `None` if it has no such build.
///
/// # Errors
///
/// [`Error`] if the database fails.
pub async fn build(store: &Store, workspace: Uuid, id: Uuid) -> Result<Option<Build>, Error> {
    Ok(builds(store, workspace, &[id]).await?.pop().map(|listed| listed.build))
}

/// A queue of a workspace, as far as places in it are told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Front {
    /// Its class.
    pub class: i32,
    /// How long its oldest build asks to run, in seconds.
    pub head_seconds: i32,
    /// The numbers of its first builds, at most 1,000, rising.
    pub numbers: Vec<i64>,
}

/// The fronts of those of a workspace's queues that hold one of `builds`.
///
/// # Errors
///
/// [`Error`] if the database fails.
pub async fn fronts(store: &Store, workspace: Uuid, builds: &[Uuid]) -> Result<Vec<Front>, Error> {
    Ok(sqlx::query_as!(
        Front,
        r#"select q.class_id as class, q.head_seconds as "head_seconds!", array(
               select b.number from builds b
               where b.workspace_id = q.workspace_id and b.class_id = q.class_id and b.status = 'pending'
                   and b.number >= q.head_number
               order by b.number limit 1000) as "numbers!"
           from queues q
           where q.workspace_id = $1 and q.pending > 0
               and q.class_id in (select b.class_id from builds b where b.id = any ($2))"#,
        workspace,
        builds
    )
    .fetch_all(&store.pool)
    .await?)
}

/// Which builds are wanted.
#[derive(Clone, Copy, Debug, Default)]
pub struct Filter<'a> {
    /// Those in this state.
    pub status: Option<Status>,
    /// Those of this pipeline.
    pub pipeline: Option<&'a str>,
    /// Those that are older than this one.
    pub before: Option<Uuid>,
}

/// The ids of at most `limit` builds that the filter lets through, newest first.
///
/// # Errors
///
/// [`Error`] if the database fails.
pub async fn newest(store: &Store, workspace: Uuid, filter: Filter<'_>, limit: u32) -> Result<Vec<Uuid>, Error> {
    let limit = i64::from(limit);
    match filter.status {
        Some(Status::Pending) => newest_pending(store, workspace, filter, limit).await,
        Some(Status::Running) => newest_running(store, workspace, filter, limit).await,
        None | Some(Status::Success | Status::Failed | Status::TimedOut | Status::Cancelled) => {
            newest_of_all(store, workspace, filter, limit).await
        }
    }
}

async fn newest_of_all(store: &Store, workspace: Uuid, filter: Filter<'_>, limit: i64) -> Result<Vec<Uuid>, Error> {
    Ok(sqlx::query_scalar!(
        "select s.build_id from build_specs s join builds b on b.id = s.build_id
         where s.workspace_id = $1 and s.build_id < coalesce($2, 'ffffffff-ffff-ffff-ffff-ffffffffffff'::uuid)
             and ($3::text is null or b.status = $3) and ($4::text is null or s.pipeline_slug = $4)
         order by s.build_id desc limit $5",
        workspace,
        filter.before,
        filter.status.map(Status::as_str),
        filter.pipeline,
        limit
    )
    .fetch_all(&store.pool)
    .await?)
}

/// By number: that is the order of the index on pending rows, and of their ids.
async fn newest_pending(store: &Store, workspace: Uuid, filter: Filter<'_>, limit: i64) -> Result<Vec<Uuid>, Error> {
    Ok(sqlx::query_scalar!(
        "select b.id from queues q cross join lateral (
             select c.id, c.number from builds c join build_specs s on s.build_id = c.id
             where c.workspace_id = q.workspace_id and c.class_id = q.class_id and c.status = 'pending'
                 and ($3::text is null or s.pipeline_slug = $3)
                 and c.number < coalesce((select l.number from builds l where l.id = $2), 9223372036854775807)
             order by c.number desc limit $4) b
         where q.workspace_id = $1 and q.pending > 0
         order by b.number desc limit $4",
        workspace,
        filter.before,
        filter.pipeline,
        limit
    )
    .fetch_all(&store.pool)
    .await?)
}

async fn newest_running(store: &Store, workspace: Uuid, filter: Filter<'_>, limit: i64) -> Result<Vec<Uuid>, Error> {
    Ok(sqlx::query_scalar!(
        "select b.id from builds b join build_specs s on s.build_id = b.id
         where b.workspace_id = $1 and b.status = 'running' and ($3::text is null or s.pipeline_slug = $3)
             and b.id < coalesce($2, 'ffffffff-ffff-ffff-ffff-ffffffffffff'::uuid)
         order by b.id desc limit $4",
        workspace,
        filter.before,
        filter.pipeline,
        limit
    )
    .fetch_all(&store.pool)
    .await?)
}
