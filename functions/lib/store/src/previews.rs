//! Live previews as their workspace sees them: listed, extended, destroyed (SPEC.md, 4).

use crate::claims::ms;
use crate::columns::{count, signed};
use crate::{Error, Store};
use protocol::preview::Preview;
use rules::preview::{Stage, State, WaitingFor};
use rules::{Seconds, Timestamp, Timing};
use time::OffsetDateTime;
use uuid::Uuid;

struct Row {
    id: Uuid,
    build_id: Uuid,
    pipeline: String,
    status: String,
    stage: Option<String>,
    message: Option<String>,
    waiting_for: Option<String>,
    url: Option<String>,
    host_id: Option<String>,
    port: Option<i32>,
    retain_failed: bool,
    log_tail: Option<String>,
    created_at: OffsetDateTime,
    started_at: Option<OffsetDateTime>,
    expires_at: OffsetDateTime,
    destroyed_at: Option<OffsetDateTime>,
    version: i64,
}

impl TryFrom<Row> for Preview {
    type Error = Error;

    fn try_from(row: Row) -> Result<Self, Error> {
        Ok(Self {
            id: row.id,
            build_id: row.build_id,
            pipeline: row.pipeline,
            status: state(row.status)?,
            stage: row.stage.map(|word| Stage::parse(&word).unwrap_or(Stage::Internal)),
            message: row.message,
            waiting_for: row.waiting_for.map(|word| WaitingFor::parse(&word).unwrap_or(WaitingFor::Host)),
            url: row.url,
            host_id: row.host_id,
            port: row.port.map(port),
            retain_failed: row.retain_failed,
            log_tail: row.log_tail,
            created_at: row.created_at,
            started_at: row.started_at,
            expires_at: row.expires_at,
            destroyed_at: row.destroyed_at,
            version: row.version,
        })
    }
}

/// Which previews are wanted.
#[derive(Clone, Copy, Debug, Default)]
pub struct Filter {
    /// Those in this state.
    pub status: Option<State>,
    /// The one of this build.
    pub build: Option<Uuid>,
    /// Those that are older than this one.
    pub before: Option<Uuid>,
}

/// At most `limit` previews of a workspace that the filter lets through, newest first, without what they wrote.
///
/// # Errors
///
/// [`Error`] if the database fails.
pub async fn list(store: &Store, workspace: Uuid, filter: Filter, limit: u32) -> Result<Vec<Preview>, Error> {
    let rows = sqlx::query_as!(
        Row,
        r#"select p.id, p.build_id, s.pipeline_slug as pipeline, p.status as "status!", p.stage as "stage?",
               p.message as "message?", p.waiting_for as "waiting_for?", p.url as "url?", p.host_id,
               p.port::integer as "port?", p.retain_failed, null::text as log_tail, p.created_at, p.started_at,
               p.expires_at, p.destroyed_at, p.version
           from previews p join build_specs s on s.build_id = p.build_id
           where p.workspace_id = $1 and p.id < coalesce($2, 'ffffffff-ffff-ffff-ffff-ffffffffffff'::uuid)
               and ($3::text is null or p.status = $3) and ($4::uuid is null or p.build_id = $4)
           order by p.id desc limit $5"#,
        workspace,
        filter.before,
        filter.status.map(State::as_str),
        filter.build,
        i64::from(limit)
    )
    .fetch_all(&store.pool)
    .await?;
    rows.into_iter().map(Preview::try_from).collect()
}

/// A preview of the workspace. `None`: unknown, or another workspace's.
///
/// # Errors
///
/// [`Error`] if the database fails.
pub async fn find(store: &Store, workspace: Uuid, id: Uuid) -> Result<Option<Preview>, Error> {
    let row = sqlx::query_as!(
        Row,
        r#"select p.id, p.build_id, s.pipeline_slug as pipeline, p.status as "status!", p.stage as "stage?",
               p.message as "message?", p.waiting_for as "waiting_for?", p.url as "url?", p.host_id,
               p.port::integer as "port?", p.retain_failed, p.log_tail as "log_tail?", p.created_at, p.started_at,
               p.expires_at, p.destroyed_at, p.version
           from previews p join build_specs s on s.build_id = p.build_id where p.workspace_id = $1 and p.id = $2"#,
        workspace,
        id
    )
    .fetch_optional(&store.pool)
    .await?;
    row.map(Preview::try_from).transpose()
}

