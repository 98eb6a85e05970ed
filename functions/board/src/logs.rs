//! `GET /api/v1/builds/{id}/logs`: a page as JSON, the bare text, or live.

use crate::live;
use axum::body::Body;
use axum::extract::{Path, Query, State};
use axum::http::header::{ACCEPT, CONTENT_TYPE, LINK};
use axum::http::{HeaderMap, HeaderName};
use axum::response::{IntoResponse, Response};
use edge::{Api, Json, Rejection, Shell, path};
use protocol::log::{Chunk, LogPage};
use protocol::{EndReason, Problem, Status};
use serde::{Deserialize, Serialize};
use store::log_pages::{self, Progress, Stored};
use uuid::Uuid;

/// The most bytes of one page's chunks as they are sent: with what is around them, a page is at most 4 MB.
pub(crate) const PAGE_MAX_BYTES: usize = 4_000_000 - 1000;
/// What a reader sees where output was discarded.
const MARKER: &str = "\n[callboard: the log has reached its cap; what came after was discarded]\n";

/// What may stand behind the `?`.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct Asked {
    after: Option<String>,
}

/// A build's log, from the chunk after `after` on. `Accept` chooses: JSON, `text/plain`, or `text/event-stream`, which is
/// live, resumable by `Last-Event-ID`, may end at any time, and ends with an event `end` once the build is final.
#[utoipa::path(
    get,
    path = "/api/v1/builds/{id}/logs",
    tag = "builds",
    params(
        ("id" = Uuid, Path, description = "the build"),
        ("after" = Option<u64>, Query, description = "the last seq that is known already; 0 if absent. After the log's last \
            one there is an empty page"),
        ("Last-Event-ID" = Option<u64>, Header, description = "the same, for an event stream"),
    ),
    responses(
        (status = 200, description = "a page; `Link` leads to the next", content(
            (LogPage = "application/json"), (String = "text/plain"), (String = "text/event-stream"))),
        (status = 404, description = "unknown", body = Problem),
        (status = 422, description = "`after` or `Last-Event-ID` is not a seq", body = Problem),
    )
)]
pub(crate) async fn read(
    State(shell): State<Shell>,
    api: Api,
    Path(id): Path<String>,
    Query(asked): Query<Asked>,
    headers: HeaderMap,
) -> Result<Response, Rejection> {
    let id = path::uuid(&id)?;
    let after = number("after", asked.after.as_deref())?;
    let progress = log_pages::progress(&shell.store, api.workspace, id, &shell.config.timing).await?;
    let progress = progress.ok_or(Rejection::NotFound)?;
    let accept = headers.get(ACCEPT).and_then(|value| value.to_str().ok()).unwrap_or("");
    if accept.contains("text/event-stream") {
        let last = headers.get("last-event-id").map(|value| value.to_str().unwrap_or("?"));
        let after = number("Last-Event-ID", last)?.max(after);
        return Ok(live::stream(shell, api.workspace, id, after));
    }
    let text = accept.contains("text/plain");
    let size = if text { size_as_text } else { size_as_json };
    let page = Page::read(&shell, id, after, progress, Room { bytes: PAGE_MAX_BYTES, size }).await?;
    let link = page.more.then(|| next(id, page.last_seq));
    if text {
        return Ok((link, [(CONTENT_TYPE, "text/plain; charset=utf-8")], Body::from(page.text())).into_response());
    }
    Ok((link, Json(page.json())).into_response())
}

/// A `seq`; 0 if none is given. None is larger than the column that holds them.
fn number(field: &str, text: Option<&str>) -> Result<u64, Rejection> {
    let seq = |text: &str| text.parse().ok().filter(|seq| i64::try_from(*seq).is_ok());
    let parsed = text.map(|text| seq(text).ok_or_else(|| Rejection::invalid(field, "not the seq of a chunk")));
    Ok(parsed.transpose()?.unwrap_or(0))
}

fn next(id: Uuid, after: u64) -> [(HeaderName, String); 1] {
    [(LINK, format!("</api/v1/builds/{id}/logs?after={after}>; rel=\"next\""))]
}

/// The last event of a live log.
#[derive(Clone, Copy, Debug, Serialize)]
pub(crate) struct End {
    status: Status,
    end_reason: Option<EndReason>,
    capped: bool,
}

/// How much a page may hold.
#[derive(Clone, Copy)]
pub(crate) struct Room {
    /// In bytes as they are sent.
    pub(crate) bytes: usize,
    /// What a chunk takes of it.
    pub(crate) size: fn(&Stored) -> usize,
}

