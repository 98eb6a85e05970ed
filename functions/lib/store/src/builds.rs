//! A build's row after it was claimed: renewed, told to stop, ended (SPEC.md, Per-build worker calls, Reaper).

use crate::claims::ms;
use crate::{Error, Store};
use protocol::build::StepResult;
use protocol::worker::{Complete, Heartbeat, Renewed};
use rules::ending::Held;
use rules::{CancelReason, EndReason, Status, Timing};
use sqlx::types::Json;
use uuid::Uuid;

/// Renews the lease of a running build that this token holds; a lapsed one too. The guard is the whole rule. `None`:
/// nothing was renewed, [`standing`] says why.
///
/// # Errors
///
/// [`Error`] if the database fails.
pub async fn renew(
    store: &Store,
    build: Uuid,
    token: (&str, &[u8]),
    beat: &Heartbeat,
    timing: &Timing,
) -> Result<Option<Renewed>, Error> {
    fail::fail_point!("heartbeat.asked");
    let age = beat.last_output_age_ms.map(|age| i64::try_from(age).unwrap_or(i64::MAX));
    let row = sqlx::query!(
        r#"update builds b
           set lease_expires_at = clock_timestamp() + $4::bigint * interval '1 ms', phase = coalesce(left($5, 64), phase),
               last_output_age_ms = $6
           from tokens t
           where t.id = $2 and t.digest = $3 and t.kind = 'worker' and t.revoked_at is null
               and b.id = $1 and b.claimed_by = t.id and b.status = 'running'
           returning b.cancel_reason, (extract(epoch from
               b.started_at + b.max_duration_seconds * interval '1 s' - clock_timestamp()) * 1000)::bigint as "left_ms!""#,
        build,
        token.0,
        token.1,
        ms(timing.lease),
        beat.phase,
        age
    )
    .fetch_optional(&store.pool)
    .await?;
    fail::fail_point!("heartbeat.renewed");
    Ok(row.map(|row| Renewed {
        lease_ttl_ms: u64::try_from(timing.lease.as_millis()).unwrap_or(u64::MAX),
        deadline_in_ms: u64::try_from(row.left_ms).unwrap_or(0),
        cancel: row.cancel_reason.map(|word| CancelReason::parse(&word).unwrap_or(CancelReason::User)),
    }))
}

/// How a token stands to a build that one of its calls did not change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Standing {
    /// The token is unknown or revoked.
    Unauthorized,
    /// The build is unknown, or another token's.
    NotFound,
    /// The build is this token's.
    Held {
        /// What an end is decided on.
        held: Held,
        /// How long it ran, once it ended.
        duration_ms: u64,
        /// What it cost, once it ended.
        charged_seconds: u32,
    },
}

/// Reads how a worker's token stands to a build.
///
/// # Errors
///
/// [`Error`] if the database fails.
pub async fn standing(store: &Store, build: Uuid, token: (&str, &[u8])) -> Result<Standing, Error> {
    let row = sqlx::query!(
        r#"select b.status as "status?", b.end_reason, b.cancel_reason, b.completed as "completed?",
               b.duration_ms, b.charged_seconds, h.next_seq as "next_seq?"
           from tokens t
           left join builds b on b.id = $1 and b.claimed_by = t.id
           left join log_heads h on h.build_id = b.id
           where t.id = $2 and t.digest = $3 and t.kind = 'worker' and t.revoked_at is null"#,
        build,
        token.0,
        token.1
    )
    .fetch_optional(&store.pool)
    .await?;
    let Some(row) = row else { return Ok(Standing::Unauthorized) };
    let Some(status) = row.status else { return Ok(Standing::NotFound) };
    let held = Held {
        status: Status::parse(&status).ok_or(Error::Unreadable(status))?,
        end_reason: row.end_reason.map(|word| EndReason::parse(&word).unwrap_or(EndReason::Internal)),
        cancel: row.cancel_reason.map(|word| CancelReason::parse(&word).unwrap_or(CancelReason::User)),
        next_seq: row.next_seq.map_or(1, |seq| u64::try_from(seq).unwrap_or(1)),
        completed: row.completed == Some(true),
    };
    let duration_ms = row.duration_ms.map_or(0, |ms| u64::try_from(ms).unwrap_or(0));
    let charged_seconds = row.charged_seconds.map_or(0, |seconds| u32::try_from(seconds).unwrap_or(0));
    Ok(Standing::Held { held, duration_ms, charged_seconds })
}

/// How a running build ends.
#[derive(Clone, Debug)]
pub enum End<'a> {
    /// Its worker, with this token, says so.
    Completed {
        /// The token's id.
        token: &'a str,
        /// The token's digest.
        digest: &'a [u8],
        /// The report.
        report: &'a Complete,
        /// The report's reason, or the plainest one of its status.
        reason: Option<EndReason>,
    },
    /// Its lease lapsed longer ago than the grace.
    Lost(&'a Timing),
    /// Its deadline passed longer ago than the grace.
    Overdue(&'a Timing),
}

/// What an end came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ended {
    /// How long it ran.
    pub duration_ms: u64,
    /// What it cost.
    pub charged_seconds: u32,
}

