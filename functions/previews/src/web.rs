//! `/api/v1/previews`: a workspace's previews, read, extended and destroyed.

use axum::body::Bytes;
use axum::extract::{Path, Query, State};
use axum::http::HeaderMap;
use axum::http::header::ETAG;
use axum::response::{IntoResponse, Response};
use edge::{Api, Json, Rejection, Shell, json, path};
use protocol::preview::{ExtendPreview, Preview, Previews};
use protocol::{Problem, id};
use rules::Seconds;
use rules::preview::{self, Extension, State as PreviewState};
use serde::Deserialize;
use store::previews::{self, Filter, Subject};
use uuid::Uuid;

/// How often a change that meets another one looks again. A preview changes its state four times at the most; each extension
/// and each port is one more.
const LOOKS_MAX: usize = 8;
/// The most previews of one page.
const PAGE_MAX: u32 = 100;
const PAGE: u32 = 20;

/// What may stand behind the `?`. Texts, so that a bad one is told apart by name.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct Asked {
    status: Option<String>,
    build: Option<String>,
    limit: Option<String>,
    cursor: Option<String>,
}

impl Asked {
    /// Which previews are wanted, and how many.
    fn read(self) -> Result<(Filter, u32), Rejection> {
        let status = self.status.map(|word| {
            PreviewState::parse(&word).ok_or_else(|| Rejection::invalid("status", "not a state of previews"))
        });
        let build =
            self.build.map(|text| id::parse(&text).ok_or_else(|| Rejection::invalid("build", "not the id of a build")));
        let limit = self.limit.map(|text| {
            let number = text.parse().ok().filter(|limit| (1..=PAGE_MAX).contains(limit));
            number.ok_or_else(|| Rejection::invalid("limit", "a number from 1 to 100"))
        });
        let before = self
            .cursor
            .map(|text| id::parse(&text).ok_or_else(|| Rejection::invalid("cursor", "not the next_cursor of a page")));
        let filter = Filter { status: status.transpose()?, build: build.transpose()?, before: before.transpose()? };
        Ok((filter, limit.transpose()?.unwrap_or(PAGE)))
    }
}

/// The workspace's previews, newest first.
#[utoipa::path(
    get,
    path = "/api/v1/previews",
    tag = "previews",
    params(
        ("status" = Option<String>, Query, description = "those in this state"),
        ("build" = Option<Uuid>, Query, description = "the one of this build"),
        ("limit" = Option<u32>, Query, description = "1 to 100; 20 if absent"),
        ("cursor" = Option<Uuid>, Query, description = "`next_cursor` of the page before")
    ),
    responses(
        (status = 200, description = "a page", body = Previews),
        (status = 422, description = "a value that can't be", body = Problem),
    )
)]
pub(crate) async fn list(
    State(shell): State<Shell>,
    api: Api,
    Query(asked): Query<Asked>,
) -> Result<Json<Previews>, Rejection> {
    let (filter, limit) = asked.read()?;
    let mut previews = previews::list(&shell.store, api.workspace, filter, limit + 1).await?;
    let most = usize::try_from(limit).unwrap_or(usize::MAX);
    let more = previews.len() > most;
    previews.truncate(most);
    let next_cursor = previews.last().filter(|_| more).map(|preview| preview.id.to_string());
    Ok(Json(Previews { previews, next_cursor }))
}

/// A preview.
#[utoipa::path(
    get,
    path = "/api/v1/previews/{id}",
    tag = "previews",
    params(("id" = Uuid, Path, description = "the preview")),
    responses((status = 200, body = Preview), (status = 404, description = "unknown", body = Problem))
)]
pub(crate) async fn read(State(shell): State<Shell>, api: Api, Path(id): Path<String>) -> Result<Response, Rejection> {
    shown(&shell, api, path::uuid(&id)?).await
}

async fn shown(shell: &Shell, api: Api, id: Uuid) -> Result<Response, Rejection> {
    let preview = previews::find(&shell.store, api.workspace, id).await?.ok_or(Rejection::NotFound)?;
    Ok(([(ETAG, format!("\"{}\"", preview.version))], Json(preview)).into_response())
}

