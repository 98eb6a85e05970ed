//! Around every request: its id, its trace, its span, its log line, and the body of a problem.

use crate::Shell;
use crate::missing::missing;
use crate::query::Calls;
use crate::rejection::problem;
use crate::sender::Sender;
use crate::trace;
use axum::body::Body;
use axum::extract::{MatchedPath, Request, State};
use axum::middleware::Next;
use axum::response::{IntoResponse as _, Response};
use http::header::{CONTENT_TYPE, HeaderName};
use http::{HeaderValue, StatusCode};
use protocol::problem::PROBLEM_JSON;
use protocol::{Code, Problem};
use std::sync::Arc;
use tracing::Instrument as _;
use tracing::field::display;

/// The header in which a caller may give the request's id, and in which the answer repeats it.
pub const REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");

/// The route of an address that there is none for.
const NO_ROUTE: &str = "-";

/// What is known around every request.
pub(crate) struct Around {
    pub(crate) calls: Calls,
    pub(crate) shell: Shell,
}

/// Gives the request an id, notes what its call takes, runs it, logs one line, and turns every refusal into a problem with that id.
pub(crate) async fn around(State(around): State<Arc<Around>>, mut request: Request, next: Next) -> Response {
    around.calls.mark(&mut request);
    let sender = Sender::of(&request);
    let id = request_id(&request);
    let method = request.method().clone();
    let route = request.extensions().get::<MatchedPath>().map_or(NO_ROUTE, MatchedPath::as_str).to_owned();
    let trace = trace::given(request.headers()).map(|given| display(given.trace_id()));
    let span = tracing::info_span!("request", request.id = %id, trace.id = trace);
    let mut response = next.run(request).instrument(span.clone()).await;
    if let Some(sender) = sender {
        response = sender.answered(&around.shell, response).instrument(span.clone()).await;
    }
    span.in_scope(|| {
        tracing::debug!(http.method = %method, http.route = %route, http.status = response.status().as_u16(), "answered");
    });
    if response.status().is_client_error() || response.status().is_server_error() {
        response = with_problem(response, &id, &route);
    }
    if let Ok(value) = HeaderValue::from_str(&id) {
        response.headers_mut().insert(REQUEST_ID, value);
    }
    response
}

/// The caller's id where it is short and plain, else one of our own.
fn request_id(request: &Request) -> String {
    let given = request.headers().get(&REQUEST_ID).and_then(|value| value.to_str().ok());
    let plain =
        |id: &&str| (1..=64).contains(&id.len()) && id.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-');
    given.filter(plain).map_or_else(new_id, str::to_owned)
}

/// A UUID of this thread's own dice: the system's would be a system call for each request.
fn new_id() -> String {
    uuid::Builder::from_random_bytes(rand::random()).into_uuid().to_string()
}

/// The same answer with a problem as its body, which names what was not found. The framework's own refusals get one that
/// fits their status.
fn with_problem(mut response: Response, id: &str, route: &str) -> Response {
    let status = response.status();
    let ours = response.extensions_mut().remove::<Problem>();
    let mut problem = ours.unwrap_or_else(|| framework_problem(status));
    if problem.code == Code::NotFound && route != NO_ROUTE {
        problem.detail = Some(missing(route).into());
    }
    problem.request_id = id.to_owned();
    let body = serde_json::to_vec(&problem).unwrap_or_default();
    let mut answer = (status, Body::from(body)).into_response();
    for (name, value) in response.headers() {
        if name != CONTENT_TYPE && name != http::header::CONTENT_LENGTH {
            answer.headers_mut().insert(name, value.clone());
        }
    }
    answer.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(PROBLEM_JSON));
    answer
}

fn framework_problem(status: StatusCode) -> Problem {
    let (code, detail) = match status.as_u16() {
        401 => (Code::Unauthorized, "no valid token"),
        404 => (Code::NotFound, "no such address; /openapi.json lists them"),
        405 => (Code::MethodNotAllowed, "this address does not take that method; /openapi.json lists them"),
        413 => (Code::TooLarge, "the body is larger than this call allows"),
        415 => (Code::UnsupportedMediaType, "send content-type: application/json, with no charset but utf-8"),
        400..500 => (Code::BadRequest, "the request can't be read: look at the ids in its address"),
        _ => (Code::Internal, "our fault; the logs know the request_id"),
    };
    problem(status, code, detail.to_owned())
}
