//! The job of a claimed build, for what runs its steps away from its worker: by the build's log token, to one fetcher.

use crate::job;
use axum::extract::{Path, State};
use axum::http::HeaderMap;
use axum::http::header::CACHE_CONTROL;
use axum::http::request::Parts;
use axum::response::{IntoResponse, Response};
use edge::{Json, Rejection, Shell, auth, trace};
use protocol::Problem;
use protocol::runner::{FETCH_ID, RunnerJob};
use store::fetches::{self, Fetched};
use uuid::Uuid;

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
pub(crate) async fn fetch(
    State(shell): State<Shell>,
    Path(build): Path<Uuid>,
    parts: Parts,
) -> Result<Response, Rejection> {
    let claimed_by = claimed_by(&shell, build, &parts)?;
    let fetcher = fetcher(&parts.headers)?;
    let taken = match fetches::fetch(&shell.store, build, &claimed_by, fetcher).await? {
        Fetched::Job(taken) => *taken,
        Fetched::Unauthorized => return Err(Rejection::Unauthorized),
        Fetched::NotFound => return Err(Rejection::NotFound),
        Fetched::Ended(status, reason) => return Err(Rejection::ended(status, reason)),
        Fetched::Taken(traceparent) => {
            traceparent.into_iter().for_each(trace::note);
            tracing::warn!(build.id = %build, token.id = %claimed_by, "job refused to a second fetcher");
            return Err(Rejection::JobTaken);
        }
        Fetched::Lapsed => return Err(Rejection::LeaseLapsed),
        Fetched::TryAgain => return Err(Rejection::TryAgain),
    };
    let job = RunnerJob::from(job::made_of(&shell, &claimed_by, taken));
    tracing::info!(build.id = %build, token.id = %claimed_by, "job fetched");
    Ok(([(CACHE_CONTROL, "no-store")], Json(job)).into_response())
}

/// The worker token that the build's log token stands for. A worker's own is refused: its job is the claim's answer.
fn claimed_by(shell: &Shell, build: Uuid, parts: &Parts) -> Result<String, Rejection> {
    let token = auth::bearer(parts)?;
    if !token.starts_with("cbl_") {
        return Err(Rejection::Unauthorized);
    }
    // Another build's log token is like another token's build: it is not found.
    shell.seal.read_log_token(build, token).ok_or(Rejection::NotFound)
}

/// Not in the address, which others log.
fn fetcher(headers: &HeaderMap) -> Result<Uuid, Rejection> {
    let given = headers.get(FETCH_ID).and_then(|value| protocol::id::parse(value.to_str().ok()?));
    given.ok_or_else(|| Rejection::BadRequest("send Fetch-Id: a UUID that this fetcher made for itself".into()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use axum::http::HeaderValue;

    #[test]
    fn a_fetcher_says_which_one_it_is() {
        let id = Uuid::from_u128(7);
        let given = |value: &str| {
            let value = HeaderValue::from_str(value).expect("a value");
            fetcher(&HeaderMap::from_iter([(FETCH_ID.parse().expect("a name"), value)]))
        };
        assert!(matches!(given(&id.to_string()), Ok(known) if known == id));
        for refused in [given(""), given("seven"), fetcher(&HeaderMap::new())] {
            assert!(matches!(refused, Err(Rejection::BadRequest(_))));
        }
    }
}
