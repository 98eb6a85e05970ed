//! A build's row while it is held: renewed, and how a token stands to it (SPEC.md, Per-build worker calls).

use crate::claims::ms;
use crate::columns;
use crate::{Error, Store};
use protocol::worker::{Heartbeat, Renewed};
use rules::ending::Held;
use rules::{CancelReason, Status, Timing};
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
        end_reason: row.end_reason.map(columns::end_reason),
        cancel: row.cancel_reason.map(|word| CancelReason::parse(&word).unwrap_or(CancelReason::User)),
        next_seq: row.next_seq.map_or(1, |seq| u64::try_from(seq).unwrap_or(1)),
        completed: row.completed == Some(true),
    };
    let duration_ms = row.duration_ms.map_or(0, |ms| u64::try_from(ms).unwrap_or(0));
    let charged_seconds = row.charged_seconds.map_or(0, |seconds| u32::try_from(seconds).unwrap_or(0));
    Ok(Standing::Held { held, duration_ms, charged_seconds })
}
