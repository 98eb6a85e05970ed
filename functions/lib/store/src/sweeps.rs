//! What a sweep looks for, in bounded batches, and the one row that remembers the last sweep (SPEC.md, Reaper).

use crate::claims::{Facts, ms};
use crate::columns::traceparent;
use crate::{Error, Store};
use protocol::trace::Traceparent;
use rules::lease::{self, Due};
use rules::{Timestamp, Timing};
use uuid::Uuid;

/// How many rows one statement of a sweep touches at most.
pub const BATCH: i64 = 500;

/// A sweep that has begun.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Begun {
    /// It is within the pause after an outage, and ends nothing that lapsed.
    pub paused: bool,
    /// Whether claims go in fair order, as the database has it.
    pub fair: bool,
    /// Whether a month has ended since all workspaces were in the same.
    pub month_is_over: bool,
    /// When a sweep last cleaned previews up, if one ever did.
    pub previews_at: Option<Timestamp>,
    /// When it began.
    pub now: Timestamp,
}

/// Notes that a sweep begins, and says what it can leave out: of several at once each is told of the one before it.
///
/// # Errors
///
/// [`Error`] if the database fails.
pub async fn begin(store: &Store, timing: &Timing) -> Result<Begun, Error> {
    loop {
        if let Some(begun) = try_begin(store, timing).await? {
            fail::fail_point!("sweep.begun");
            return Ok(begun);
        }
    }
}

/// `None`: another sweep has begun in between, so what was read holds no more.
async fn try_begin(store: &Store, timing: &Timing) -> Result<Option<Begun>, Error> {
    let row = sqlx::query!(
        r#"select (extract(epoch from s.last_at) * 1000000)::bigint as last_us, s.paused_last,
               (extract(epoch from s.previews_at) * 1000)::bigint as previews_ms, b.fair,
               s.month_rolled < month_of(clock_timestamp()) as "month_is_over!",
               (extract(epoch from clock_timestamp()) * 1000)::bigint as "now_ms!"
           from sweeps s, board b"#
    )
    .fetch_one(&store.pool)
    .await?;
    fail::fail_point!("sweep.read");
    let last = row.last_us.map(|us| Timestamp(us / 1000));
    let outage = lease::is_outage(last, timing, Timestamp(row.now_ms));
    let pause = outage && !row.paused_last;
    let paused = sqlx::query_scalar!(
        r#"update sweeps
           set last_at = n.now,
               not_before = case when $1 then n.now + $2::bigint * interval '1 ms' else not_before end,
               paused_last = case when $3 then $1 when n.now < not_before then paused_last else false end
           from (select clock_timestamp() as now) n
           where (extract(epoch from last_at) * 1000000)::bigint is not distinct from $4
           returning coalesce(n.now < not_before, false) as "paused!""#,
        pause,
        ms(timing.lease_grace),
        outage,
        row.last_us
    )
    .fetch_optional(&store.pool)
    .await?;
    Ok(paused.map(|paused| Begun {
        paused,
        fair: row.fair,
        month_is_over: row.month_is_over,
        previews_at: row.previews_ms.map(Timestamp),
        now: Timestamp(row.now_ms),
    }))
}

/// Sets the order of claims, for every function. Whether it was another one.
///
/// # Errors
///
/// [`Error`] if the database fails.
pub async fn set_order(store: &Store, fair: bool) -> Result<bool, Error> {
    let set = sqlx::query!("update board set fair = $1 where fair <> $1", fair).execute(&store.pool).await?;
    Ok(set.rows_affected() == 1)
}

/// A running build that is to be ended.
#[derive(Clone, Copy, Debug)]
pub struct DueBuild {
    /// It.
    pub build: Uuid,
    /// Why.
    pub why: Due,
    /// The trace that it belongs to.
    pub traceparent: Option<Traceparent>,
}

