//! Errors as RFC 9457 problem details (SPEC.md, 2).

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// The media type of a problem.
pub const PROBLEM_JSON: &str = "application/problem+json";

macro_rules! codes {
    ($($(#[$doc:meta])* $variant:ident = $word:literal,)+) => {
        /// What went wrong, as a stable word that programs compare.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, ToSchema)]
        pub enum Code {
            $($(#[$doc])* #[serde(rename = $word)] $variant,)+
            /// A word of a newer release.
            #[serde(other, rename = "unknown")]
            Unknown,
        }

        impl Code {
            /// The word on the wire.
            #[must_use]
            pub fn as_str(self) -> &'static str {
                match self { $(Self::$variant => $word,)+ Self::Unknown => "unknown" }
            }
        }
    };
}

codes! {
    /// 400: the body is not JSON, lacks a field, or has one that nobody knows.
    BadRequest = "bad_request",
    /// 401: no token, an unknown or a revoked one.
    Unauthorized = "unauthorized",
    /// 402: the workspace's month is spent.
    MinutesExhausted = "minutes_exhausted",
    /// 404: no such thing, or not yours.
    NotFound = "not_found",
    /// 405: the address exists, the method does not.
    MethodNotAllowed = "method_not_allowed",
    /// 409: the build no longer runs; `build_status` and `end_reason` say how it ended.
    BuildEnded = "build_ended",
    /// 409: a retry of a build that has not ended.
    BuildNotFinal = "build_not_final",
    /// 409: this `seq` is stored with other bytes; go on from `expected_seq`.
    SeqConflict = "seq_conflict",
    /// 409: a `seq` is missing; go on from `expected_seq`.
    LogGap = "log_gap",
    /// 409: chunks up to `last_seq` are missing; go on from `expected_seq`.
    LogsMissing = "logs_missing",
    /// 409: the preview is neither starting nor running, so that it can't be extended.
    PreviewEnded = "preview_ended",
    /// 409: plans come from the billing service; set it there.
    BilledElsewhere = "billed_elsewhere",
    /// 409: another fetcher has this build's job, or another report on it is stored.
    Conflict = "conflict",
    /// 409: a thing of that name exists already.
    Exists = "exists",
    /// 412: changed by somebody else since it was read.
    ConcurrentUpdate = "concurrent_update",
    /// 413: larger than is allowed.
    TooLarge = "too_large",
    /// 415: not `application/json`.
    UnsupportedMediaType = "unsupported_media_type",
    /// 422: well-formed, but `field` has a value that can't be.
    Invalid = "invalid",
    /// 422: this `Idempotency-Key` came with another body before.
    IdempotencyMismatch = "idempotency_mismatch",
    /// 429: as many builds wait as the plan allows.
    QueueFull = "queue_full",
    /// 500: our fault.
    Internal = "internal",
    /// 503: the workspace's plan can't be read.
    BillingUnavailable = "billing_unavailable",
    /// 503: the database did not answer, or is not migrated.
    Unavailable = "unavailable",
}

/// A problem details object.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Problem {
    /// `about:blank`: the code says all.
    #[serde(rename = "type", default = "blank")]
    pub kind: String,
    /// The status's own words.
    pub title: String,
    /// The HTTP status.
    pub status: u16,
    /// What went wrong, for programs.
    #[schema(inline)]
    pub code: Code,
    /// What went wrong, for people: what, where, how to mend it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub detail: Option<String>,
    /// The request as the logs know it.
    #[serde(default)]
    pub request_id: String,
    /// The field of the request that it is about.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub field: Option<String>,
    /// With `build_ended`: the build's status.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub build_status: Option<rules::Status>,
    /// With `build_ended`: why it ended.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub end_reason: Option<rules::EndReason>,
    /// With `seq_conflict`, `log_gap`, `logs_missing`: where to go on.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub expected_seq: Option<u64>,
}

fn blank() -> String {
    "about:blank".into()
}
