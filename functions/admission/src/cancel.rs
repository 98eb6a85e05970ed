//! `POST /api/v1/builds/{id}/cancel`: ends a build that waits, asks for the end of one that runs.

use axum::extract::{Path, State};
use axum::http::HeaderMap;
use edge::{Api, Json, Rejection, Shell, path};
use protocol::build::{Build, Cancel};
use protocol::{CancelReason, EndReason, Problem, Status};
use rules::runnable;
use store::{listing, submissions};
use tracing::field::display;
use uuid::Uuid;

/// How often a cancel that meets a claim looks again. A build changes its state twice at the most.
const LOOKS_MAX: usize = 4;

/// Ends a pending build, or asks the worker of a running one to stop. A build that has ended stays as it is.
#[utoipa::path(
    post,
    path = "/api/v1/builds/{id}/cancel",
    tag = "builds",
    params(
        ("id" = Uuid, Path, description = "the build"),
        ("If-Match" = Option<String>, Header, description = "its version; another one is 412")
    ),
    request_body(content = Option<Cancel>, description = "may be absent"),
    responses(
        (status = 200, description = "the build as it is now", body = Build),
        (status = 404, description = "unknown", body = Problem),
        (status = 412, description = "concurrent_update", body = Problem),
    )
)]
pub(crate) async fn cancel(
    State(shell): State<Shell>,
    api: Api,
    Path(id): Path<String>,
    headers: HeaderMap,
    asked: Option<Json<Cancel>>,
) -> Result<Json<Build>, Rejection> {
    let id = path::uuid(&id)?;
    let reason = asked.and_then(|Json(asked)| asked.reason).unwrap_or(CancelReason::User);
    let expected = path::if_match(&headers)?;
    for _ in 0..LOOKS_MAX {
        let seen = submissions::snapshot(&shell.store, api.workspace, id).await?.ok_or(Rejection::NotFound)?;
        if expected.is_some_and(|version| version != seen.version) {
            return Err(Rejection::ConcurrentUpdate);
        }
        let done = match seen.status {
            Status::Pending => end_pending(&shell, api.workspace, id, reason).await?,
            Status::Running => submissions::request_cancel(&shell.store, id, reason, expected).await?,
            Status::Success | Status::Failed | Status::TimedOut | Status::Cancelled => true,
        };
        if done {
            // The request may belong to another trace than the build.
            let trace = seen.build.traceparent.map(|of_build| display(of_build.trace_id()));
            tracing::info!(build.id = %id, trace.id = trace, cancel.reason = %reason, "cancel asked for");
            return listing::build(&shell.store, api.workspace, id).await?.map(Json).ok_or(Rejection::NotFound);
        }
    }
    Err(Rejection::TryAgain)
}

async fn end_pending(shell: &Shell, workspace: Uuid, id: Uuid, reason: CancelReason) -> Result<bool, Rejection> {
    let reason = EndReason::from(reason);
    let message = runnable::explain(reason);
    let ended = submissions::end_pending(&shell.store, workspace, Some(&[id]), 1, reason, message).await?;
    Ok(!ended.is_empty())
}
