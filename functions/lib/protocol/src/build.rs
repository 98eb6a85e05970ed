//! Builds as the web-app submits and reads them (SPEC.md, 2).

use crate::object;
use crate::pipeline::Env;
use rules::waiting::WaitingFor;
use rules::{EndReason, Status};
use serde::{Deserialize, Serialize};
use time::OffsetDateTime;
use utoipa::ToSchema;
use uuid::Uuid;

/// A request for a build.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Submit {
    /// The pipeline's name.
    pub pipeline: String,
    /// The branch, tag or commit; the pipeline's default if absent.
    #[serde(rename = "ref", default, skip_serializing_if = "Option::is_none")]
    pub git_ref: Option<String>,
    /// Variables; they win over the pipeline's, a step's own win over both.
    #[serde(default, deserialize_with = "object::map", skip_serializing_if = "Env::is_empty")]
    pub env: Env,
}

/// A request to end a build. The body may be absent.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Cancel {
    /// Why: `user` if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub reason: Option<rules::CancelReason>,
}

/// A request to try a build again. It says nothing: what is built is what was built then. The body may be absent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Retry {}

/// How a step went.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum StepStatus {
    /// Exit code 0.
    Success,
    /// Another exit code, or it could not run.
    Failed,
    /// Its own timeout, or the build's deadline.
    TimedOut,
    /// Ended because somebody asked.
    Cancelled,
    /// A step before it failed.
    Skipped,
}

/// A step's outcome.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct StepResult {
    /// The step's name.
    pub name: String,
    /// How it went.
    #[schema(inline)]
    pub status: StepStatus,
    /// Its exit code, if it came so far; 128 + N for a signal N.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exit_code: Option<i32>,
    /// How long it took.
    #[serde(default)]
    pub duration_ms: u64,
}

/// A build as the board shows it. What does not apply to its state is absent.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Build {
    /// Its id (UUIDv7).
    pub id: Uuid,
    /// Its pipeline's name.
    pub pipeline: String,
    /// Its state.
    #[schema(value_type = String)]
    pub status: Status,
    /// Where its source is.
    pub repository: String,
    /// The branch, tag or commit that was asked for.
    #[serde(rename = "ref")]
    pub git_ref: String,
    /// The commit that was built.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub commit: Option<String>,
    /// The build that this one tries again.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub retry_of: Option<Uuid>,
    /// The trace that it belongs to, 32 hex digits: log lines of the functions and the worker about it have it as `trace.id`. Absent for builds
    /// from before there were traces.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trace_id: Option<String>,
    /// When it was admitted.
    #[serde(with = "time::serde::rfc3339")]
    pub created_at: OffsetDateTime,
    /// When it was claimed.
    #[serde(with = "time::serde::rfc3339::option", skip_serializing_if = "Option::is_none", default)]
    pub started_at: Option<OffsetDateTime>,
    /// When it ended.
    #[serde(with = "time::serde::rfc3339::option", skip_serializing_if = "Option::is_none", default)]
    pub ended_at: Option<OffsetDateTime>,
    /// Pending: for how long it has waited, by the board's clock.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub waited_ms: Option<u64>,
    /// Pending: how many of the workspace's builds are ahead, counted to 1,000.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub position: Option<u32>,
    /// Pending: what it waits for: `capacity`, `running_limit`, `minutes`, `billing` or `no_worker_matches`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub waiting_for: Option<WaitingFor>,
    /// Running: what its worker is at (`clone`, or a step's name).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub phase: Option<String>,
    /// Running: when the worker that holds it must have called back.
    #[serde(with = "time::serde::rfc3339::option", skip_serializing_if = "Option::is_none", default)]
    pub lease_expires_at: Option<OffsetDateTime>,
    /// The id of the token whose worker claimed it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub claimed_by: Option<String>,
    /// Started: the deadline, as a duration from the claim.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_duration_seconds: Option<u32>,
    /// Whether somebody asked for its end.
    #[serde(default)]
    pub cancel_requested: bool,
    /// Ended: why, unless it was a success.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub end_reason: Option<EndReason>,
    /// Ended: the same for a person.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error_message: Option<String>,
    /// Ended: how long it ran.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub duration_ms: Option<u64>,
    /// Ended: what it cost.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub charged_seconds: Option<u32>,
    /// The names of its steps, in order.
    pub step_names: Vec<String>,
    /// Ended: how its steps went.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub steps: Vec<StepResult>,
    /// Raised by every change of state; the ETag.
    pub version: i64,
}

/// A page of builds, newest first.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Builds {
    /// The builds.
    pub builds: Vec<Build>,
    /// Where the next page begins; absent on the last.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub next_cursor: Option<String>,
}
