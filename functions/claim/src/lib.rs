//! Which build does this worker get? (SPEC.md, Claim) And what does the build run, for what runs it away from its worker?

mod fetch;
mod job;
mod take;

use axum::Extension;
use axum::extract::State;
use axum::http::StatusCode;
use axum::http::header::RETRY_AFTER;
use axum::response::{IntoResponse, Response};
use edge::{Combiner, Json, Rejection, Routes, Shell, WorkerToken};
use protocol::Problem;
use protocol::worker::{ClaimRequest, Job};
use std::sync::Arc;
use store::claims::Taken;
use take::Call;
use utoipa_axum::routes;

type Claims = Combiner<Call, Option<Box<Taken>>>;

/// When a worker without work is to ask again, in seconds.
const RETRY_AFTER_SECONDS: &str = "2";

/// The routes of this function.
pub fn routes() -> Routes {
    Routes::new().routes(routes!(claim)).routes(routes!(fetch::fetch)).layer(Extension(Arc::<Claims>::default()))
}

/// Takes the oldest build that may run; a repeated `claim_id` gets the same job.
#[utoipa::path(
    post,
    path = "/internal/worker/claim",
    tag = "worker",
    request_body = ClaimRequest,
    responses(
        (status = 200, description = "a build to run", body = Job),
        (status = 204, description = "nothing to do; `Retry-After` says when to ask again"),
        (status = 401, description = "token unknown or revoked", body = Problem),
        (status = 409, description = "build_ended: this claim_id's build has ended", body = Problem),
        (status = 422, description = "a word that no worker says of itself", body = Problem),
    )
)]
async fn claim(
    State(shell): State<Shell>,
    Extension(claims): Extension<Arc<Claims>>,
    token: WorkerToken,
    Json(request): Json<ClaimRequest>,
) -> Result<Response, Rejection> {
    check(&request)?;
    let name = request.worker.name.clone();
    let serve = {
        let shell = shell.clone();
        move |calls| take::serve(shell.clone(), calls)
    };
    let call = Call { token: token.clone(), request };
    match claims.call(call, shell.config.batch_max, serve).await? {
        Some(taken) => {
            let job = job::made_of(&shell, &token.id, *taken);
            tracing::info!(build.id = %job.build_id, token.id = %token.id, worker.name = %name, "build claimed");
            Ok(Json(job).into_response())
        }
        None => Ok((StatusCode::NO_CONTENT, [(RETRY_AFTER, RETRY_AFTER_SECONDS)]).into_response()),
    }
}

/// Refuses what Postgres can't store, and what no worker would say of itself.
fn check(request: &ClaimRequest) -> Result<(), Rejection> {
    let worker = &request.worker;
    let words = [&worker.name, &worker.version, &worker.host_id];
    let listed = worker.isolation.iter().chain(&worker.labels);
    if words.into_iter().chain(listed).any(|word| word.len() > 255 || word.contains('\0')) {
        return Err(Rejection::invalid("worker", "a word is longer than 255 bytes or holds NUL"));
    }
    if worker.name.is_empty() || worker.labels.len() > 64 || worker.isolation.len() > 16 {
        return Err(Rejection::invalid("worker", "give a name, at most 64 labels and 16 back ends"));
    }
    Ok(())
}
