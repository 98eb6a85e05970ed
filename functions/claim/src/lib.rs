//! Which build does this worker get? (SPEC.md, Claim)

mod job;

use axum::extract::State;
use axum::http::StatusCode;
use axum::http::header::RETRY_AFTER;
use axum::response::{IntoResponse, Response};
use edge::{Json, Rejection, Routes, Shell, WorkerToken};
use protocol::worker::{ClaimRequest, Job};
use protocol::{EndReason, Problem};
use rules::runnable;
use store::claims::{self, Claimed, Known, Taken};
use store::submissions;
use utoipa_axum::routes;
use uuid::Uuid;

/// How many builds one claim ends that can't be run; the sweep does the rest.
const UNRUNNABLE_MAX: usize = 10;
/// How often one claim waits for workspaces that others hold.
const WAITS_MAX: usize = 50;
/// When a worker without work is to ask again, in seconds.
const RETRY_AFTER_SECONDS: &str = "2";

/// The route of this function.
pub fn routes() -> Routes {
    Routes::new().routes(routes!(claim))
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
    )
)]
async fn claim(
    State(shell): State<Shell>,
    token: WorkerToken,
    Json(request): Json<ClaimRequest>,
) -> Result<Response, Rejection> {
    check(&request)?;
    match take(&shell, &token, &request).await? {
        Some(taken) => {
            let job = job::made_of(&shell, &token, *taken);
            tracing::info!(build.id = %job.build_id, token.id = %token.id, worker.name = %request.worker.name, "build claimed");
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

/// Asks the store until it has a build or nothing to do; ends what can't be run on the way.
async fn take(shell: &Shell, token: &WorkerToken, request: &ClaimRequest) -> Result<Option<Box<Taken>>, Rejection> {
    let mut known = Known::default();
    let mut unrunnable = 0;
    let mut waits = 0;
    loop {
        let claimed = claims::take(&shell.store, token.parts(), request, &shell.config.timing, &known).await;
        known.wait = None;
        match claimed {
            // The same claim_id won elsewhere: asked again, the store answers with that build.
            Err(store::Error::Conflict(_)) if waits < WAITS_MAX => waits += 1,
            Err(error) => return Err(error.into()),
            Ok(Claimed::Build(taken)) => return Ok(Some(taken)),
            Ok(Claimed::Nothing) => return Ok(None),
            Ok(Claimed::Unauthorized) => return Err(Rejection::Unauthorized),
            Ok(Claimed::Ended(build)) => return Err(job::ended(shell, token, build).await?),
            Ok(Claimed::Contended(_)) if waits >= WAITS_MAX => return Err(Rejection::TryAgain),
            Ok(Claimed::Contended(workspace)) => {
                waits += 1;
                known.wait = Some(workspace);
            }
            Ok(Claimed::Exhausted(workspace)) => {
                let room = UNRUNNABLE_MAX.saturating_sub(unrunnable);
                unrunnable += end(shell, workspace, None, room, EndReason::MinutesExhausted).await?;
                known.skip.push(workspace);
            }
            Ok(Claimed::Unverified { build, workspace }) => match verify(shell, build).await? {
                None => known.verified.push(build),
                Some(_) if unrunnable >= UNRUNNABLE_MAX => known.skip.push(workspace),
                Some(reason) => unrunnable += end(shell, workspace, Some(build), 1, reason).await?.max(1),
            },
        }
    }
}

async fn verify(shell: &Shell, build: Uuid) -> Result<Option<EndReason>, Rejection> {
    let facts = claims::facts(&shell.store, build).await?;
    Ok(facts.and_then(|facts| runnable::unrunnable(facts.has_pipeline, &facts.repository, &facts.git_ref)))
}

/// Ends a workspace's pending build, or its oldest `room`; how many.
async fn end(
    shell: &Shell,
    workspace: Uuid,
    build: Option<Uuid>,
    room: usize,
    reason: EndReason,
) -> Result<usize, Rejection> {
    if room == 0 {
        return Ok(0);
    }
    let builds = build.map(|build| [build]);
    let named = builds.as_ref().map(<[Uuid; 1]>::as_slice);
    let limit = i32::try_from(room).unwrap_or(i32::MAX);
    let message = runnable::explain(reason);
    let ended = submissions::end_pending(&shell.store, workspace, named, limit, reason, message).await?;
    for build in &ended {
        tracing::info!(build.id = %build, end_reason = %reason, "build can't be run");
    }
    Ok(ended.len())
}
