//! A build's log from the board: live as an event stream, which is taken up again where it broke off; page by page where a
//! proxy lets no stream through.

use super::Told;
use super::sse::{Event, Events};
use crate::client::{Client, Failed};
use protocol::log::{Chunk, LogPage};
use reqwest::header::{ACCEPT, CONTENT_TYPE};
use reqwest::{Method, Response};
use serde::Deserialize;
use std::time::Duration;
use tokio::sync::mpsc::Sender;
use tokio::time::{Instant, sleep, timeout};
use uuid::Uuid;

/// How long a board may be away: a deploy, a restart.
pub(super) const PATIENCE: Duration = Duration::from_secs(120);
/// Between one look and the next.
const PAUSE: Duration = Duration::from_millis(250);
/// The same while the board is away.
const PAUSE_AWAY: Duration = Duration::from_secs(2);
/// The board shows every 15 s that a stream lives; one that is silent for longer is dead.
const SILENCE_MAX: Duration = Duration::from_secs(45);
/// The longest that one stream is read.
const STREAM_MAX: Duration = Duration::from_secs(24 * 3600);

/// What is new.
#[derive(Debug)]
pub(super) enum News {
    /// A chunk; each once, in order.
    Chunk(Chunk),
    /// The board is away, in its own words.
    Away(String),
    /// What came after the last chunk was discarded.
    Capped,
}

enum Turn {
    /// The build is final, and all of its log was told.
    Over,
    /// More may come.
    Again,
}

/// The data of the event that ends a stream.
#[derive(Deserialize)]
struct End {
    #[serde(default)]
    capped: bool,
}

/// Tells a log to its end, or what makes that impossible. Ends early if nobody listens.
pub(super) async fn read(board: Client, id: Uuid, news: Sender<Told>) {
    let mut reader = Reader { board, id, news, seen: 0, streams: true, away_since: None };
    // Nobody listens any more: nothing is left to do.
    let _ = reader.run().await;
}

/// Whether trouble may pass by itself.
pub(super) fn may_pass(failed: &Failed) -> bool {
    match failed {
        Failed::Unreachable { .. } | Failed::Strange(_) => true,
        Failed::Refused(problem) => problem.status >= 500 || problem.status == 429,
    }
}

struct Reader {
    board: Client,
    id: Uuid,
    news: Sender<Told>,
    seen: u64,
    streams: bool,
    away_since: Option<Instant>,
}

/// Nobody listens.
struct Unheard;

impl Reader {
    async fn run(&mut self) -> Result<(), Unheard> {
        loop {
            match self.turn().await? {
                Ok(Turn::Over) => return Ok(()),
                Ok(Turn::Again) => {
                    self.away_since = None;
                    sleep(PAUSE).await;
                }
                Err(failed) if may_pass(&failed) && self.away() < PATIENCE => {
                    if self.away_since.is_none() {
                        self.away_since = Some(Instant::now());
                        self.tell(Ok(News::Away(failed.to_string()))).await?;
                    }
                    sleep(PAUSE_AWAY).await;
                }
                Err(failed) => return self.tell(Err(failed)).await,
            }
        }
    }

    fn away(&self) -> Duration {
        self.away_since.map_or(Duration::ZERO, |since| since.elapsed())
    }

    /// Reads a stream to its end, wherever that is. If it brought nothing, reads a page instead: so it goes on also where a
    /// stream never gets through, and trouble is told in the board's own words.
    async fn turn(&mut self) -> Result<Result<Turn, Failed>, Unheard> {
        let before = self.seen;
        if self.streams
            && let Some(response) = self.open().await
        {
            if let Turn::Over = self.drain(response).await? {
                return Ok(Ok(Turn::Over));
            }
            if self.seen > before {
                return Ok(Ok(Turn::Again));
            }
        }
        match self.board.log(self.id, self.seen).await {
            Ok(page) => self.page(page).await.map(Ok),
            Err(failed) => Ok(Err(failed)),
        }
    }

    async fn open(&mut self) -> Option<Response> {
        let request = self.board.request(Method::GET, &format!("builds/{}/logs", self.id)).timeout(STREAM_MAX);
        let request = request.header(ACCEPT, "text/event-stream").header("last-event-id", self.seen);
        let response = timeout(SILENCE_MAX, request.send()).await.ok()?.ok()?;
        let kind = response.headers().get(CONTENT_TYPE).and_then(|kind| kind.to_str().ok()).unwrap_or("");
        if response.status().is_success() && !kind.starts_with("text/event-stream") {
            self.streams = false;
        }
        (response.status().is_success() && self.streams).then_some(response)
    }

    async fn drain(&mut self, mut response: Response) -> Result<Turn, Unheard> {
        let mut events = Events::default();
        while let Ok(Ok(Some(bytes))) = timeout(SILENCE_MAX, response.chunk()).await {
            let Ok(ended) = events.take(&bytes) else { break };
            for event in ended {
                if let Turn::Over = self.event(&event).await? {
                    return Ok(Turn::Over);
                }
            }
        }
        Ok(Turn::Again)
    }

    /// Tells one event. One of a name that a newer board has is left out.
    async fn event(&mut self, event: &Event) -> Result<Turn, Unheard> {
        match event.name.as_str() {
            "chunk" => {
                if let Ok(chunk) = serde_json::from_str(&event.data) {
                    self.chunk(chunk).await?;
                }
                Ok(Turn::Again)
            }
            "end" => {
                let capped = serde_json::from_str::<End>(&event.data).is_ok_and(|end| end.capped);
                self.over(capped).await
            }
            _ => Ok(Turn::Again),
        }
    }

    async fn page(&mut self, page: LogPage) -> Result<Turn, Unheard> {
        for chunk in page.chunks {
            self.chunk(chunk).await?;
        }
        if page.complete { self.over(page.capped).await } else { Ok(Turn::Again) }
    }

    async fn chunk(&mut self, chunk: Chunk) -> Result<(), Unheard> {
        self.away_since = None;
        if chunk.seq <= self.seen {
            return Ok(());
        }
        self.seen = chunk.seq;
        self.tell(Ok(News::Chunk(chunk))).await
    }

    async fn over(&mut self, capped: bool) -> Result<Turn, Unheard> {
        if capped {
            self.tell(Ok(News::Capped)).await?;
        }
        Ok(Turn::Over)
    }

    async fn tell(&mut self, news: Told) -> Result<(), Unheard> {
        self.news.send(news).await.map_err(|_| Unheard)
    }
}
