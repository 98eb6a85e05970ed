//! One build's chunks that the board has not acknowledged yet, numbered by one `seq` over all steps and streams.

use super::queue::Queue;
use protocol::log::{Chunk, Stream};
use protocol::worker::LogLimits;
use std::io;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::sync::Notify;

/// What waits for the board. Many may append, one ships.
#[derive(Debug)]
pub struct Journal {
    limits: LogLimits,
    queue: Mutex<Queue>,
    finished: Notify,
    arrived: Notify,
}

impl Journal {
    /// An empty journal whose spool is a file without a name in `directory`.
    ///
    /// # Errors
    ///
    /// If the file can't be made.
    pub fn new(limits: LogLimits, directory: &Path) -> io::Result<Self> {
        Ok(Self {
            limits,
            queue: Mutex::new(Queue::new(limits, directory)?),
            finished: Notify::new(),
            arrived: Notify::new(),
        })
    }

    /// How many bytes wait for the board on disk.
    #[must_use]
    pub fn spooled_bytes(&self) -> u64 {
        self.queue().spooled_bytes()
    }

    /// How the board wants its logs.
    #[must_use]
    pub fn limits(&self) -> LogLimits {
        self.limits
    }

    /// Appends whole characters of `stream`, read `at_ms` after the claim.
    pub fn append(&self, step: &Arc<str>, stream: Stream, at_ms: u64, bytes: &[u8]) {
        self.queue().append(step, stream, at_ms, bytes);
        self.arrived.notify_one();
    }

    /// Waits until something waits for the board; at once if it does.
    pub async fn arrived(&self) {
        while self.queue().is_empty() {
            self.arrived.notified().await;
        }
    }

    /// Nothing will be appended any more.
    pub fn finish(&self) {
        self.queue().finished = true;
        self.finished.notify_one();
    }

    /// Waits until [`Journal::finish`]; at once if that has been.
    pub async fn finished(&self) {
        if !self.is_finished() {
            self.finished.notified().await;
        }
    }

    /// Whether nothing will be appended any more.
    #[must_use]
    pub fn is_finished(&self) -> bool {
        self.queue().finished
    }

    /// The `seq` of the last chunk; 0 for none.
    #[must_use]
    pub fn last_seq(&self) -> u64 {
        let mut queue = self.queue();
        queue.close();
        queue.next_seq() - 1
    }

    /// The next chunks to send, as many as one request may carry; empty if none waits. The same again until they are
    /// acknowledged.
    ///
    /// # Errors
    ///
    /// If the spool can't be read.
    pub fn batch(&self) -> io::Result<Vec<Chunk>> {
        self.queue().batch()
    }

    /// The board has all up to, but not with, `next_seq`; with `capped` it wants no more.
    pub fn acknowledged(&self, next_seq: u64, capped: bool) {
        let mut queue = self.queue();
        queue.capped = queue.capped || capped;
        queue.forget_before(next_seq);
    }

    /// The board expects `expected_seq`: what it has is forgotten, the rest is numbered from there.
    pub fn resync(&self, expected_seq: u64) {
        self.queue().resync(expected_seq);
    }

    /// The board refuses the first waiting chunk: a marker takes its place.
    ///
    /// # Errors
    ///
    /// If the spool can't be written.
    pub fn replace_first(&self) -> io::Result<()> {
        self.queue().replace_first()
    }

