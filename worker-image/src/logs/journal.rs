//! One build's chunks that the board has not acknowledged yet, numbered by one `seq` over all steps and streams.

use super::asides::Place;
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

    /// Appends whole characters of a step's `stream`, read `at_ms` after the claim, which is at `place` since.
    pub fn write(&self, step: &Arc<str>, stream: Stream, at_ms: u64, bytes: &[u8], place: Place) {
        self.queue().write(step, stream, at_ms, bytes, place);
        self.arrived.notify_one();
    }

    /// Appends a line of the worker's own now, `at_ms` after the claim.
    pub fn say(&self, step: &Arc<str>, at_ms: u64, line: &[u8]) {
        self.queue().say(step, at_ms, line);
        self.arrived.notify_one();
    }

    /// Appends a line of the worker's own once no line of a step's is cut by it, or [`Journal::tell_due`] is called in time.
    pub fn mention(&self, step: &Arc<str>, at_ms: u64, line: &[u8]) {
        self.queue().mention(step, at_ms, line);
        self.arrived.notify_one();
    }

    /// Appends what was mentioned and has waited long enough `at_ms` after the claim. Returns how many milliseconds later what
    /// is left will have, if anything is; never 0.
    pub fn tell_due(&self, at_ms: u64) -> Option<u64> {
        let due_at_ms = self.queue().tell_due(at_ms);
        self.arrived.notify_one();
        due_at_ms.map(|due_at_ms| due_at_ms - at_ms)
    }

    /// Waits until something waits for the board; at once if it does.
    pub async fn arrived(&self) {
        while self.queue().is_empty() {
            self.arrived.notified().await;
        }
    }

    /// Nothing will be appended any more.
    pub fn finish(&self) {
        self.queue().finish();
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
        self.queue().is_finished()
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
        match stream {
            Stream::System => journal.say(&"test".into(), 7, text.as_bytes()),
            Stream::Stdout | Stream::Stderr => write(journal, stream, 7, text),
        }
    }

    /// Of a stream that is where its text says.
    fn write(journal: &Journal, stream: Stream, at_ms: u64, text: &str) {
        let place = if text.ends_with('\n') { Place::Begin } else { Place::Within };
        journal.write(&"test".into(), stream, at_ms, text.as_bytes(), place);
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

    fn log(journal: &Journal) -> String {
        waiting(journal).into_iter().map(|(_, text)| text).collect()
    }

    /// A journal in which something was mentioned at 1000 ms, after this was written.
    fn mentioned_after(text: &str) -> Journal {
        let limits = LogLimits { max_chunk_bytes: 99, max_batch_bytes: 999, ..LIMITS };
        let journal = Journal::new(limits, &std::env::temp_dir()).unwrap();
        write(&journal, Stream::Stdout, 900, text);
        journal.mention(&"test".into(), 1000, b"refused\n");
        journal
    }

    #[test]
    fn what_is_mentioned_cuts_no_line_of_a_step() {
        let journal = mentioned_after("one\n");
        assert_eq!(log(&journal), "one\nrefused\n");
        let journal = mentioned_after("one\ntw");
        assert_eq!(log(&journal), "one\ntw");
        write(&journal, Stream::Stdout, 1100, "o\nthree\nfou");
        assert_eq!(log(&journal), "one\ntwo\nrefused\nthree\nfou");
        assert_eq!(journal.tell_due(99_999), None);
    }

    #[tokio::test]
    async fn what_is_mentioned_is_told_when_its_time_has_come_and_wakes_who_waits() {
        let journal = mentioned_after("password: ");
        assert_eq!(journal.tell_due(1100), Some(400));
        journal.batch().unwrap();
        journal.acknowledged(2, false);
        assert_eq!(journal.tell_due(1500), None);
        journal.arrived().await;
        assert_eq!(waiting(&journal), [(2, "\nrefused\n".into())]);
    }

    #[test]
    fn what_is_mentioned_comes_before_whatever_the_worker_says_next_and_before_the_end() {
        let journal = mentioned_after("one");
        say(&journal, Stream::System, "exit code 0\n");
        assert_eq!(log(&journal), "one\nrefused\nexit code 0\n");
        let journal = mentioned_after("one");
        journal.finish();
        assert_eq!(log(&journal), "one\nrefused\n");
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
