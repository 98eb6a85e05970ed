//! A log as it comes: server-sent events, by looking again with a modest back-off. A function holds no state, so a reader
//! that is cut off goes on anywhere with `Last-Event-ID`.

use crate::logs::{PAGE_MAX_BYTES, Page, Room, chunk, size_as_json};
use axum::response::sse::{Event, KeepAlive, Sse};
use axum::response::{IntoResponse, Response};
use edge::{Rejection, Shell};
use futures::stream::{self, Stream, StreamExt as _};
use std::convert::Infallible;
use std::time::Duration;
use store::log_pages::{self, Stored};
use tokio::time::Instant;
use uuid::Uuid;

const LOOK_AGAIN: Duration = Duration::from_millis(250);
const LOOK_AGAIN_MAX: Duration = Duration::from_secs(1);
/// How long one stream lasts at most: within the 29 s that API Gateway waits for a function, whose answer it passes on as
/// a whole. The reader's token is looked up again as often.
const LIFE_MAX: Duration = Duration::from_secs(25);
/// When a reader comes again after a stream's end.
const COME_AGAIN: Duration = Duration::from_millis(250);
/// A stream with less room than this is full.
const LEAST_BYTES: usize = 256 * 1024;
/// The most that stands around a chunk in an event.
const AROUND_BYTES: usize = 50;

struct Reader {
    shell: Shell,
    workspace: Uuid,
    id: Uuid,
    after: u64,
    pause: Duration,
    ends_at: Instant,
    /// How much may still be sent: a stream is as long as a page at most, since a function's answer is limited too.
    bytes_left: usize,
    over: bool,
}

/// A live log from the chunk after `after` on.
pub(crate) fn stream(shell: Shell, workspace: Uuid, id: Uuid, after: u64) -> Response {
    let (ends_at, bytes_left) = (Instant::now() + LIFE_MAX, PAGE_MAX_BYTES);
    let reader = Reader { shell, workspace, id, after, pause: Duration::ZERO, ends_at, bytes_left, over: false };
    let hello = stream::iter([Ok(Event::default().retry(COME_AGAIN))]);
    Sse::new(hello.chain(events(reader))).keep_alive(KeepAlive::default()).into_response()
}

fn events(reader: Reader) -> impl Stream<Item = Result<Event, Infallible>> {
    stream::unfold(reader, |mut reader| async move {
        if reader.over {
            return None;
        }
        let events = reader.look().await;
        Some((stream::iter(events), reader))
    })
    .flatten()
    .map(Ok)
}

impl Reader {
    /// Waits a little if the last look found nothing; then what is new. On trouble, and at its limits, the stream ends, and
    /// the reader comes again.
    async fn look(&mut self) -> Vec<Event> {
        tokio::time::sleep(self.pause).await;
        match self.page().await {
            Ok(Some(page)) => self.tell(&page),
            Ok(None) => {
                self.over = true;
                Vec::new()
            }
            Err(error) => {
                tracing::warn!(build.id = %self.id, %error, "a live log ends early");
                self.over = true;
                Vec::new()
            }
        }
    }

    async fn page(&self) -> Result<Option<Page>, Rejection> {
        let timing = &self.shell.config.timing;
        let Some(progress) = log_pages::progress(&self.shell.store, self.workspace, self.id, timing).await? else {
            return Ok(None);
        };
        let room = Room { bytes: self.bytes_left, size: size_as_event };
        Page::read(&self.shell, self.id, self.after, progress, room).await.map(Some)
    }

    fn tell(&mut self, page: &Page) -> Vec<Event> {
        // A reader that says that it knows more than is stored is not sent again what it knows.
        self.after = self.after.max(page.last_seq);
        let idle = (self.pause * 2).clamp(LOOK_AGAIN, LOOK_AGAIN_MAX);
        self.pause = if page.chunks.is_empty() { idle } else { Duration::ZERO };
        self.bytes_left = self.bytes_left.saturating_sub(page.chunks.iter().map(size_as_event).sum());
        let mut events: Vec<Event> =
            page.chunks.iter().filter_map(|stored| event(stored.seq, "chunk", &chunk(stored))).collect();
        if page.ends_live() {
            events.extend(event(self.after, "end", &page.end()));
        }
        self.over = page.ends_live() || self.bytes_left < LEAST_BYTES || Instant::now() >= self.ends_at;
        events
    }
}

/// A chunk with the lines of its event around it.
fn size_as_event(stored: &Stored) -> usize {
    size_as_json(stored) + AROUND_BYTES
}

fn event(id: u64, name: &str, data: &impl serde::Serialize) -> Option<Event> {
    Event::default().id(id.to_string()).event(name).json_data(data).ok()
}
