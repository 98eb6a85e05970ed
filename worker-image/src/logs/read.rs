//! Reads a task's output as bytes, masks it, and hands whole characters on: a build's to its journal.

use super::asides::Place;
use super::commands::Commands;
use super::cue::{Cues, Piece};
use super::cut::whole_chars;
use super::journal::Journal;
use crate::clock::{Boot, millis};
use crate::lease::Lease;
use crate::mask::{Masker, Masks};
use protocol::log::Stream;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncReadExt as _};
use tokio::task::JoinHandle;
use tokio::time::{sleep, timeout};
use tokio_util::sync::CancellationToken;

const READ_BYTES: usize = 32 * 1024;
/// How long a stream is silent before it is taken not to go on in the middle of something.
const QUIET: Duration = Duration::from_millis(200);
/// How much of the end of a stream is kept for an error message.
const TAIL_BYTES: usize = 2048;

/// Where one step's output goes.
#[derive(Clone, Debug)]
pub struct Sink {
    /// The build's journal.
    pub journal: Arc<Journal>,
    /// The build's secrets.
    pub masks: Arc<Masks>,
    /// The build's lease, which knows when the step last wrote.
    pub lease: Arc<Lease>,
    /// The step's name.
    pub step: Arc<str>,
}

impl Sink {
    /// Appends a line of the worker's own now.
    pub fn say(&self, line: &str) {
        self.journal.say(&self.step, self.at_ms(), &self.masked(line));
    }

    /// Appends a line of the worker's own while a step may be writing: at the end of the step's line, or after a while.
    pub fn mention(&self, line: &str) {
        self.journal.mention(&self.step, self.at_ms(), &self.masked(line));
        tokio::spawn(self.clone().until_told());
    }

    async fn until_told(self) {
        while let Some(wait_ms) = self.journal.tell_due(self.at_ms()) {
            sleep(Duration::from_millis(wait_ms)).await;
        }
    }

    fn masked(&self, line: &str) -> Vec<u8> {
        self.masks.text(&format!("{line}\n")).into_bytes()
    }

    fn at_ms(&self) -> u64 {
        millis(Boot::now().since(self.lease.sent_at))
    }
}

/// Where a task's output goes, masked and in whole characters.
pub trait Outlet: Send + 'static {
    /// Something was read, whatever of it may be shown by now.
    fn seen(&self) {}

    /// Takes what comes next, which may be nothing; the stream is at `place` since.
    fn take(&self, bytes: &[u8], place: Place);
}

/// A build's journal, or nothing.
struct ToJournal {
    sink: Sink,
    shown: Option<Stream>,
}

impl Outlet for ToJournal {
    fn seen(&self) {
        self.sink.lease.output_seen();
    }

    fn take(&self, bytes: &[u8], place: Place) {
        if let Some(stream) = self.shown {
            self.sink.journal.write(&self.sink.step, stream, self.sink.at_ms(), bytes, place);
        }
    }
}

/// A stream that is being read.
#[derive(Debug)]
pub struct Reading {
    task: JoinHandle<()>,
    enough: CancellationToken,
    tail: Arc<Mutex<Vec<u8>>>,
}

impl Reading {
    /// Waits for the stream's end, but no longer than `patience`: a process that keeps it open can't hold the build.
    /// Returns the end of what was read, masked.
    pub async fn end(mut self, patience: Duration) -> String {
        if timeout(patience, &mut self.task).await.is_err() {
            self.enough.cancel();
            self.task.await.ok();
        }
        let tail = self.tail.lock().unwrap_or_else(PoisonError::into_inner);
        String::from_utf8_lossy(&tail).into_owned()
    }
}

/// Begins to read `from`, in which the cues of `commands` stand. What is not `shown` goes to the tail only.
pub fn read(
    from: impl AsyncRead + Send + Unpin + 'static,
    sink: Sink,
    stream: Stream,
    commands: Option<Arc<Commands>>,
    shown: bool,
) -> Reading {
    let masks = Arc::clone(&sink.masks);
    let cued = commands.map(|commands| Cued { cues: Cues::new(commands.cue().clone()), commands, stream });
    begin(from, masks, cued, ToJournal { sink, shown: shown.then_some(stream) })
}

/// Begins to read `from`.
pub fn read_to(from: impl AsyncRead + Send + Unpin + 'static, masks: Arc<Masks>, outlet: impl Outlet) -> Reading {
    begin(from, masks, None, outlet)
}

fn begin(
    from: impl AsyncRead + Send + Unpin + 'static,
    masks: Arc<Masks>,
    cued: Option<Cued>,
    outlet: impl Outlet,
) -> Reading {
    let (enough, tail) = (CancellationToken::new(), Arc::new(Mutex::new(Vec::new())));
    let passing = Passing {
        outlet,
        cued,
        masker: Masker::new(masks),
        begun: Vec::new(),
        within_line: false,
        tail: Arc::clone(&tail),
    };
    let task = tokio::spawn(passing.all(from, enough.clone()));
    Reading { task, enough, tail }
}

