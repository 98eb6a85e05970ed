//! The chunks that wait, and the one that still grows: what a journal does under its lock.

use super::asides::{Aside, Asides, Place};
use super::cut::cut;
use super::spool::{Piece, Spool};
use protocol::log::{Chunk, Stream};
use protocol::worker::LogLimits;
use std::collections::VecDeque;
use std::io;
use std::path::Path;
use std::sync::Arc;
use tracing::warn;

/// The most bytes that wait on disk, and the most chunks that wait at all: so much memory and disk may a build's log
/// take while the board is away.
const SPOOL_MAX_BYTES: u64 = 96 * 1024 * 1024;
pub(super) const CHUNKS_MAX: usize = 50_000;
/// The most chunks of one request, whatever their size.
const BATCH_MAX_CHUNKS: usize = 256;

#[derive(Debug)]
pub(super) struct Queue {
    limits: LogLimits,
    /// The `seq` of the first waiting chunk.
    first_seq: u64,
    waiting: VecDeque<Waiting>,
    open: Option<Open>,
    spool: Spool,
    /// Bytes that found no place since the last chunk that did.
    dropped_bytes: u64,
    /// Whether it was the disk that had none.
    disk_failed: bool,
    /// The step that wrote last.
    step: Arc<str>,
    /// Whether what was written last has not ended with a newline.
    within_line: bool,
    asides: Asides,
    pub(super) capped: bool,
    finished: bool,
}

#[derive(Debug)]
struct Waiting {
    step: Arc<str>,
    stream: Stream,
    at_ms: u64,
    piece: Piece,
}

/// The chunk that still grows.
#[derive(Debug)]
struct Open {
    step: Arc<str>,
    stream: Stream,
    at_ms: u64,
    bytes: Vec<u8>,
}

impl Queue {
    pub(super) fn new(limits: LogLimits, directory: &Path) -> io::Result<Self> {
        Spool::new(directory).map(|spool| Self::over(limits, spool))
    }

    fn over(limits: LogLimits, spool: Spool) -> Self {
        Self {
            limits,
            first_seq: 1,
            waiting: VecDeque::new(),
            open: None,
            spool,
            dropped_bytes: 0,
            disk_failed: false,
            step: "".into(),
            within_line: false,
            asides: Asides::default(),
            capped: false,
            finished: false,
        }
    }

    /// Appends what a step wrote to `stream`, which is at `place` since. What waits for the end of a line is told where that is.
    pub(super) fn write(&mut self, step: &Arc<str>, stream: Stream, at_ms: u64, bytes: &[u8], place: Place) {
        let (line, rest) = bytes.split_at(self.asides.gap(stream, bytes).unwrap_or(0));
        if !line.is_empty() {
            self.append(step, stream, at_ms, line);
            self.tell_asides();
        }
        self.append(step, stream, at_ms, rest);
        self.asides.heard(stream, place, at_ms);
        self.tell_due(at_ms);
    }

    /// Appends a line of the worker's own, behind those that wait.
    pub(super) fn say(&mut self, step: &Arc<str>, at_ms: u64, line: &[u8]) {
        self.tell_asides();
        self.append(step, Stream::System, at_ms, line);
    }

    /// The same, but at the end of the line that a step is at.
    pub(super) fn mention(&mut self, step: &Arc<str>, at_ms: u64, line: &[u8]) {
        self.asides.push(Aside { step: Arc::clone(step), at_ms, line: line.to_vec() });
        self.tell_due(at_ms);
    }

    /// Tells what waits and is due by now; returns when what is left will be, in milliseconds after the claim.
    pub(super) fn tell_due(&mut self, at_ms: u64) -> Option<u64> {
        let due_at_ms = self.asides.due_at_ms()?;
        if due_at_ms > at_ms {
            return Some(due_at_ms);
        }
        self.tell_asides();
        None
    }

    /// Nothing will be appended any more.
    pub(super) fn finish(&mut self) {
        self.tell_asides();
        self.finished = true;
    }

    fn tell_asides(&mut self) {
        for Aside { step, at_ms, line } in self.asides.take() {
            self.append(&step, Stream::System, at_ms, &line);
        }
    }

    fn append(&mut self, step: &Arc<str>, stream: Stream, at_ms: u64, bytes: &[u8]) {
        if self.capped || bytes.is_empty() {
            return;
        }
        if self.open.as_ref().is_some_and(|open| open.stream != stream || open.step != *step) {
            self.close();
        }
        self.step = Arc::clone(step);
        // The worker's own words begin a line, whatever a step left unfinished: readers put all streams one behind the other.
        let begin: &[u8] = if stream == Stream::System && self.within_line { b"\n" } else { b"" };
        self.within_line = bytes.last() != Some(&b'\n');
        let open = self.open.get_or_insert_with(|| Open { step: step.clone(), stream, at_ms, bytes: Vec::new() });
        open.at_ms = at_ms;
        open.bytes.extend_from_slice(begin);
        open.bytes.extend_from_slice(bytes);
        if open.bytes.len() >= self.limits.max_chunk_bytes {
            self.close();
        }
    }

    pub(super) fn batch(&mut self) -> io::Result<Vec<Chunk>> {
        self.close();
        self.name_the_loss();
        let (mut chunks, mut size) = (Vec::new(), 0);
        for (waiting, seq) in self.waiting.iter().zip(self.first_seq..).take(BATCH_MAX_CHUNKS) {
            let bytes = self.spool.read(&waiting.piece)?;
            let chunk = Chunk::new(seq, &waiting.step, waiting.stream, waiting.at_ms, &bytes);
            size += chunk.encoded_bytes();
            if !chunks.is_empty() && size > self.limits.max_batch_bytes {
                break;
            }
            chunks.push(chunk);
        }
        Ok(chunks)
    }

