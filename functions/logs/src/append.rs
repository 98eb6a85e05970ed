//! Appending a batch: one statement where it follows in order, else a decision under the log's lock.

use edge::{Rejection, Shell};
use protocol::Code;
use protocol::worker::LogStored;
use rules::logs::{self as rule, Order};
use store::logs::{self, Access, Head, NewChunk, Sender};
use uuid::Uuid;

/// Stores a batch, or says why not.
pub(crate) async fn append(
    shell: &Shell,
    build: Uuid,
    sender: Sender<'_>,
    chunks: &[NewChunk],
) -> Result<LogStored, Rejection> {
    let (timing, cap) = (&shell.config.timing, shell.config.log.cap_bytes);
    let rising = chunks.windows(2).all(|pair| pair[0].seq + 1 == pair[1].seq);
    if rising && let Some(done) = logs::append_next(&shell.store, build, sender, chunks, timing, cap).await? {
        let (next_seq, cancel) = (done.next_seq, done.cancel);
        return Ok(LogStored { stored: count(chunks), duplicates: 0, next_seq, capped: false, cancel });
    }
    decide(shell, build, sender, chunks).await
}

/// Locks the head, asks the rule, writes what it says.
async fn decide(shell: &Shell, build: Uuid, sender: Sender<'_>, chunks: &[NewChunk]) -> Result<LogStored, Rejection> {
    let mut tx = shell.store.begin().await?;
    let head = match logs::lock_head(&mut tx, build, sender, &shell.config.timing).await? {
        Access::Unauthorized => return Err(Rejection::Unauthorized),
        Access::NotFound => return Err(Rejection::NotFound),
        Access::Locked(head) => head,
    };
    check_open(&head, chunks)?;
    let seqs: Vec<u64> = chunks.iter().map(|chunk| chunk.seq).collect();
    let known: Vec<u64> = seqs.iter().copied().filter(|seq| *seq < head.next_seq).collect();
    let stored = logs::stored(&mut tx, build, &known).await?;
    let same = |at: usize| match stored.get(&seqs[at]) {
        Some(bytes) => *bytes == chunks[at].content,
        None => head.discarded_from.is_some_and(|from| seqs[at] >= from),
    };
    let duplicates = match rule::order(&seqs, head.next_seq, same) {
        Order::Append { duplicates } => duplicates,
        Order::Conflict { expected_seq } => {
            return Err(Rejection::Sequence { code: Code::SeqConflict, expected_seq });
        }
        Order::Gap { expected_seq } => return Err(Rejection::Sequence { code: Code::LogGap, expected_seq }),
        Order::Disordered => return Err(Rejection::invalid("chunks", "seq begins at 1 and rises by one")),
    };
    let new = &chunks[duplicates..];
    let kept = rule::stored_before_cap(
        &new.iter().map(|chunk| chunk.encoded_bytes).collect::<Vec<_>>(),
        head.bytes,
        head.discarded_from.is_some(),
        shell.config.log.cap_bytes,
    );
    let (kept, discarded) = new.split_at(kept);
    logs::insert(&mut tx, build, kept).await?;
    let next_seq = new.last().map_or(head.next_seq, |chunk| chunk.seq + 1);
    let bytes = kept.iter().map(|chunk| chunk.encoded_bytes).sum();
    let discarded_from = discarded.first().map(|chunk| chunk.seq);
    logs::advance(&mut tx, build, next_seq, bytes, discarded_from).await?;
    tx.commit().await?;
    store::fail_point!("logs.committed");
    Ok(LogStored {
        stored: count(kept),
        duplicates: u64::try_from(duplicates).unwrap_or(u64::MAX),
        next_seq,
        capped: head.discarded_from.or(discarded_from).is_some(),
        cancel: head.cancel,
    })
}

/// A log is open while its build runs, and for a while up to what its completed build announced.
fn check_open(head: &Head, chunks: &[NewChunk]) -> Result<(), Rejection> {
    let last = chunks.last().map_or(0, |chunk| chunk.seq);
    let open = !head.status.is_final() || head.late_until.is_some_and(|until| last <= until);
    if open { Ok(()) } else { Err(Rejection::ended(head.status, head.end_reason)) }
}

fn count(chunks: &[NewChunk]) -> u64 {
    u64::try_from(chunks.len()).unwrap_or(u64::MAX)
}
