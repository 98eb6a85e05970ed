//! A log as it comes: server-sent events, by looking again with a modest back-off. A function holds no state, so a reader
//! that is cut off goes on anywhere with `Last-Event-ID`.

use crate::logs::{Page, chunk};
use axum::response::sse::{Event, KeepAlive, Sse};
use axum::response::{IntoResponse, Response};
use edge::Shell;
use futures::stream::{self, Stream, StreamExt as _};
use std::convert::Infallible;
use std::time::Duration;
use store::log_pages;
use uuid::Uuid;

const LOOK_AGAIN: Duration = Duration::from_millis(250);
const LOOK_AGAIN_MAX: Duration = Duration::from_secs(1);

struct Reader {
    shell: Shell,
    workspace: Uuid,
    id: Uuid,
    after: u64,
    pause: Duration,
    over: bool,
}

/// A live log from the chunk after `after` on.
pub(crate) fn stream(shell: Shell, workspace: Uuid, id: Uuid, after: u64) -> Response {
    let reader = Reader { shell, workspace, id, after, pause: Duration::ZERO, over: false };
    Sse::new(events(reader)).keep_alive(KeepAlive::default()).into_response()
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
    /// Waits a little if the last look found nothing; then what is new. On trouble the stream ends, and the reader comes
    /// again.
    async fn look(&mut self) -> Vec<Event> {
        tokio::time::sleep(self.pause).await;
        let Some(page) = self.page().await else {
            self.over = true;
            return Vec::new();
        };
        self.after = page.last_seq;
        let idle = (self.pause * 2).clamp(LOOK_AGAIN, LOOK_AGAIN_MAX);
        self.pause = if page.chunks.is_empty() { idle } else { Duration::ZERO };
        let mut events: Vec<Event> =
            page.chunks.iter().filter_map(|stored| event(stored.seq, "chunk", &chunk(stored))).collect();
        if page.is_last() {
            self.over = true;
            events.extend(event(self.after, "end", &page.end()));
        }
        events
    }

    async fn page(&self) -> Option<Page> {
        let progress = log_pages::progress(&self.shell.store, self.workspace, self.id).await;
        match progress {
            Ok(progress) => Page::read(&self.shell, self.id, self.after, progress?).await.ok(),
            Err(error) => {
                tracing::warn!(build.id = %self.id, %error, "a live log ends early");
                None
            }
        }
    }
}

fn event(id: u64, name: &str, data: &impl serde::Serialize) -> Option<Event> {
    Event::default().id(id.to_string()).event(name).json_data(data).ok()
}