/// Running builds that are to be ended, and why. It reads at most the running rows.
///
/// # Errors
///
/// [`Error`] if the database fails.
pub async fn due(store: &Store, timing: &Timing) -> Result<Vec<DueBuild>, Error> {
    let rows = sqlx::query!(
        r#"select b.id, b.lease_expires_at < n.now - $1::bigint * interval '1 ms' as "lost!",
               (select s.traceparent from build_specs s where s.build_id = b.id) as traceparent
           from builds b, (select clock_timestamp() as now) n
           where b.status = 'running'
               and (b.lease_expires_at < n.now - $1::bigint * interval '1 ms'
                   or b.started_at + b.max_duration_seconds * interval '1 s' < n.now - $2::bigint * interval '1 ms')
           limit $3"#,
        ms(timing.lease_grace),
        ms(timing.deadline_grace),
        BATCH
    )
    .fetch_all(&store.pool)
    .await?;
    let due = rows.into_iter().map(|row| DueBuild {
        build: row.id,
        why: if row.lost { Due::Lost } else { Due::Overdue },
        traceparent: traceparent(row.traceparent),
    });
    Ok(due.collect())
}

/// The oldest builds that have waited longer than a build may, with their workspaces.
///
/// # Errors
///
/// [`Error`] if the database fails.
pub async fn expired(store: &Store, timing: &Timing) -> Result<Vec<(Uuid, Uuid)>, Error> {
    let rows = sqlx::query!(
        "select workspace_id, id from builds
         where status = 'pending' and created_at < (select clock_timestamp()) - $1::bigint * interval '1 ms'
         order by created_at limit $2",
        ms(timing.queue_expiry),
        BATCH
    )
    .fetch_all(&store.pool)
    .await?;
    Ok(rows.into_iter().map(|row| (row.workspace_id, row.id)).collect())
}

/// Workspaces that have builds waiting and no minutes left this month.
///
/// # Errors
///
/// [`Error`] if the database fails.
pub async fn exhausted(store: &Store) -> Result<Vec<Uuid>, Error> {
    Ok(sqlx::query_scalar!(
        "select distinct w.id from queues q
         join workspaces w on w.id = q.workspace_id join plans p on p.workspace_id = q.workspace_id
         where q.pending > 0 and not q.open and w.charged_seconds >= p.seconds_per_month
             and w.charged_month >= month_of(clock_timestamp())
         limit $1",
        BATCH
    )
    .fetch_all(&store.pool)
    .await?)
}

/// A build that was admitted under other rules, or whose pipeline is gone.
#[derive(Clone, Debug)]
pub struct Unverified {
    /// The build.
    pub build: Uuid,
    /// Its workspace.
    pub workspace: Uuid,
    /// What decides.
    pub facts: Facts,
}

/// Builds of open queues that must be checked again, where the head is one: the oldest of each queue, one batch.
///
/// # Errors
///
/// [`Error`] if the database fails.
pub async fn unverified(store: &Store) -> Result<Vec<Unverified>, Error> {
    let rows = sqlx::query_as!(
        Row,
        r#"select b.id as "build!", b.workspace_id as "workspace!", p.id is not null as "has_pipeline!", s.repository as "repository!", s.git_ref as "git_ref!"
           from queues q cross join lateral (
               select c.id, c.workspace_id, c.rules_version from builds c
               where c.workspace_id = q.workspace_id and c.class_id = q.class_id and c.status = 'pending'
                   and c.number >= q.head_number
               order by c.number limit case when exists (
                   select from builds h join build_specs k on k.build_id = h.id left join pipelines l on l.id = k.pipeline_id
                   where h.workspace_id = q.workspace_id and h.class_id = q.class_id and h.status = 'pending'
                       and h.number = q.head_number and (h.rules_version <> $1 or l.id is null)) then 100 else 0 end) b
           join build_specs s on s.build_id = b.id
           left join pipelines p on p.id = s.pipeline_id
           where q.open and (b.rules_version <> $1 or p.id is null)
           limit $2"#,
        rules::runnable::RULES_VERSION,
        BATCH
    )
    .fetch_all(&store.pool)
    .await?;
    let read = |row: Row| Unverified {
        build: row.build,
        workspace: row.workspace,
        facts: Facts { has_pipeline: row.has_pipeline, repository: row.repository, git_ref: row.git_ref },
    };
    Ok(rows.into_iter().map(read).collect())
}

