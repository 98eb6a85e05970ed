//! Why a call is refused, and the status and problem that say so. Matched once, here.

use axum::response::{IntoResponse, Response};
use http::StatusCode;
use http::header::RETRY_AFTER;
use protocol::{Code, EndReason, Problem, Status};

/// A refusal. Each variant's doc begins with its status.
#[derive(Debug, thiserror::Error)]
pub enum Rejection {
    /// 400: the body is not JSON, lacks a field, or has one that nobody knows.
    #[error("bad request: {0}")]
    BadRequest(String),
    /// 401: no token, an unknown or a revoked one, or one of another kind.
    #[error("unauthorized")]
    Unauthorized,
    /// 402: the workspace's month is spent.
    #[error("minutes exhausted")]
    MinutesExhausted,
    /// 404: no such thing, or not yours.
    #[error("not found")]
    NotFound,
    /// 409: the build no longer runs.
    #[error("build ended: {status}")]
    BuildEnded {
        /// How it ended.
        status: Status,
        /// Why.
        end_reason: Option<EndReason>,
    },
    /// 409: go on from `expected_seq`. The code is `seq_conflict`, `log_gap` or `logs_missing`.
    #[error("{}: expected seq {expected_seq}", code.as_str())]
    Sequence {
        /// Which of the three.
        code: Code,
        /// Where to go on.
        expected_seq: u64,
    },
    /// 409: a retry of a build that has not ended.
    #[error("build not final")]
    BuildNotFinal,
    /// 409: a preview that neither starts nor runs can't be extended.
    #[error("preview ended: {0}")]
    PreviewEnded(rules::preview::State),
    /// 409: plans come from the billing service, not from operators.
    #[error("billed elsewhere")]
    BilledElsewhere,
    /// 409: another fetcher has this build's job.
    #[error("job taken")]
    JobTaken,
    /// 409: a report on a build from somebody who did not fetch its job.
    #[error("not the runner")]
    NotTheRunner,
    /// 409: another report on this build is stored.
    #[error("reported otherwise")]
    ReportedOtherwise,
    /// 412: changed by somebody else since it was read.
    #[error("concurrent update")]
    ConcurrentUpdate,
    /// 413: larger than is allowed.
    #[error("too large: {0}")]
    TooLarge(String),
    /// 415: not `application/json`.
    #[error("unsupported media type")]
    UnsupportedMediaType,
    /// 422: well-formed, but `field` has a value that can't be.
    #[error("invalid {field}: {detail}")]
    Invalid {
        /// The field.
        field: String,
        /// What is wrong, and what it should be.
        detail: String,
    },
    /// 422: this `Idempotency-Key` came with another body before.
    #[error("idempotency mismatch")]
    IdempotencyMismatch,
    /// 429: as many builds wait as the plan allows.
    #[error("queue full")]
    QueueFull,
    /// 503: the workspace's plan can't be read.
    #[error("billing unavailable")]
    BillingUnavailable,
    /// 503: the lease has lapsed; it may be renewed yet, or the build be lost.
    #[error("lease lapsed")]
    LeaseLapsed,
    /// 503: two calls met; the same call again will find out.
    #[error("two calls met")]
    TryAgain,
    /// 503: the database lacks migrations of this release.
    #[error("not migrated")]
    NotMigrated,
    /// 503: a setting that is a secret could not be fetched.
    #[error("unfetched: {0}")]
    Unfetched(String),
    /// 503 where the database could not be asked, else 500.
    #[error("store: {0}")]
    Store(#[from] store::Error),
    /// 500: our fault.
    #[error("internal: {0}")]
    Internal(String),
}

impl Rejection {
    /// A value that can't be, in `field`.
    pub fn invalid(field: impl Into<String>, detail: impl Into<String>) -> Self {
        Self::Invalid { field: field.into(), detail: detail.into() }
    }

    /// A build that no longer runs. One that was found running after all (it was renewed in between) is our database's
    /// momentary trouble: the caller tries again.
    #[must_use]
    pub fn ended(status: Status, end_reason: Option<EndReason>) -> Self {
        if status.is_final() { Self::BuildEnded { status, end_reason } } else { Self::TryAgain }
    }