/// What an extension or a destroy is decided on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Subject {
    /// Its state.
    pub state: State,
    /// Raised by every change.
    pub version: i64,
    /// When its time is over.
    pub expires_at: Timestamp,
    /// How long its pipeline lets it live.
    pub ttl: Seconds,
    /// How long its workspace's plan lets it live; `None`: the plan can't be read, or is stale.
    pub longest: Option<Seconds>,
    /// When this was read.
    pub now: Timestamp,
}

/// Reads what decides about a preview of the workspace. `None`: unknown, or another workspace's.
///
/// # Errors
///
/// [`Error`] if the database fails.
pub async fn subject(store: &Store, workspace: Uuid, id: Uuid, timing: &Timing) -> Result<Option<Subject>, Error> {
    let row = sqlx::query!(
        r#"select p.status as "status!", p.version, p.ttl_seconds,
               (extract(epoch from p.expires_at) * 1000)::bigint as "expires_ms!",
               q.preview_seconds_max as "longest?",
               (extract(epoch from clock_timestamp()) * 1000)::bigint as "now_ms!"
           from previews p left join plans q on q.workspace_id = p.workspace_id and not q.lapsed
               and plan_is_fresh(q.fetched_at, $3, clock_timestamp())
           where p.workspace_id = $1 and p.id = $2"#,
        workspace,
        id,
        ms(timing.billing_stale)
    )
    .fetch_optional(&store.pool)
    .await?;
    let Some(row) = row else { return Ok(None) };
    Ok(Some(Subject {
        state: state(row.status)?,
        version: row.version,
        expires_at: Timestamp(row.expires_ms),
        ttl: Seconds(count(row.ttl_seconds)),
        longest: row.longest.map(|longest| Seconds(count(longest))),
        now: Timestamp(row.now_ms),
    }))
}

/// Puts off the expiry of a live preview that still has this version. `false`: it has another, or is not live.
///
/// # Errors
///
/// [`Error`] if the database fails.
pub async fn extend(store: &Store, id: Uuid, version: i64, until: Timestamp) -> Result<bool, Error> {
    fail::fail_point!("preview.extending");
    let done = sqlx::query!(
        "update previews set expires_at = 'epoch'::timestamptz + $3::bigint * interval '1 ms', version = version + 1
         where id = $1 and version = $2 and status in ('starting', 'running')",
        id,
        version,
        until.0
    )
    .execute(&store.pool)
    .await?;
    fail::fail_point!("preview.extended");
    Ok(done.rows_affected() == 1)
}

/// Asks for the end of a preview that still has this version. `false`: it has another, or is being destroyed already.
///
/// # Errors
///
/// [`Error`] if the database fails.
pub async fn destroy(store: &Store, id: Uuid, version: i64) -> Result<bool, Error> {
    fail::fail_point!("preview.destroying");
    let done = sqlx::query!(
        "update previews set status = 'destroying', placed = false, waiting_for = null, url = null, version = version + 1
         where id = $1 and version = $2 and status not in ('destroying', 'destroyed')",
        id,
        version
    )
    .execute(&store.pool)
    .await?;
    fail::fail_point!("preview.destroyed");
    Ok(done.rows_affected() == 1)
}

/// A preview's state.
pub(crate) fn state(word: String) -> Result<State, Error> {
    State::parse(&word).ok_or(Error::Unreadable(word))
}

/// A port of a column; a CHECK has made sure of it.
pub(crate) fn port(column: i32) -> u16 {
    u16::try_from(column).unwrap_or(0)
}

/// Ports for columns.
pub(crate) fn ports(ports: impl IntoIterator<Item = Option<u16>>) -> Vec<Option<i32>> {
    ports.into_iter().map(|port| port.map(|port| signed(u32::from(port)))).collect()
}
