//! Does this chunk belong? Stores a build's log, each chunk once, in order, as bytes (SPEC.md, Logs).

mod append;
mod batch;

use axum::extract::{DefaultBodyLimit, State};
use axum::http::request::Parts;
use edge::path::Id;
use edge::{Json, Rejection, Routes, Shell, auth, log_token};
use protocol::Problem;
use protocol::worker::{LogBatch, LogStored};
use store::logs::Sender;
use utoipa_axum::routes;

/// The largest body: what a batch may hold, with every byte escaped.
const BODY_MAX_BYTES: usize = 4 * 1024 * 1024;

/// The route of this function.
pub fn routes() -> Routes {
    Routes::new().routes(routes!(logs)).layer(DefaultBodyLimit::max(BODY_MAX_BYTES))
}

/// Appends chunks; those that are stored already count as duplicates.
#[utoipa::path(
    post,
    path = "/internal/worker/builds/{id}/logs",
    tag = "worker",
    params(("id" = Uuid, Path, description = "the build")),
    request_body = LogBatch,
    responses(
        (status = 200, description = "stored, or known already", body = LogStored),
        (status = 401, description = "token unknown or revoked", body = Problem),
        (status = 404, description = "unknown, or another token's", body = Problem),
        (status = 409, description = "build_ended, seq_conflict or log_gap", body = Problem),
        (status = 413, description = "a chunk or the batch is too large", body = Problem),
        (status = 422, description = "chunks out of order, or without bytes", body = Problem),
    )
)]
async fn logs(
    State(shell): State<Shell>,
    Id(id): Id,
    parts: Parts,
    Json(batch): Json<LogBatch>,
) -> Result<Json<LogStored>, Rejection> {
    // The worker token, or the one that the build's own log token stands for.
    let (token, digest) = log_token::caller(&shell, id, auth::bearer(&parts)?)?;
    let chunks = batch::read(batch, &shell.config.log)?;
    let sender = Sender { token: &token, digest: digest.as_deref() };
    append::append(&shell, id, sender, &chunks).await.map(Json)
}
