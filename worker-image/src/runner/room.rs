//! One room, as the runner has it: what runs in it, until when, and how it ended. It speaks for a container of a stranger's image, so
//! what it says is bounded, and whatever it does it can hold up nothing but itself.

use super::waiting::Waiting;
use crate::clock::{Boot, millis, sleep_until};
use crate::isolation::{Control, Ended, Exceeded, Running, StartError};
use futures::FutureExt as _;
use nix::sys::signal::{Signal, raise};
use shim::said::{LENGTH_BYTES, Orders, TO_RUNNER_MAX_BYTES, ToRoom, ToRunner, frame, length};
use std::io::{self, ErrorKind};
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::UnixStream;
use tokio::net::unix::{OwnedReadHalf, OwnedWriteHalf};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::time::timeout;

/// How long a room may take to hear a word.
const WORD_WITHIN: Duration = Duration::from_secs(2);
/// How long it may take to hear its orders.
const ORDERS_WITHIN: Duration = Duration::from_secs(10);

/// A room in which nothing runs yet.
#[derive(Debug)]
pub(super) struct Room {
    /// Frames.
    pub(super) control: Waiting,
    /// What its program will write to its standard output.
    pub(super) stdout: UnixStream,
    /// The same of its standard error.
    pub(super) stderr: UnixStream,
}

impl Room {
    /// Has `orders` carried out, until `fence_at` unless renewed.
    ///
    /// # Errors
    ///
    /// If the room is gone.
    pub(super) async fn start(self, orders: Orders, fence_at: Boot, grace: Duration) -> Result<Running, StartError> {
        let Self { control, stdout, stderr } = self;
        let gone = || StartError::Trouble("its container is gone".into());
        let (frames, mut to) = control.take().await.ok_or_else(gone)?;
        let orders = frame(&ToRoom::Run(Box::new(orders))).map_err(|error| StartError::Trouble(error.to_string()))?;
        timeout(ORDERS_WITHIN, to.write_all(&orders)).await.map_err(|_| gone())?.map_err(|_| gone())?;
        let (words, heard) = unbounded_channel();
        let watch = Watch {
            frames,
            to,
            heard,
            fence_at,
            grace,
            is_started: false,
            is_asked: false,
            is_fenced: false,
            ending: Ending::Not,
        };
        Ok(Running {
            stdout: Box::new(stdout),
            stderr: Box::new(stderr),
            control: Arc::new(Words(words)),
            ended: watch.until_ended().boxed(),
        })
    }

    /// Lets it go: nothing is to run in it.
    pub(super) async fn dismiss(self) {
        if let (Some((_, mut to)), Ok(word)) = (self.control.take().await, frame(&ToRoom::Unneeded)) {
            timeout(WORD_WITHIN, to.write_all(&word)).await.ok();
        }
    }
}

enum Word {
    Renew(Boot),
    Terminate,
    Kill,
}

#[derive(Debug)]
struct Words(UnboundedSender<Word>);

/// A room that is gone needs no word.
impl Control for Words {
    fn renew(&self, fence_at: Boot) {
        self.0.send(Word::Renew(fence_at)).ok();
    }

    fn terminate(&self) {
        self.0.send(Word::Terminate).ok();
    }

    fn kill(&self) {
        self.0.send(Word::Kill).ok();
    }
}

/// How far a program's end is that was asked for.
#[derive(Clone, Copy)]
enum Ending {
    Not,
    /// It was asked to end, and is ended then.
    Asked {
        kill_at: Boot,
    },
    Killed,
}

/// Watches over what runs in a room. Once this is dropped, the room ends it by itself.
struct Watch {
    frames: Frames,
    to: OwnedWriteHalf,
    heard: UnboundedReceiver<Word>,
    fence_at: Boot,
    grace: Duration,
    is_started: bool,
    is_asked: bool,
    is_fenced: bool,
    ending: Ending,
}

impl Watch {
    async fn until_ended(mut self) -> Ended {
        loop {
            let (fence_at, ending) = (self.fence_at, self.ending);
            tokio::select! {
                biased;
                said = self.frames.next() => match said {
                    Ok(ToRunner::Started) if !self.is_started => self.started().await,
                    Ok(ToRunner::AskedToEnd) if !self.is_asked => self.asked_to_end(),
                    Ok(ToRunner::NotStarted { why }) => return Ended::NeverStarted(why),
                    Ok(ToRunner::Ended { code, out_of_memory }) => return self.ended(code, out_of_memory),
                    // Or one that says the same again and again, so that nothing else is heard.
                    Ok(ToRunner::Started | ToRunner::AskedToEnd) | Err(_) => return self.lost(),
                },
                Some(word) = self.heard.recv() => self.heed(word).await,
                () = sleep_until(|| fence_at), if !self.is_fenced => {
                    self.is_fenced = true;
                    self.terminate().await;
                }
                () = kill_time(ending) => self.kill().await,
            }
        }
    }