    pub(super) fn resync(&mut self, expected_seq: u64) {
        self.forget_before(expected_seq);
        self.first_seq = expected_seq.max(1);
    }

    pub(super) fn replace_first(&mut self) -> io::Result<()> {
        let Some(first) = self.waiting.front_mut() else {
            return Ok(());
        };
        let marker = format!("[{} bytes that the board refused]\n", first.piece.length());
        self.spool.forget(&first.piece);
        (first.stream, first.piece) = (Stream::System, self.spool.put_line(&marker));
        Ok(())
    }

    pub(super) fn is_finished(&self) -> bool {
        self.finished
    }

    /// Whether nothing waits for the board.
    pub(super) fn is_empty(&self) -> bool {
        self.open.is_none() && self.waiting.is_empty() && self.dropped_bytes == 0
    }

    pub(super) fn spooled_bytes(&self) -> u64 {
        self.spool.size()
    }

    pub(super) fn next_seq(&self) -> u64 {
        self.first_seq + u64::try_from(self.waiting.len()).unwrap_or(0)
    }

    /// Makes chunks of what is open.
    pub(super) fn close(&mut self) {
        let Some(open) = self.open.take() else {
            return;
        };
        let mut bytes = open.bytes.as_slice();
        while !bytes.is_empty() {
            let (chunk, rest) = bytes.split_at(cut(bytes, self.limits.max_chunk_bytes));
            self.put(&open, chunk);
            bytes = rest;
        }
    }

    fn put(&mut self, open: &Open, bytes: &[u8]) {
        let piece = if self.has_place() { self.kept(bytes) } else { None };
        match piece {
            Some(piece) => {
                self.name_the_loss();
                let (step, stream, at_ms) = (Arc::clone(&open.step), open.stream, open.at_ms);
                self.waiting.push_back(Waiting { step, stream, at_ms, piece });
            }
            None => self.dropped_bytes += u64::try_from(bytes.len()).unwrap_or(0),
        }
    }

    fn kept(&mut self, bytes: &[u8]) -> Option<Piece> {
        let put = self.spool.put(bytes);
        if let Err(error) = &put
            && !std::mem::replace(&mut self.disk_failed, true)
        {
            warn!(%error, "output of a build finds no place on disk, and memory for it is used up: it is dropped");
        }
        put.ok()
    }

    fn has_place(&self) -> bool {
        self.waiting.len() < CHUNKS_MAX && self.spool.size() < SPOOL_MAX_BYTES
    }

    /// Writes a marker for what was dropped, as soon as there is place again.
    fn name_the_loss(&mut self) {
        if self.dropped_bytes == 0 || !self.has_place() {
            return;
        }
        let why = match std::mem::take(&mut self.disk_failed) {
            true => "since the worker's disk was full",
            false => "while the board could not be reached",
        };
        let piece = self.spool.put_line(&format!("[{} bytes dropped {why}]\n", self.dropped_bytes));
        self.dropped_bytes = 0;
        let at_ms = self.waiting.back().map_or(0, |last| last.at_ms);
        self.waiting.push_back(Waiting { step: Arc::clone(&self.step), stream: Stream::System, at_ms, piece });
    }

    pub(super) fn forget_before(&mut self, seq: u64) {
        while self.first_seq < seq
            && let Some(first) = self.waiting.pop_front()
        {
            self.spool.forget(&first.piece);
            self.first_seq += 1;
        }
        if self.waiting.is_empty() {
            self.spool.clear();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::File;

    /// On a disk that is full from the beginning.
    fn queue() -> Queue {
        let limits =
            LogLimits { max_chunk_bytes: 1 << 20, max_batch_bytes: 1 << 30, interval_ms: 1, cap_bytes: u64::MAX };
        Queue::over(limits, Spool::over(File::options().read(true).write(true).open("/dev/full").unwrap()))
    }

    fn write(queue: &mut Queue, text: &str) {
        queue.write(&"test".into(), Stream::Stdout, 7, text.as_bytes(), Place::Begin);
        queue.close();
    }

    fn waiting(queue: &mut Queue) -> Vec<String> {
        queue.batch().unwrap().into_iter().map(|chunk| chunk.text.unwrap()).collect()
    }

    #[test]
    fn a_full_disk_loses_nothing_that_the_board_takes() {
        let mut queue = queue();
        for n in 1..=20 {
            let text = format!("{n}\n").repeat(300_000);
            write(&mut queue, &text);
            assert_eq!(waiting(&mut queue).concat(), text);
            queue.forget_before(queue.next_seq());
        }
    }

    #[test]
    fn what_a_full_disk_loses_is_named_for_what_it_is() {
        let mut queue = queue();
        (0..6).for_each(|_| write(&mut queue, &"x".repeat(1 << 20)));
        let said = waiting(&mut queue);
        assert_eq!(said.len(), 5);
        assert_eq!(said[4], format!("[{} bytes dropped since the worker's disk was full]\n", 2 << 20));
        queue.forget_before(queue.next_seq());
        write(&mut queue, "after");
        assert_eq!(waiting(&mut queue), ["after"]);
        assert!(queue.next_seq() == 7);
    }
}