/// A part of a log.
pub(crate) struct Page {
    pub(crate) chunks: Vec<Stored>,
    pub(crate) last_seq: u64,
    /// Whether more is stored already.
    pub(crate) more: bool,
    progress: Progress,
}

impl Page {
    /// Reads what is stored after `after`. `progress` must have been read before, so that a build which is final in it has
    /// no chunk that this page could miss but those that come late.
    pub(crate) async fn read(
        shell: &Shell,
        id: Uuid,
        after: u64,
        progress: Progress,
        room: Room,
    ) -> Result<Self, Rejection> {
        let mut chunks = Vec::new();
        if after < progress.stored_to {
            let bytes_max = u32::try_from(room.bytes).unwrap_or(u32::MAX);
            chunks = log_pages::chunks(&shell.store, id, after, bytes_max).await?;
            chunks.truncate(fitting(chunks.iter().map(room.size), room.bytes));
        }
        // Who asks beyond the end is told where that is, as far as it is known.
        let last_seq = chunks.last().map_or(after.min(progress.stored_to), |chunk| chunk.seq);
        // Nothing where something should be: the log was purged just now.
        let more = last_seq < progress.stored_to && !chunks.is_empty();
        Ok(Self { chunks, last_seq, more, progress })
    }

    /// Whether the build is final, nothing more of its log may come, and this page reaches its end.
    pub(crate) fn is_last(&self) -> bool {
        self.progress.status.is_final() && !self.progress.is_awaited && !self.more
    }

    /// Whether a live log ends here: a worker that gave chunks up seldom sends them after all, and who follows a build waits
    /// for its outcome. What comes later is in the log all the same.
    pub(crate) fn ends_live(&self) -> bool {
        let given_up = self.progress.is_awaited && !self.progress.just_ended;
        self.is_last() || (self.progress.status.is_final() && given_up && !self.more)
    }

    /// What a live log says at its end.
    pub(crate) fn end(&self) -> End {
        let capped = self.progress.discarded_from.is_some();
        End { status: self.progress.status, end_reason: self.progress.end_reason, capped }
    }

    fn json(self) -> LogPage {
        let (last_seq, complete) = (self.last_seq, self.is_last());
        let capped = self.progress.discarded_from.is_some();
        LogPage { chunks: self.chunks.iter().map(chunk).collect(), last_seq, complete, capped }
    }

    fn text(self) -> Vec<u8> {
        let mut text: Vec<u8> = self.chunks.iter().flat_map(|chunk| chunk.content.iter().copied()).collect();
        if !self.more && self.progress.discarded_from.is_some() {
            text.extend(MARKER.as_bytes());
        }
        text
    }
}

/// How many chunks of these sizes fit into `bytes`; one at least, so that every reader gets on.
fn fitting(sizes: impl Iterator<Item = usize>, bytes: usize) -> usize {
    let mut total: usize = 0;
    let fits = |size: &usize| {
        total = total.saturating_add(*size);
        total <= bytes
    };
    sizes.take_while(fits).count().max(1)
}

fn size_as_text(stored: &Stored) -> usize {
    stored.content.len()
}

/// With what separates it from the next.
pub(crate) fn size_as_json(stored: &Stored) -> usize {
    serde_json::to_vec(&chunk(stored)).map_or(0, |json| json.len()) + 1
}

/// A chunk as readers receive it.
pub(crate) fn chunk(stored: &Stored) -> Chunk {
    Chunk::new(stored.seq, &stored.step, stored.stream, stored.at_ms, &stored.content)
}

#[cfg(test)]
mod tests {
    use super::*;
    use protocol::log::Stream;

    fn check(sizes: &[usize], expected: usize) {
        assert_eq!(fitting(sizes.iter().copied(), 1000), expected);
    }

    #[test]
    fn a_page_is_full_at_its_limit_and_never_empty() {
        check(&[1, 2, 3], 3);
        check(&[999, 1, 1], 2);
        check(&[1000, 1], 1);
        check(&[1001, 1], 1);
    }

    #[test]
    fn a_chunks_size_is_that_of_its_json() {
        for content in [b"plain".to_vec(), vec![0x1b; 100], vec![0xff; 100]] {
            let stored = Stored { seq: 1, step: "test".into(), stream: Stream::Stdout, at_ms: 5, content };
            let page = LogPage { chunks: vec![chunk(&stored); 3], last_seq: 1, complete: true, capped: false };
            let around = serde_json::to_vec(&LogPage { chunks: Vec::new(), ..page.clone() }).unwrap().len();
            assert_eq!(serde_json::to_vec(&page).unwrap().len(), around + 3 * size_as_json(&stored) - 1);
        }
    }
}
