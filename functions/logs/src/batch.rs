//! A batch as it came, checked against the limits and decoded.

use edge::Rejection;
use protocol::log::{BadContent, Chunk};
use protocol::worker::{LogBatch, LogLimits};
use store::logs::NewChunk;

/// The most chunks of one batch.
const CHUNKS_MAX: usize = 4096;
/// The longest name of a step that is kept, in bytes.
const STEP_MAX_BYTES: usize = 256;

/// Checks and decodes a batch.
pub(crate) fn read(batch: LogBatch, limits: &LogLimits) -> Result<Vec<NewChunk>, Rejection> {
    let total: usize = batch.chunks.iter().map(Chunk::encoded_bytes).sum();
    if total > limits.max_batch_bytes || batch.chunks.len() > CHUNKS_MAX {
        let max = limits.max_batch_bytes;
        return Err(Rejection::TooLarge(format!("a batch holds at most {max} bytes in {CHUNKS_MAX} chunks")));
    }
    batch.chunks.into_iter().enumerate().map(|(at, chunk)| decode(at, chunk, limits.max_chunk_bytes)).collect()
}

fn decode(at: usize, mut chunk: Chunk, max_bytes: usize) -> Result<NewChunk, Rejection> {
    let encoded = chunk.encoded_bytes();
    if encoded > max_bytes {
        return Err(Rejection::TooLarge(format!("chunks[{at}] holds more than {max_bytes} bytes")));
    }
    let content = chunk.bytes().map_err(|bad| {
        let detail = match bad {
            BadContent::NotOne => "give text, or base64 where it is not UTF-8",
            BadContent::NotBase64 => "base64 is not base64",
        };
        Rejection::invalid(format!("chunks[{at}]"), detail)
    })?;
    if i64::try_from(chunk.seq).is_err() || i64::try_from(chunk.at_ms).is_err() {
        return Err(Rejection::invalid(format!("chunks[{at}].seq"), "larger than any build's"));
    }
    chunk.step.retain(|letter| letter != '\0');
    chunk.step.truncate(chunk.step.floor_char_boundary(STEP_MAX_BYTES));
    let encoded_bytes = u64::try_from(encoded).unwrap_or(u64::MAX);
    let (seq, step, stream, at_ms) = (chunk.seq, chunk.step, chunk.stream, chunk.at_ms);
    Ok(NewChunk { seq, step, stream, at_ms, content, encoded_bytes })
}
