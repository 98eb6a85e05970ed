//! How the runner of a build's steps says that they went, and how the worker that holds the build gets to know it: where the steps run away from
//! their worker (docs/decisions/0017).

use crate::tidy::tidy;
use axum::extract::State;
use axum::http::StatusCode;
use axum::http::request::Parts;
use axum::response::{IntoResponse as _, Response};
use edge::path::Id;
use edge::{Json, Rejection, Runner, Shell, WorkerToken};
use protocol::Problem;
use protocol::runner::Report;
use store::reports::{self, Reported, Told};

/// Keeps the one report on a build, from the runner that fetched its job. It ends nothing.
#[utoipa::path(
    put,
    path = "/internal/worker/builds/{id}/report",
    tag = "worker",
    params(
        ("id" = Uuid, Path, description = "the build"),
        ("Fetch-Id" = Uuid, Header, description = "which fetcher reports: the number by which it got the job"),
    ),
    request_body = Report,
    responses(
        (status = 204, description = "stored, now or before"),
        (status = 401, description = "not a log token, or that of a worker token that is unknown or revoked", body = Problem),
        (status = 404, description = "unknown, or another build's log token", body = Problem),
        (status = 409, description = "build_ended, or conflict: another fetcher has the job, or another report is stored", body = Problem),
    )
)]
pub(crate) async fn report(
    State(shell): State<Shell>,
    Id(build): Id,
    parts: Parts,
    Json(mut report): Json<Report>,
) -> Result<StatusCode, Rejection> {
    let Runner { claimed_by, fetcher } = Runner::of(&shell, build, &parts)?;
    tidy(&mut report.error_message, &mut report.commit, &mut report.steps);
    match reports::store(&shell.store, build, &claimed_by, fetcher, &report).await? {
        Reported::Stored => tracing::info!(build.id = %build, outcome = ?report.outcome, "build reported on"),
        Reported::Repeated => {}
        Reported::Unauthorized => return Err(Rejection::Unauthorized),
        Reported::NotFound => return Err(Rejection::NotFound),
        Reported::Ended(status, reason) => return Err(Rejection::ended(status, reason)),
        Reported::Stranger => {
            tracing::warn!(build.id = %build, token.id = %claimed_by, "report refused: not from the job's fetcher");
            return Err(Rejection::NotTheRunner);
        }
        Reported::Conflict => {
            tracing::warn!(build.id = %build, token.id = %claimed_by, "report refused: another one is stored");
            return Err(Rejection::ReportedOtherwise);
        }
        Reported::TryAgain => return Err(Rejection::TryAgain),
    }
    Ok(StatusCode::NO_CONTENT)
}

/// What the runner of a build's steps has reported, for the worker that holds the build.
#[utoipa::path(
    get,
    path = "/internal/worker/builds/{id}/report",
    tag = "worker",
    params(("id" = Uuid, Path, description = "the build")),
    responses(
        (status = 200, description = "how it went", body = Report),
        (status = 204, description = "not reported yet"),
        (status = 401, description = "token unknown or revoked", body = Problem),
        (status = 404, description = "unknown, or another token's", body = Problem),
        (status = 409, description = "build_ended", body = Problem),
    )
)]
pub(crate) async fn reported(
    State(shell): State<Shell>,
    token: WorkerToken,
    Id(build): Id,
) -> Result<Response, Rejection> {
    match reports::told(&shell.store, build, token.parts()).await? {
        Told::Report(report) => Ok(Json(*report).into_response()),
        Told::Nothing => Ok(StatusCode::NO_CONTENT.into_response()),
        Told::Unauthorized => Err(Rejection::Unauthorized),
        Told::NotFound => Err(Rejection::NotFound),
        Told::Ended(status, reason) => Err(Rejection::ended(status, reason)),
    }
}