/// Lets a preview live longer, from now on; never shorter than it would.
#[utoipa::path(
    post,
    path = "/api/v1/previews/{id}/extend",
    tag = "previews",
    params(
        ("id" = Uuid, Path, description = "the preview"),
        ("If-Match" = Option<String>, Header, description = "its version; another one is 412")
    ),
    request_body(content = Option<ExtendPreview>, description = "may be absent"),
    responses(
        (status = 200, description = "the preview as it is now", body = Preview),
        (status = 404, description = "unknown", body = Problem),
        (status = 409, description = "preview_ended: it neither starts nor runs", body = Problem),
        (status = 412, description = "concurrent_update", body = Problem),
        (status = 422, description = "longer than the plan allows", body = Problem),
    )
)]
pub(crate) async fn extend(
    State(shell): State<Shell>,
    api: Api,
    Path(id): Path<String>,
    headers: HeaderMap,
    body: Bytes,
) -> Result<Response, Rejection> {
    let id = path::uuid(&id)?;
    let asked: ExtendPreview = if body.is_empty() { ExtendPreview::default() } else { json::parse(&body)? };
    let expected = path::if_match(&headers)?;
    for _ in 0..LOOKS_MAX {
        let seen = look(&shell, api, id, expected).await?;
        // A pipeline that asks for more than the plan allows now gets what it allows.
        let usual = seen.longest.map_or(seen.ttl, |longest| seen.ttl.min(longest));
        let wanted = asked.ttl_seconds.map_or(usual, Seconds);
        let until = match preview::extend(seen.state, seen.expires_at, wanted, seen.longest, seen.now) {
            Extension::Until(until) => until,
            Extension::Ended => return Err(Rejection::PreviewEnded(seen.state)),
            Extension::NoPlan => return Err(Rejection::BillingUnavailable),
            Extension::TooLong(longest) => {
                let detail = format!("the plan lets a preview live {} seconds from now on", longest.0);
                return Err(Rejection::invalid("ttl_seconds", detail));
            }
        };
        if wanted == Seconds::ZERO {
            return Err(Rejection::invalid("ttl_seconds", "at least 1"));
        }
        if previews::extend(&shell.store, id, seen.version, until).await? {
            tracing::info!(preview.id = %id, preview.expires_at_ms = until.0, "preview extended");
            return shown(&shell, api, id).await;
        }
    }
    Err(Rejection::TryAgain)
}

/// Destroys a preview: its host ends it in its next sync. One that is being destroyed, or is, stays as it is.
#[utoipa::path(
    delete,
    path = "/api/v1/previews/{id}",
    tag = "previews",
    params(
        ("id" = Uuid, Path, description = "the preview"),
        ("If-Match" = Option<String>, Header, description = "its version; another one is 412")
    ),
    responses(
        (status = 200, description = "the preview as it is now", body = Preview),
        (status = 404, description = "unknown", body = Problem),
        (status = 412, description = "concurrent_update", body = Problem),
    )
)]
pub(crate) async fn destroy(
    State(shell): State<Shell>,
    api: Api,
    Path(id): Path<String>,
    headers: HeaderMap,
) -> Result<Response, Rejection> {
    let id = path::uuid(&id)?;
    let expected = path::if_match(&headers)?;
    for _ in 0..LOOKS_MAX {
        let seen = look(&shell, api, id, expected).await?;
        if !preview::destroys(seen.state) {
            return shown(&shell, api, id).await;
        }
        if previews::destroy(&shell.store, id, seen.version).await? {
            tracing::info!(preview.id = %id, "preview to be destroyed");
            return shown(&shell, api, id).await;
        }
    }
    Err(Rejection::TryAgain)
}

/// The preview as it is, if it has the version that the caller has seen.
async fn look(shell: &Shell, api: Api, id: Uuid, expected: Option<i64>) -> Result<Subject, Rejection> {
    let seen = previews::subject(&shell.store, api.workspace, id, &shell.config.timing).await?;
    let seen = seen.ok_or(Rejection::NotFound)?;
    if expected.is_some_and(|version| version != seen.version) {
        return Err(Rejection::ConcurrentUpdate);
    }
    Ok(seen)
}
