//! The job of a claimed build, for what runs its steps away from its worker: by the build's log token, to one fetcher.

use crate::job;
use axum::extract::State;
use axum::http::header::CACHE_CONTROL;
use axum::http::request::Parts;
use axum::response::{IntoResponse, Response};
use edge::path::Id;
use edge::{Json, Rejection, Runner, Shell};
use protocol::Problem;
use protocol::runner::RunnerJob;
use store::fetches::{self, Fetched};

/// Gives the job to whoever asks first with the build's log token, and again to the same `Fetch-Id`.
#[utoipa::path(
    get,
    path = "/internal/worker/builds/{id}/job",
    tag = "worker",
    params(
        ("id" = Uuid, Path, description = "the build"),
        ("Fetch-Id" = Uuid, Header, description = "which fetcher asks: a random number of its own, the same in a repeat"),
    ),
    responses(
        (status = 200, description = "what to run", body = RunnerJob),
        (status = 401, description = "not a log token, or that of a worker token that is unknown or revoked", body = Problem),
        (status = 404, description = "unknown, or another build's log token", body = Problem),
        (status = 409, description = "build_ended, or conflict: another fetcher has the job", body = Problem),
    )
)]
pub(crate) async fn fetch(State(shell): State<Shell>, Id(build): Id, parts: Parts) -> Result<Response, Rejection> {
    let Runner { claimed_by, fetcher } = Runner::of(&shell, build, &parts)?;
    let taken = match fetches::fetch(&shell.store, build, &claimed_by, fetcher).await? {
        Fetched::Job(taken) => *taken,
        Fetched::Unauthorized => return Err(Rejection::Unauthorized),
        Fetched::NotFound => return Err(Rejection::NotFound),
        Fetched::Ended(status, reason) => return Err(Rejection::ended(status, reason)),
        Fetched::Taken => {
            tracing::warn!(build.id = %build, token.id = %claimed_by, "job refused to a second fetcher");
            return Err(Rejection::JobTaken);
        }
        Fetched::Lapsed => return Err(Rejection::LeaseLapsed),
        Fetched::TryAgain => return Err(Rejection::TryAgain),
    };
    tracing::info!(build.id = %build, token.id = %claimed_by, "job fetched");
    let job = RunnerJob::from(job::made_of(&shell, &claimed_by, taken));
    Ok(([(CACHE_CONTROL, "no-store")], Json(job)).into_response())
}