struct Row {
    build: Uuid,
    workspace: Uuid,
    has_pipeline: bool,
    repository: String,
    git_ref: String,
}

/// Starts a new month for workspaces that are still in an older one, one batch. How many there were; 0: all are done,
/// and until the next month [`Begun::month_is_over`] is false.
///
/// # Errors
///
/// [`Error`] if the database fails.
pub async fn roll_month(store: &Store) -> Result<u64, Error> {
    let rolled = sqlx::query!(
        "update workspaces set charged_month = m.month, charged_seconds = 0
         from (select month_of(clock_timestamp()) as month) m, sweeps s
         where s.month_rolled < m.month and id in (
             select w.id from workspaces w where w.charged_month < month_of(clock_timestamp())
             limit $1 for no key update skip locked)",
        BATCH
    )
    .execute(&store.pool)
    .await?
    .rows_affected();
    fail::fail_point!("sweep.rolled");
    if rolled == 0 {
        sqlx::query!(
            "update sweeps set month_rolled = month_of(clock_timestamp())
             where month_rolled < month_of(clock_timestamp())
                 and not exists (select from workspaces where charged_month < month_of(clock_timestamp()))"
        )
        .execute(&store.pool)
        .await?;
    }
    Ok(rolled)
}

/// Purges one batch of builds that ended longer ago than they are kept, with their logs. Their charges stay, and so do builds
/// whose preview is kept. How many.
///
/// # Errors
///
/// [`Error`] if the database fails.
pub async fn purge(store: &Store, timing: &Timing) -> Result<u64, Error> {
    let purged = sqlx::query_scalar!(
        r#"with old as (
               select id from builds
               where id < uuid_v7_floor((select clock_timestamp()) - $1::bigint * interval '1 ms')
                   and ended_at < (select clock_timestamp()) - $1::bigint * interval '1 ms'
                   and not (has_preview and exists (select from previews p where p.build_id = builds.id))
               order by id limit $2 for update skip locked
           ), logs as (
               delete from build_logs l using old where l.build_id = old.id
           ), gone as (
               delete from builds b using old where b.id = old.id returning b.id
           )
           select count(*) as "count!" from gone"#,
        ms(timing.retention),
        BATCH
    )
    .fetch_one(&store.pool)
    .await?;
    fail::fail_point!("sweep.purged");
    Ok(u64::try_from(purged).unwrap_or(0))
}

/// Forgets `Idempotency-Key`s that are older than they are kept, workers that were not seen for a week, queues that have been empty for
/// an hour, and classes that have no queue: of each one batch, without waiting for whoever holds one.
///
/// # Errors
///
/// [`Error`] if the database fails.
pub async fn forget(store: &Store, timing: &Timing) -> Result<(), Error> {
    sqlx::query!(
        "with keys as (
             delete from idempotency_keys k using (
                 select workspace_id, key from idempotency_keys
                 where created_at < (select clock_timestamp()) - $1::bigint * interval '1 ms'
                 order by created_at limit $2 for update skip locked) old
             where k.workspace_id = old.workspace_id and k.key = old.key
         ), gone as (
             delete from queues q using (
                 select e.workspace_id, e.class_id from queues e join workspaces w on w.id = e.workspace_id
                 where e.pending = 0 and e.changed_at < clock_timestamp() - interval '1 hour'
                 limit $2 for no key update of w skip locked) old
             where q.workspace_id = old.workspace_id and q.class_id = old.class_id and q.pending = 0
         ), unused as (
             delete from classes c using (
                 select k.id from classes k where not exists (select from queues q where q.class_id = k.id)
                 limit $2 for update skip locked) old
             where c.id = old.id and not exists (select from queues q where q.class_id = c.id)
         )
         delete from workers w using (
             select token_id, host_id, name from workers where seen_at < clock_timestamp() - interval '7 days'
             limit $2 for update skip locked) old
         where w.token_id = old.token_id and w.host_id = old.host_id and w.name = old.name",
        ms(timing.idempotency),
        BATCH
    )
    .execute(&store.pool)
    .await?;
    Ok(())
}