    fn words(&self) -> (StatusCode, Code, String) {
        use StatusCode as S;
        match self {
            Self::BadRequest(detail) => (S::BAD_REQUEST, Code::BadRequest, detail.clone()),
            Self::Unauthorized => (S::UNAUTHORIZED, Code::Unauthorized, UNAUTHORIZED.into()),
            Self::MinutesExhausted => (
                S::PAYMENT_REQUIRED,
                Code::MinutesExhausted,
                "the workspace has used all build minutes of this month; they begin anew on the first (UTC)".into(),
            ),
            Self::NotFound => (S::NOT_FOUND, Code::NotFound, "no such thing here".into()),
            Self::BuildEnded { status, .. } => (S::CONFLICT, Code::BuildEnded, format!("the build is {status}")),
            Self::Sequence { code, expected_seq } => (S::CONFLICT, *code, format!("go on from seq {expected_seq}")),
            Self::BuildNotFinal => {
                (S::CONFLICT, Code::BuildNotFinal, "the build has not ended; cancel it first".into())
            }
            Self::PreviewEnded(state) => {
                (S::CONFLICT, Code::PreviewEnded, format!("the preview is {state}; build again to get another"))
            }
            Self::BilledElsewhere => (
                S::CONFLICT,
                Code::BilledElsewhere,
                "plans come from the billing service (CALLBOARD_BILLING_URL); set it there".into(),
            ),
            Self::JobTaken => (
                S::CONFLICT,
                Code::Conflict,
                "another fetcher has this build's job, and it is given to one; only that one's Fetch-Id gets it again"
                    .into(),
            ),
            Self::NotTheRunner => (
                S::CONFLICT,
                Code::Conflict,
                "this Fetch-Id has not fetched this build's job; only the runner that has may report on it".into(),
            ),
            Self::ReportedOtherwise => {
                (S::CONFLICT, Code::Conflict, "another report on this build is stored, and it stands".into())
            }
            Self::ConcurrentUpdate => {
                (S::PRECONDITION_FAILED, Code::ConcurrentUpdate, "changed since you read it; read it again".into())
            }
            Self::TooLarge(detail) => (S::PAYLOAD_TOO_LARGE, Code::TooLarge, detail.clone()),
            Self::UnsupportedMediaType => (
                S::UNSUPPORTED_MEDIA_TYPE,
                Code::UnsupportedMediaType,
                "send content-type: application/json, with no charset but utf-8".into(),
            ),
            Self::Invalid { detail, .. } => (S::UNPROCESSABLE_ENTITY, Code::Invalid, detail.clone()),
            Self::IdempotencyMismatch => (
                S::UNPROCESSABLE_ENTITY,
                Code::IdempotencyMismatch,
                "this Idempotency-Key was used with another body; take a new key".into(),
            ),
            Self::QueueFull => (
                S::TOO_MANY_REQUESTS,
                Code::QueueFull,
                "as many builds wait as the plan allows; try again later".into(),
            ),
            Self::BillingUnavailable => (
                S::SERVICE_UNAVAILABLE,
                Code::BillingUnavailable,
                "the workspace's plan can't be read; try again".into(),
            ),
            Self::LeaseLapsed => (
                S::SERVICE_UNAVAILABLE,
                Code::Unavailable,
                "the build's lease has lapsed; try again until its worker has renewed it, or the build has ended"
                    .into(),
            ),
            Self::TryAgain => {
                (S::SERVICE_UNAVAILABLE, Code::Unavailable, "two calls about the same thing met; try again".into())
            }
            Self::NotMigrated => (
                S::SERVICE_UNAVAILABLE,
                Code::Unavailable,
                "the database is not migrated; run `callboard migrate`".into(),
            ),
            Self::Store(store::Error::Unavailable(_) | store::Error::Refused(_) | store::Error::Locked(_)) => {
                (S::SERVICE_UNAVAILABLE, Code::Unavailable, "the database did not answer; try again".into())
            }
            Self::Unfetched(_) => {
                (S::SERVICE_UNAVAILABLE, Code::Unavailable, "the board has not got its settings yet; try again".into())
            }
            Self::Store(_) | Self::Internal(_) => {
                (S::INTERNAL_SERVER_ERROR, Code::Internal, "our fault; the logs know the request_id".into())
            }
        }
    }

    /// Whether the board is well, and the call only came at the wrong time: a workspace lacks its plan, a lease has lapsed, or two calls met.
    fn is_put_off(&self) -> bool {
        matches!(self, Self::BillingUnavailable | Self::LeaseLapsed | Self::TryAgain)
    }

    /// The problem that says so. A 5xx is not described: its cause is for the logs.
    #[must_use]
    pub fn problem(&self) -> Problem {
        let (status, code, detail) = self.words();
        let mut problem = problem(status, code, detail);
        match self {
            Self::BuildEnded { status, end_reason } => {
                problem.build_status = Some(*status);
                problem.end_reason = *end_reason;
            }
            Self::Sequence { expected_seq, .. } => problem.expected_seq = Some(*expected_seq),
            Self::Invalid { field, .. } => problem.field = Some(field.clone()),
            Self::BadRequest(_)
            | Self::Unauthorized
            | Self::MinutesExhausted
            | Self::NotFound
            | Self::BuildNotFinal
            | Self::PreviewEnded(_)
            | Self::BilledElsewhere
            | Self::JobTaken
            | Self::NotTheRunner
            | Self::ReportedOtherwise
            | Self::ConcurrentUpdate
            | Self::TooLarge(_)
            | Self::UnsupportedMediaType
            | Self::IdempotencyMismatch
            | Self::QueueFull
            | Self::BillingUnavailable
            | Self::LeaseLapsed
            | Self::TryAgain
            | Self::NotMigrated
            | Self::Unfetched(_)
            | Self::Store(_)
            | Self::Internal(_) => {}
        }
        problem
    }
}

const UNAUTHORIZED: &str = "send Authorization: Bearer <token>, with a token of the right kind that is not revoked";

/// A problem of `status`, before the request's id is known.
pub(crate) fn problem(status: StatusCode, code: Code, detail: String) -> Problem {
    Problem {
        kind: "about:blank".into(),
        title: status.canonical_reason().unwrap_or("Error").into(),
        status: status.as_u16(),
        code,
        detail: Some(detail),
        request_id: String::new(),
        field: None,
        build_status: None,
        end_reason: None,
        expected_seq: None,
    }
}

/// The problem travels as an extension; [`crate::request`] writes it as the body, with the request's id.
impl IntoResponse for Rejection {
    fn into_response(self) -> Response {
        let problem = self.problem();
        let status = StatusCode::from_u16(problem.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        if self.is_put_off() {
            tracing::warn!(reason = %self, status = status.as_u16(), "request put off");
        } else if status.is_server_error() {
            tracing::error!(error = %self, status = status.as_u16(), "request failed");
        }
        let mut response = status.into_response();
        if matches!(status, StatusCode::TOO_MANY_REQUESTS | StatusCode::SERVICE_UNAVAILABLE) {
            response.headers_mut().insert(RETRY_AFTER, http::HeaderValue::from_static("5"));
        }
        response.extensions_mut().insert(problem);
        response
    }
}