    fn queue(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::logs::queue::CHUNKS_MAX;

    const LIMITS: LogLimits = LogLimits { max_chunk_bytes: 4, max_batch_bytes: 10, interval_ms: 1, cap_bytes: 1 << 20 };

    fn journal() -> Journal {
        Journal::new(LIMITS, &std::env::temp_dir()).unwrap()
    }

    fn say(journal: &Journal, stream: Stream, text: &str) {
        journal.append(&"test".into(), stream, 7, text.as_bytes());
    }

    fn waiting(journal: &Journal) -> Vec<(u64, String)> {
        journal.batch().unwrap().into_iter().map(|chunk| (chunk.seq, chunk.text.unwrap())).collect()
    }

    #[tokio::test]
    async fn who_waits_for_something_is_told_when_it_comes() {
        let journal = journal();
        let comes = async {
            tokio::task::yield_now().await;
            say(&journal, Stream::Stdout, "a");
        };
        tokio::join!(journal.arrived(), comes);
        assert_eq!(waiting(&journal), [(1, "a".into())]);
        journal.acknowledged(2, false);
        let nothing = tokio::time::timeout(std::time::Duration::from_millis(20), journal.arrived());
        assert!(nothing.await.is_err());
    }

    #[test]
    fn chunks_are_numbered_from_one_over_all_streams() {
        let journal = journal();
        say(&journal, Stream::Stdout, "ab");
        say(&journal, Stream::Stdout, "c");
        say(&journal, Stream::Stderr, "d");
        assert_eq!(waiting(&journal), [(1, "abc".into()), (2, "d".into())]);
        assert_eq!(journal.last_seq(), 2);
    }

    #[test]
    fn the_workers_own_words_begin_a_line() {
        let journal =
            Journal::new(LogLimits { max_chunk_bytes: 99, max_batch_bytes: 999, ..LIMITS }, &std::env::temp_dir());
        let journal = journal.unwrap();
        for (stream, text) in [
            (Stream::System, "Step\n"),
            (Stream::Stdout, "no newline"),
            (Stream::System, "exit code 0\n"),
            (Stream::Stderr, "newline\n"),
            (Stream::System, "exit code 1\n"),
        ] {
            say(&journal, stream, text);
        }
        let log: String = waiting(&journal).into_iter().map(|(_, text)| text).collect();
        assert_eq!(log, "Step\nno newline\nexit code 0\nnewline\nexit code 1\n");
    }

    #[test]
    fn a_batch_is_the_same_again_until_it_is_acknowledged() {
        let journal = journal();
        say(&journal, Stream::Stdout, "abcdefghijklmn");
        let first = waiting(&journal);
        assert_eq!(first, [(1, "abcd".into()), (2, "efgh".into())]);
        assert_eq!(waiting(&journal), first);
        journal.acknowledged(3, false);
        assert_eq!(waiting(&journal), [(3, "ijkl".into()), (4, "mn".into())]);
    }

    #[test]
    fn what_the_board_has_is_forgotten_when_it_says_so() {
        let journal = journal();
        say(&journal, Stream::Stdout, "abcdefgh");
        assert_eq!(journal.last_seq(), 2);
        journal.resync(2);
        assert_eq!(waiting(&journal), [(2, "efgh".into())]);
        journal.resync(9);
        assert_eq!(waiting(&journal), []);
        say(&journal, Stream::Stdout, "i");
        assert_eq!(waiting(&journal), [(9, "i".into())]);
    }

    #[test]
    fn a_board_that_lacks_what_it_acknowledged_leaves_no_hole() {
        let journal = journal();
        say(&journal, Stream::Stdout, "abcdefgh");
        assert_eq!(journal.last_seq(), 2);
        journal.acknowledged(2, false);
        journal.resync(1);
        assert_eq!(waiting(&journal), [(1, "efgh".into())]);
    }

    #[test]
    fn a_refused_chunk_becomes_a_marker_of_the_same_number() {
        let journal = journal();
        say(&journal, Stream::Stdout, "abcdefgh");
        assert_eq!(journal.last_seq(), 2);
        journal.replace_first().unwrap();
        assert_eq!(waiting(&journal)[0], (1, "[4 bytes that the board refused]\n".into()));
    }

    #[test]
    fn past_the_cap_nothing_is_kept() {
        let journal = journal();
        journal.acknowledged(1, true);
        say(&journal, Stream::Stdout, "abc");
        assert_eq!(journal.last_seq(), 0);
    }

    #[test]
    fn chunks_without_number_are_bounded_and_the_loss_is_named() {
        let journal = journal();
        for _ in 0..CHUNKS_MAX {
            say(&journal, Stream::Stdout, "o");
            say(&journal, Stream::Stderr, "e");
        }
        assert_eq!(journal.last_seq(), u64::try_from(CHUNKS_MAX).unwrap());
        journal.acknowledged(100, false);
        say(&journal, Stream::Stdout, "x");
        journal.acknowledged(journal.last_seq() - 1, false);
        assert_eq!(
            waiting(&journal)[0].1,
            format!("[{CHUNKS_MAX} bytes dropped while the board could not be reached]\n")
        );
    }
}
