//! May this build go on? Renews a lease and says whether to stop (SPEC.md, Per-build worker calls).

use axum::extract::State;
use edge::path::Id;
use edge::{Json, Rejection, Routes, Shell, WorkerToken};
use protocol::Problem;
use protocol::worker::{Heartbeat, Renewed};
use store::builds::{self, Standing};
use utoipa_axum::routes;

/// The route of this function.
pub fn routes() -> Routes {
    Routes::new().routes(routes!(heartbeat))
}

/// Renews the lease of a running build, also one that has lapsed but is not yet reaped.
#[utoipa::path(
    post,
    path = "/internal/worker/builds/{id}/heartbeat",
    tag = "worker",
    params(
        ("id" = Uuid, Path, description = "the build"),
        ("traceparent" = Option<String>, Header, description = "the job's: it is in this call's log lines"),
    ),
    request_body = Heartbeat,
    responses(
        (status = 200, description = "renewed", body = Renewed),
        (status = 401, description = "token unknown or revoked", body = Problem),
        (status = 404, description = "unknown, or another token's", body = Problem),
        (status = 409, description = "build_ended", body = Problem),
    )
)]
async fn heartbeat(
    State(shell): State<Shell>,
    token: WorkerToken,
    Id(id): Id,
    Json(mut beat): Json<Heartbeat>,
) -> Result<Json<Renewed>, Rejection> {
    // What a worker says to people never costs it its lease: Postgres can't store NUL.
    if let Some(phase) = &mut beat.phase {
        phase.retain(|letter| letter != '\0');
    }
    let renewed = builds::renew(&shell.store, id, token.parts(), &beat, &shell.config.timing).await?;
    if let Some(renewed) = renewed {
        tracing::debug!(build.id = %id, lease.ttl_ms = renewed.lease_ttl_ms, "lease renewed");
        return Ok(Json(renewed));
    }
    Err(refusal(builds::standing(&shell.store, id, token.parts()).await?))
}

fn refusal(standing: Standing) -> Rejection {
    match standing {
        Standing::Unauthorized => Rejection::Unauthorized,
        Standing::NotFound => Rejection::NotFound,
        Standing::Held { held, .. } => Rejection::ended(held.status, held.end_reason),
    }
}
