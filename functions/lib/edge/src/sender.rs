//! Whose a worker's call is that can't be read. A worker's token is checked by the statement that its call runs, which a call that is
//! refused for what it says does not reach: only such a call has its token looked up by itself, before the refusal says more.

use crate::auth::{WorkerToken, bearer_in};
use crate::{Rejection, Shell, log_token};
use axum::extract::Request;
use axum::response::{IntoResponse as _, Response};
use http::header::AUTHORIZATION;
use http::{HeaderValue, StatusCode, Uri};
use uuid::Uuid;

/// Where workers call.
const WORKERS: &str = "/internal/worker/";

/// What is kept of a worker's call, to know its sender by.
pub(crate) struct Sender {
    authorization: Option<HeaderValue>,
    uri: Uri,
}

impl Sender {
    /// `None` where a call is not one of workers.
    pub(crate) fn of(request: &Request) -> Option<Self> {
        request
            .uri()
            .path()
            .starts_with(WORKERS)
            .then(|| Self { authorization: request.headers().get(AUTHORIZATION).cloned(), uri: request.uri().clone() })
    }

    /// The answer, or 401 where it refuses what was said by somebody whom nobody knows.
    pub(crate) async fn answered(self, shell: &Shell, response: Response) -> Response {
        if !is_about_what_was_said(response.status()) {
            return response;
        }
        self.known(shell).await.map_or_else(Rejection::into_response, |()| response)
    }

    async fn known(&self, shell: &Shell) -> Result<(), Rejection> {
        let token = bearer_in(self.authorization.as_ref())?;
        let (id, digest) = match self.build_of_log_token() {
            Some(build) => log_token::caller(shell, build, token)?,
            None => {
                let token = WorkerToken::of(token);
                (token.id, Some(token.digest))
            }
        };
        let known = store::tokens::is_workers(&shell.store, &id, digest.as_deref()).await?;
        known.then_some(()).ok_or(Rejection::Unauthorized)
    }

    /// The build, where the call is one that its log token is good for.
    fn build_of_log_token(&self) -> Option<Uuid> {
        let (build, call) = self.uri.path().strip_prefix(WORKERS)?.strip_prefix("builds/")?.split_once('/')?;
        protocol::id::parse(build).filter(|_| matches!(call, "logs" | "job" | "report"))
    }
}

fn is_about_what_was_said(status: StatusCode) -> bool {
    matches!(
        status,
        StatusCode::BAD_REQUEST
            | StatusCode::PAYLOAD_TOO_LARGE
            | StatusCode::UNSUPPORTED_MEDIA_TYPE
            | StatusCode::UNPROCESSABLE_ENTITY
    )
}
