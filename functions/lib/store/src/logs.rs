//! Appending chunks to a build's log (SPEC.md, Logs): one statement where they follow in order, a locked head where a
//! decision is needed.

use crate::claims::ms;
use crate::columns;
use crate::{Error, Store, Transaction};
use protocol::log::Stream;
use rules::{CancelReason, EndReason, Status, Timing};
use std::collections::HashMap;
use uuid::Uuid;

/// A chunk to store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewChunk {
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
    /// What the limits count: its bytes as they were encoded.
    pub encoded_bytes: u64,
}

/// Who sends chunks: the token that claimed the build, with its digest unless a log token stands for it.
#[derive(Clone, Copy, Debug)]
pub struct Sender<'a> {
    /// The token's id.
    pub token: &'a str,
    /// The token's digest; `None` if the build's own log token was verified.
    pub digest: Option<&'a [u8]>,
}

/// What a stored batch tells its sender.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Appended {
    /// The `seq` expected next.
    pub next_seq: u64,
    /// Whether to stop, and why.
    pub cancel: Option<CancelReason>,
}

struct Columns {
    seqs: Vec<i64>,
    steps: Vec<String>,
    streams: Vec<String>,
    at_ms: Vec<i64>,
    contents: Vec<Vec<u8>>,
}

impl From<&[NewChunk]> for Columns {
    fn from(chunks: &[NewChunk]) -> Self {
        Self {
            seqs: chunks.iter().map(|chunk| signed(chunk.seq)).collect(),
            steps: chunks.iter().map(|chunk| chunk.step.clone()).collect(),
            streams: chunks.iter().map(|chunk| chunk.stream.as_str().to_owned()).collect(),
            at_ms: chunks.iter().map(|chunk| signed(chunk.at_ms)).collect(),
            contents: chunks.iter().map(|chunk| chunk.content.clone()).collect(),
        }
    }
}

/// Appends chunks that follow the last stored one without a gap, below the cap, from a token that may. `None`: one of
/// these does not hold, and nothing was written.
///
/// # Errors
///
/// [`Error`] if the database fails.
pub async fn append_next(
    store: &Store,
    build: Uuid,
    sender: Sender<'_>,
    chunks: &[NewChunk],
    timing: &Timing,
    cap_bytes: u64,
) -> Result<Option<Appended>, Error> {
    let (Some(first), Some(last)) = (chunks.first(), chunks.last()) else { return Ok(None) };
    let size = chunks.iter().map(|chunk| chunk.encoded_bytes).sum();
    let columns = Columns::from(chunks);
    let row = sqlx::query!(
        r#"with head as (
               update log_heads h set next_seq = $6::bigint + 1, bytes = h.bytes + $7
               from builds b join tokens t on t.id = b.claimed_by
               where h.build_id = $1 and b.id = $1 and b.claimed_by = $2
                   and ($3::bytea is null or t.digest = $3) and t.revoked_at is null
                   and h.next_seq = $5 and h.discarded_from is null and h.bytes + $7 <= $8
                   and (b.status = 'running' or (b.completed and $6 <= b.last_seq
                       and b.ended_at > clock_timestamp() - $4::bigint * interval '1 ms'))
               returning h.next_seq, b.cancel_reason
           ), stored as (
               insert into build_logs (build_id, seq, step, stream, at_ms, content)
               select $1, c.* from head, unnest($9::bigint[], $10::text[], $11::text[], $12::bigint[], $13::bytea[]) c
           )
           select next_seq, cancel_reason from head"#,
        build,
        sender.token,
        sender.digest,
        ms(timing.late_logs),
        signed(first.seq),
        signed(last.seq),
        signed(size),
        signed(cap_bytes),
        &columns.seqs,
        &columns.steps,
        &columns.streams,
        &columns.at_ms,
        &columns.contents
    )
    .fetch_optional(&store.pool)
    .await?;
    fail::fail_point!("logs.appended");
    Ok(row.map(|row| Appended { next_seq: unsigned(row.next_seq), cancel: cancel(row.cancel_reason) }))
}

/// A log's head, locked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Head {
    /// The `seq` expected next.
    pub next_seq: u64,
    /// Encoded bytes stored so far.
    pub bytes: u64,
    /// The first `seq` that was discarded at the cap.
    pub discarded_from: Option<u64>,
    /// The build's state.
    pub status: Status,
    /// Why it ended.
    pub end_reason: Option<EndReason>,
    /// Up to which `seq` chunks may still come although it ended; `None` if none may.
    pub late_until: Option<u64>,
    /// Whether to stop, and why.
    pub cancel: Option<CancelReason>,
}