    async fn heed(&mut self, word: Word) {
        match word {
            Word::Renew(fence_at) => {
                self.fence_at = fence_at;
                self.say(&ToRoom::Left { ms: left_ms(fence_at, self.grace) }).await;
            }
            Word::Terminate => self.terminate().await,
            Word::Kill => self.kill().await,
        }
    }

    async fn started(&mut self) {
        self.is_started = true;
        match self.ending {
            Ending::Not => {}
            Ending::Asked { .. } => self.say(&ToRoom::Terminate).await,
            Ending::Killed => self.say(&ToRoom::Kill).await,
        }
    }

    fn asked_to_end(&mut self) {
        self.is_asked = true;
        told_by_a_room();
    }

    /// What has not begun can't be asked to end; it is as soon as it has.
    async fn terminate(&mut self) {
        if let Ending::Not = self.ending {
            self.ending = Ending::Asked { kill_at: Boot::now().plus(self.grace) };
            if self.is_started {
                self.say(&ToRoom::Terminate).await;
            }
        }
    }

    async fn kill(&mut self) {
        self.ending = Ending::Killed;
        if self.is_started {
            self.say(&ToRoom::Kill).await;
        }
    }

    /// A room that does not hear is soon found to be gone, or ended by dropping it.
    async fn say(&mut self, word: &ToRoom) {
        if let Ok(word) = frame(word) {
            timeout(WORD_WITHIN, self.to.write_all(&word)).await.ok();
        }
    }

    fn ended(&self, code: i32, out_of_memory: bool) -> Ended {
        if self.is_fenced {
            return Ended::Fenced;
        }
        Ended::Exited { code, exceeded: out_of_memory.then_some(Exceeded::Memory) }
    }

    fn lost(&self) -> Ended {
        match (self.is_fenced, self.is_started) {
            (true, _) => Ended::Fenced,
            (false, true) => Ended::Broken("the step's container was lost".into()),
            (false, false) => Ended::NeverStarted("its container ended before its program began".into()),
        }
    }
}

/// The task is being stopped, which rooms may hear first: as if this process had been told.
pub(super) fn told_by_a_room() {
    raise(Signal::SIGTERM).ok();
}

async fn kill_time(ending: Ending) {
    match ending {
        Ending::Asked { kill_at } => sleep_until(|| kill_at).await,
        Ending::Not | Ending::Killed => std::future::pending().await,
    }
}

/// How long a room whose runner says nothing any more may go on: it can't be asked to end then.
pub(super) fn left_ms(fence_at: Boot, grace: Duration) -> u64 {
    millis(fence_at.plus(grace).since(Boot::now()))
}

/// What a room says.
#[derive(Debug)]
pub(super) struct Frames {
    from: OwnedReadHalf,
    begun: Vec<u8>,
}

impl Frames {
    /// All that comes `from` a room.
    pub(super) fn of(from: OwnedReadHalf) -> Self {
        Self { from, begun: Vec::new() }
    }

    /// What is said next; nothing is lost if this is not awaited to its end.
    pub(super) async fn next(&mut self) -> io::Result<ToRunner> {
        loop {
            if let Some(said) = self.whole()? {
                return Ok(said);
            }
            let mut bytes = [0; 512];
            match self.from.read(&mut bytes).await? {
                0 => return Err(ErrorKind::UnexpectedEof.into()),
                read => self.begun.extend_from_slice(&bytes[..read]),
            }
        }
    }

    fn whole(&mut self) -> io::Result<Option<ToRunner>> {
        let Some((begin, rest)) = self.begun.split_first_chunk::<LENGTH_BYTES>() else {
            return Ok(None);
        };
        let Some(json) = rest.get(..length(*begin, TO_RUNNER_MAX_BYTES)?) else {
            return Ok(None);
        };
        let (said, taken) = (serde_json::from_slice(json)?, LENGTH_BYTES + json.len());
        self.begun.drain(..taken);
        Ok(Some(said))
    }
}

#[cfg(test)]
#[path = "room_tests.rs"]
mod tests;