/// One stream of a step whose commands are told.
struct Cued {
    cues: Cues,
    commands: Arc<Commands>,
    stream: Stream,
}

/// What lies between the pipe and the outlet.
struct Passing<O> {
    outlet: O,
    cued: Option<Cued>,
    masker: Masker,
    /// The first bytes of a character whose last ones are not read yet.
    begun: Vec<u8>,
    /// Whether what was handed on last did not end with a newline.
    within_line: bool,
    tail: Arc<Mutex<Vec<u8>>>,
}

impl<O: Outlet> Passing<O> {
    async fn all(mut self, mut from: impl AsyncRead + Unpin, enough: CancellationToken) {
        let (mut buffer, mut settled) = (vec![0; READ_BYTES], false);
        loop {
            let read = tokio::select! {
                read = from.read(&mut buffer) => read.unwrap_or(0),
                () = enough.cancelled() => 0,
                () = sleep(QUIET), if self.masker.holds() && !settled => {
                    let faint = self.masker.settle();
                    self.pass(&faint, false);
                    settled = true;
                    continue;
                }
            };
            settled = false;
            if read == 0 {
                break;
            }
            self.outlet.seen();
            self.take(&buffer[..read], &enough).await;
        }
        let begun = self.cued.as_mut().map(|cued| cued.cues.finish()).unwrap_or_default();
        let rest = [self.masker.push(&begun), self.masker.finish()].concat();
        self.pass(&rest, true);
        if let Some(Cued { commands, stream, .. }) = &self.cued {
            commands.end(*stream);
        }
    }

    async fn take(&mut self, bytes: &[u8], enough: &CancellationToken) {
        let pieces = match &mut self.cued {
            Some(cued) => cued.cues.push(bytes),
            None => vec![Piece::Bytes(bytes.to_vec())],
        };
        for piece in pieces {
            match piece {
                Piece::Bytes(bytes) => {
                    let masked = self.masker.push(&bytes);
                    self.pass(&masked, false);
                }
                Piece::Command(number) => self.command(number, enough).await,
            }
        }
    }

    /// What was written before a command is shown before it; behind it, a line begins.
    async fn command(&mut self, number: usize, enough: &CancellationToken) {
        let rest = self.masker.finish();
        self.pass(&rest, true);
        if let Some(Cued { commands, stream, .. }) = &self.cued {
            tokio::select! {
                () = commands.come(*stream, number) => {}
                () = enough.cancelled() => {}
            }
        }
    }

    fn pass(&mut self, bytes: &[u8], ended: bool) {
        self.begun.extend_from_slice(bytes);
        let whole = if ended { self.begun.len() } else { whole_chars(&self.begun) };
        let bytes: Vec<u8> = self.begun.drain(..whole).collect();
        let mut tail = self.tail.lock().unwrap_or_else(PoisonError::into_inner);
        tail.extend_from_slice(&bytes);
        let surplus = tail.len().saturating_sub(TAIL_BYTES);
        tail.drain(..surplus);
        drop(tail);
        self.within_line = !ended && bytes.last().map_or(self.within_line, |last| *last != b'\n');
        let place = if ended { Place::Begin } else { self.place() };
        self.outlet.take(&bytes, place);
    }

    /// Where the stream is by what was read of it.
    fn place(&self) -> Place {
        let holds = self.masker.holds() || !self.begun.is_empty();
        match (self.within_line, holds) {
            (false, false) => Place::Begin,
            (true, false) | (false, true) => Place::Within,
            (true, true) => Place::Held,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::AsyncWriteExt as _;
    use tokio::sync::mpsc::{UnboundedSender, unbounded_channel};

    struct Told(UnboundedSender<(String, Place)>);

    impl Outlet for Told {
        fn take(&self, bytes: &[u8], place: Place) {
            self.0.send((String::from_utf8(bytes.to_vec()).unwrap(), place)).ok();
        }
    }

    #[tokio::test]
    async fn a_stream_is_within_a_line_also_by_what_is_held_back() {
        let (told, mut takes) = unbounded_channel();
        let (mut writes, from) = tokio::io::duplex(99);
        let reading = read_to(from, Arc::new(Masks::new(["hunter2-is-it"])), Told(told));
        let said = [
            ("one.\n", ("one.\n", Place::Begin)),
            ("hunter2-", ("", Place::Within)),
            ("?? ", ("hunter2-?? ", Place::Within)),
            ("hunter2-", ("", Place::Held)),
            ("?\n", ("hunter2-?\n", Place::Begin)),
            ("and no end ...", ("and no end ...", Place::Within)),
        ];
        for (written, (shown, place)) in said {
            writes.write_all(written.as_bytes()).await.unwrap();
            assert_eq!(takes.recv().await.unwrap(), (shown.to_owned(), place), "{written:?}");
        }
        drop(writes);
        assert_eq!(takes.recv().await.unwrap(), (String::new(), Place::Begin));
        reading.end(Duration::from_secs(60)).await;
    }
}