/// How a log's sender stands to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// The token is unknown or revoked.
    Unauthorized,
    /// The build is unknown, or another token's.
    NotFound,
    /// The head, locked until the transaction ends.
    Locked(Head),
}

/// Locks a log's head for a sender until the transaction ends.
///
/// # Errors
///
/// [`Error`] if the database fails.
pub async fn lock_head(
    tx: &mut Transaction,
    build: Uuid,
    sender: Sender<'_>,
    timing: &Timing,
) -> Result<Access, Error> {
    let known = sqlx::query_scalar!(
        r#"select true as "known!" from tokens
           where id = $1 and ($2::bytea is null or digest = $2) and kind = 'worker' and revoked_at is null"#,
        sender.token,
        sender.digest
    );
    if known.fetch_optional(&mut *tx).await?.is_none() {
        return Ok(Access::Unauthorized);
    }
    let row = sqlx::query!(
        r#"select h.next_seq, h.bytes, h.discarded_from, b.status, b.end_reason, b.cancel_reason,
               case when b.completed and b.ended_at > clock_timestamp() - $3::bigint * interval '1 ms'
                   then b.last_seq end as late_until
           from (select * from log_heads where build_id = $1 for no key update) h
           join builds b on b.id = h.build_id and b.claimed_by = $2"#,
        build,
        sender.token,
        ms(timing.late_logs)
    )
    .fetch_optional(&mut *tx)
    .await?;
    let Some(row) = row else { return Ok(Access::NotFound) };
    Ok(Access::Locked(Head {
        next_seq: unsigned(row.next_seq),
        bytes: unsigned(row.bytes),
        discarded_from: row.discarded_from.map(unsigned),
        status: Status::parse(&row.status).ok_or(Error::Unreadable(row.status))?,
        end_reason: row.end_reason.map(columns::end_reason),
        late_until: row.late_until.map(unsigned),
        cancel: cancel(row.cancel_reason),
    }))
}

/// The stored bytes under these numbers.
///
/// # Errors
///
/// [`Error`] if the database fails.
pub async fn stored(tx: &mut Transaction, build: Uuid, seqs: &[u64]) -> Result<HashMap<u64, Vec<u8>>, Error> {
    let seqs: Vec<i64> = seqs.iter().copied().map(signed).collect();
    let rows = sqlx::query!("select seq, content from build_logs where build_id = $1 and seq = any ($2)", build, &seqs)
        .fetch_all(tx)
        .await?;
    Ok(rows.into_iter().map(|row| (unsigned(row.seq), row.content)).collect())
}

/// Stores chunks under a locked head.
///
/// # Errors
///
/// [`Error`] if the database fails.
pub async fn insert(tx: &mut Transaction, build: Uuid, chunks: &[NewChunk]) -> Result<(), Error> {
    let columns = Columns::from(chunks);
    sqlx::query!(
        "insert into build_logs (build_id, seq, step, stream, at_ms, content)
         select $1, c.* from unnest($2::bigint[], $3::text[], $4::text[], $5::bigint[], $6::bytea[]) c",
        build,
        &columns.seqs,
        &columns.steps,
        &columns.streams,
        &columns.at_ms,
        &columns.contents
    )
    .execute(tx)
    .await?;
    fail::fail_point!("logs.inserted");
    Ok(())
}

/// Moves a locked head on.
///
/// # Errors
///
/// [`Error`] if the database fails.
pub async fn advance(
    tx: &mut Transaction,
    build: Uuid,
    next_seq: u64,
    stored_bytes: u64,
    discarded_from: Option<u64>,
) -> Result<(), Error> {
    sqlx::query!(
        "update log_heads set next_seq = $2, bytes = bytes + $3, discarded_from = coalesce(discarded_from, $4)
         where build_id = $1 and next_seq <= $2",
        build,
        signed(next_seq),
        signed(stored_bytes),
        discarded_from.map(signed)
    )
    .execute(tx)
    .await?;
    fail::fail_point!("logs.advanced");
    Ok(())
}

fn cancel(word: Option<String>) -> Option<CancelReason> {
    word.map(|word| CancelReason::parse(&word).unwrap_or(CancelReason::User))
}

/// The database counts one past it, so the largest that it holds is none; a `seq` like that is never the expected one.
fn signed(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX).min(i64::MAX - 1)
}

fn unsigned(number: i64) -> u64 {
    u64::try_from(number).unwrap_or(0)
}
