//! What the web-app reads and sets up. (interim)

use axum::extract::{Path, Query, State};
use axum::routing::{get, put};
use edge::{Api, Json, Rejection, Shell, path};
use protocol::build::{Build, WaitingFor};
use protocol::log::{Chunk, LogPage};
use protocol::pipeline::{Pipeline, PipelineSpec};
use protocol::workspace::Workspace;
use std::collections::HashMap;

/// The routes of this function.
pub fn routes() -> edge::Routes {
    edge::Routes::new()
        .route("/api/v1/pipelines/{slug}", put(put_pipeline))
        .route("/api/v1/builds/{id}", get(build))
        .route("/api/v1/builds/{id}/logs", get(logs))
        .route("/api/v1/workspace", get(workspace))
}

async fn put_pipeline(
    State(shell): State<Shell>,
    api: Api,
    Path(slug): Path<String>,
    Json(spec): Json<PipelineSpec>,
) -> Result<Json<Pipeline>, Rejection> {
    Ok(Json(store::pipelines::put(&shell.store, api.workspace, &slug, &spec).await?))
}

async fn build(State(shell): State<Shell>, api: Api, Path(id): Path<String>) -> Result<Json<Build>, Rejection> {
    let mut build =
        store::listing::build(&shell.store, api.workspace, path::uuid(&id)?).await?.ok_or(Rejection::NotFound)?;
    if build.status == protocol::Status::Pending {
        build.waiting_for = Some(WaitingFor::Capacity);
    }
    Ok(Json(build))
}

async fn logs(
    State(shell): State<Shell>,
    api: Api,
    Path(id): Path<String>,
    Query(query): Query<HashMap<String, u64>>,
) -> Result<Json<LogPage>, Rejection> {
    let id = path::uuid(&id)?;
    let progress = store::log_pages::progress(&shell.store, api.workspace, id).await?.ok_or(Rejection::NotFound)?;
    let after = query.get("after").copied().unwrap_or(0);
    let stored = store::log_pages::chunks(&shell.store, id, after, 4_000_000).await?;
    let last_seq = stored.last().map_or(after, |chunk| chunk.seq);
    let chunks = stored.iter().map(|c| Chunk::new(c.seq, &c.step, c.stream, c.at_ms, &c.content)).collect();
    let complete = progress.status.is_final() && last_seq >= progress.stored_to;
    Ok(Json(LogPage { chunks, last_seq, complete, capped: progress.discarded_from.is_some() }))
}

async fn workspace(State(shell): State<Shell>, api: Api) -> Result<Json<Workspace>, Rejection> {
    let standing = store::workspaces::standing(&shell.store, api.workspace).await?.ok_or(Rejection::NotFound)?;
    let left = standing.plan.map(|plan| rules::budget::left(plan, standing.usage.charged).0);
    Ok(Json(Workspace {
        slug: standing.slug,
        plan: None,
        limits: None,
        charged_seconds: standing.usage.charged.0,
        reserved_seconds: standing.usage.reserved.0,
        left_seconds: left,
        running: standing.usage.running,
        pending: standing.usage.pending,
    }))
}
