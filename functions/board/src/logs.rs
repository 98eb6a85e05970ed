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

/// The most bytes of one page.
pub(crate) const PAGE_MAX_BYTES: u32 = 3 * 1024 * 1024;
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
        ("after" = Option<u64>, Query, description = "the last seq that is known already; 0 if absent"),
        ("Last-Event-ID" = Option<u64>, Header, description = "the same, for an event stream"),
    ),
    responses(
        (status = 200, description = "a page; `Link` leads to the next", content(
            (LogPage = "application/json"), (String = "text/plain"), (String = "text/event-stream"))),
        (status = 404, description = "unknown", body = Problem),
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
    let progress = log_pages::progress(&shell.store, api.workspace, id).await?.ok_or(Rejection::NotFound)?;
    let accept = headers.get(ACCEPT).and_then(|value| value.to_str().ok()).unwrap_or("");
    if accept.contains("text/event-stream") {
        let last = headers.get("last-event-id").and_then(|value| value.to_str().ok());
        let after = number("Last-Event-ID", last)?.max(after);
        return Ok(live::stream(shell, api.workspace, id, after));
    }
    let page = Page::read(&shell, id, after, progress).await?;
    let link = page.more.then(|| next(id, page.last_seq));
    if accept.contains("text/plain") {
        return Ok((link, [(CONTENT_TYPE, "text/plain; charset=utf-8")], Body::from(page.text())).into_response());
    }
    Ok((link, Json(page.json())).into_response())
}

fn number(field: &str, text: Option<&str>) -> Result<u64, Rejection> {
    let parsed = text.map(|text| text.parse().map_err(|_| Rejection::invalid(field, "not the seq of a chunk")));
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
    pub(crate) async fn read(shell: &Shell, id: Uuid, after: u64, progress: Progress) -> Result<Self, Rejection> {
        let chunks = log_pages::chunks(&shell.store, id, after, PAGE_MAX_BYTES).await?;
        let last_seq = chunks.last().map_or(after, |chunk| chunk.seq);
        Ok(Self { chunks, last_seq, more: last_seq < progress.stored_to, progress })
    }

    /// Whether the build is final and this page reaches the end of its log.
    pub(crate) fn is_last(&self) -> bool {
        self.progress.status.is_final() && !self.more
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

/// A chunk as readers receive it.
pub(crate) fn chunk(stored: &Stored) -> Chunk {
    Chunk::new(stored.seq, &stored.step, stored.stream, stored.at_ms, &stored.content)
}
