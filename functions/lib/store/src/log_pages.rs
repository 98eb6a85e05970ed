//! Reading a build's log, in order, a bounded piece at a time.

use crate::claims::ms;
use crate::columns::{self, status, unsigned};
use crate::{Error, Store};
use protocol::log::Stream;
use rules::{EndReason, Status, Timing};
use uuid::Uuid;

/// The most chunks that one read returns.
const CHUNKS_MAX: i64 = 2000;

/// How far a build and its log are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Progress {
    /// The build's state.
    pub status: Status,
    /// Why it ended.
    pub end_reason: Option<EndReason>,
    /// The last `seq` that is stored; 0 for none.
    pub stored_to: u64,
    /// The first `seq` that was discarded at the cap; it is `stored_to + 1`.
    pub discarded_from: Option<u64>,
    /// Whether the worker that completed the build may still append what it has not sent.
    pub is_awaited: bool,
    /// Whether it ended less than 10 s ago.
    pub just_ended: bool,
}

/// Reads how far a build of the workspace is. `None` if it has no such build.
///
/// Chunks that are read after this hold all that it says is stored.
///
/// # Errors
///
/// [`Error`] if the database fails.
pub async fn progress(store: &Store, workspace: Uuid, build: Uuid, timing: &Timing) -> Result<Option<Progress>, Error> {
    let row = sqlx::query!(
        r#"select b.status, b.end_reason, coalesce(h.discarded_from, h.next_seq, 1) - 1 as "stored_to!",
               h.discarded_from as "discarded_from?",
               b.completed and b.last_seq >= h.next_seq
                   and b.ended_at > clock_timestamp() - $3::bigint * interval '1 ms' as "is_awaited?",
               b.ended_at > clock_timestamp() - interval '10 s' as "just_ended?"
           from builds b left join log_heads h on h.build_id = b.id
           where b.id = $2 and b.workspace_id = $1"#,
        workspace,
        build,
        ms(timing.late_logs)
    )
    .fetch_optional(&store.pool)
    .await?;
    let Some(row) = row else { return Ok(None) };
    Ok(Some(Progress {
        status: status(row.status)?,
        end_reason: row.end_reason.map(columns::end_reason),
        stored_to: unsigned(row.stored_to),
        discarded_from: row.discarded_from.map(unsigned),
        is_awaited: row.is_awaited == Some(true),
        just_ended: row.just_ended == Some(true),
    }))
}

/// A chunk as it is stored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stored {
    /// Its number.
    pub seq: u64,
    /// The step it comes from.
    pub step: String,
    /// Which output.
    pub stream: Stream,
    /// When it was read, in milliseconds after the claim.
    pub at_ms: u64,
    /// Its bytes.
    pub content: Vec<u8>,
}

/// The chunks after `after`, in order, up to the one with which their bytes come to `bytes_max`.
///
/// # Errors
///
/// [`Error`] if the database fails.
pub async fn chunks(store: &Store, build: Uuid, after: u64, bytes_max: u32) -> Result<Vec<Stored>, Error> {
    let rows = sqlx::query!(
        "select seq, step, stream, at_ms, content from (
             select seq, step, stream, at_ms, content,
                 sum(octet_length(content)) over (order by seq) - octet_length(content) as before
             from build_logs where build_id = $1 and seq > $2 order by seq limit $4) c
         where before < $3 order by seq",
        build,
        i64::try_from(after).unwrap_or(i64::MAX),
        i64::from(bytes_max),
        CHUNKS_MAX
    )
    .fetch_all(&store.pool)
    .await?;
    rows.into_iter()
        .map(|row| {
            let stream = Stream::parse(&row.stream).ok_or(Error::Unreadable(row.stream))?;
            let (step, content) = (row.step, row.content);
            Ok(Stored { seq: unsigned(row.seq), step, stream, at_ms: unsigned(row.at_ms), content })
        })
        .collect()
}