/// What the one statement of [`finish`] needs of an [`End`].
struct Parts<'a> {
    kind: &'static str,
    status: Status,
    reason: Option<EndReason>,
    message: Option<&'a str>,
    token: Option<&'a str>,
    digest: Option<&'a [u8]>,
    grace_ms: i64,
    ran_ms: i64,
    last_seq: i64,
    logs_lost: bool,
    commit: Option<&'a str>,
    steps: &'a [StepResult],
}

impl<'a> End<'a> {
    fn parts(&self) -> Parts<'a> {
        match *self {
            Self::Completed { token, digest, report, reason } => Parts {
                kind: "completed",
                status: report.status,
                reason,
                message: report.error_message.as_deref(),
                token: Some(token),
                digest: Some(digest),
                grace_ms: 0,
                ran_ms: i64::try_from(report.ran_ms).unwrap_or(i64::MAX),
                last_seq: i64::try_from(report.last_seq).unwrap_or(i64::MAX),
                logs_lost: report.logs_lost,
                commit: report.commit.as_deref(),
                steps: &report.steps,
            },
            Self::Lost(timing) => Parts {
                message: Some("worker lost"),
                ..Parts::reaped("lost", EndReason::WorkerLost, timing.lease_grace)
            },
            Self::Overdue(timing) => Parts {
                message: Some("still running past its deadline"),
                ..Parts::reaped("overdue", EndReason::Overdue, timing.deadline_grace)
            },
        }
    }
}

impl Parts<'_> {
    fn reaped(kind: &'static str, reason: EndReason, grace: std::time::Duration) -> Self {
        Self {
            kind,
            status: Status::Failed,
            reason: Some(reason),
            message: None,
            token: None,
            digest: None,
            grace_ms: ms(grace),
            ran_ms: 0,
            last_seq: 0,
            logs_lost: true,
            commit: None,
            steps: &[],
        }
    }
}

/// Ends a running build, frees its reservation, charges it and keeps its ledger row, in one statement. `None`: its guard
/// refused, [`standing`] says why.
///
/// What is charged is `rules::budget`'s arithmetic on the row as it is then; a test holds the two equal.
///
/// # Errors
///
/// [`Error`] if the database fails. Nothing has been written.
pub async fn finish(store: &Store, build: Uuid, end: &End<'_>) -> Result<Option<Ended>, Error> {
    fail::fail_point!("finish.decided");
    let end = end.parts();
    let row = sqlx::query!(
        r#"with ended as (
               update builds b
               set status = $2, end_reason = $3, error_message = $4, completed = $5 = 'completed',
                   ended_at = at.now, phase = null, last_output_age_ms = null, version = b.version + 1,
                   last_seq = case when $5 = 'completed' then $10 else null end,
                   commit_sha = $12, step_results = $13,
                   duration_ms = run_time_ms(
                       $5, b.started_at, b.lease_expires_at, b.max_duration_seconds, $9, at.now),
                   charged_seconds = least(b.max_duration_seconds, ceil(run_time_ms(
                       $5, b.started_at, b.lease_expires_at, b.max_duration_seconds, $9, at.now) / 1000.0)::bigint)
               from (select clock_timestamp() as now) at, log_heads h
               where b.id = $1 and h.build_id = b.id and b.status = 'running'
                   and case $5
                       when 'completed' then
                           b.claimed_by = $6 and ($2 <> 'cancelled' or b.cancel_requested_at is not null)
                           and (h.next_seq > $10 or $11)
                           and exists (select from tokens t
                               where t.id = $6 and t.digest = $7 and t.kind = 'worker' and t.revoked_at is null)
                       when 'lost' then b.lease_expires_at < at.now - $8::bigint * interval '1 ms'
                       else b.started_at + b.max_duration_seconds * interval '1 s' < at.now - $8::bigint * interval '1 ms'
                       end
               returning b.id, b.workspace_id, b.max_duration_seconds, b.charged_seconds, b.ended_at, b.duration_ms
           ), charged as (
               insert into charges (build_id, workspace_id, month, seconds, charged_at)
               select id, workspace_id, month_of(ended_at), charged_seconds, ended_at from ended
           ), freed as (
               update workspaces w
               set running = w.running - 1, reserved_seconds = w.reserved_seconds - e.max_duration_seconds,
                   charged_seconds = e.charged_seconds
                       + case when w.charged_month >= month_of(e.ended_at) then w.charged_seconds else 0 end,
                   charged_month = greatest(w.charged_month, month_of(e.ended_at))
               from ended e where w.id = e.workspace_id
           )
           select duration_ms as "duration_ms!", charged_seconds as "charged_seconds!" from ended"#,
        build,
        end.status.as_str(),
        end.reason.map(EndReason::as_str),
        end.message,
        end.kind,
        end.token,
        end.digest,
        end.grace_ms,
        end.ran_ms,
        end.last_seq,
        end.logs_lost,
        end.commit,
        Json(end.steps) as _,
    )
    .fetch_optional(&store.pool)
    .await?;
    fail::fail_point!("finish.written");
    Ok(row.map(|row| Ended {
        duration_ms: u64::try_from(row.duration_ms).unwrap_or(0),
        charged_seconds: u32::try_from(row.charged_seconds).unwrap_or(0),
    }))
}
