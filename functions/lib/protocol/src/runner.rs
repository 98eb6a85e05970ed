//! What runs a build's steps away from its worker: the job as the control plane hands it to it, and how it says that the build went
//! (docs/worker-protocol.md, Job and Report). Unknown fields are ignored.

use crate::build::StepResult;
use crate::pipeline::{Env, Step};
use crate::trace::{self, Traceparent};
use crate::worker::{Job, LogLimits, Secret};
use rules::EndReason;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use utoipa::ToSchema;
use uuid::Uuid;

/// The header in which a fetcher says which one it is.
pub const FETCH_ID: &str = "fetch-id";

/// A claimed build as the runner of its steps receives it: the worker's job without what is the worker's alone, which is its leases, its
/// log token, what registries are shown, and the preview.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct RunnerJob {
    /// The build.
    pub build_id: Uuid,
    /// Where its source is.
    pub repository: String,
    /// The branch, tag or commit to build.
    #[serde(rename = "ref")]
    pub git_ref: String,
    /// The exact commit, where a build is tried again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub commit: Option<String>,
    /// Whether the clone brings submodules.
    #[serde(default)]
    pub submodules: bool,
    /// What to run, in order.
    pub steps: Vec<Step>,
    /// What to run, in order, if the build is cancelled once its source is there.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub on_cancel: Vec<Step>,
    /// Variables of every step.
    #[serde(default)]
    pub env: Env,
    /// Secrets that the steps see as variables, and that are masked in the log.
    #[serde(default)]
    pub secrets: BTreeMap<String, Secret>,
    /// What the clone, and nothing else, gets as a password.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub clone_secret: Option<Secret>,
    /// When the build must have ended, from when the request was sent; 0 if that is past.
    pub deadline_in_ms: u64,
    /// What the build may take in all, from its claim.
    pub max_duration_seconds: u32,
    /// How logs are to be sent.
    pub log: LogLimits,
    /// The trace that the build belongs to, as a header says it: sent back with every call about the build.
    #[serde(default, deserialize_with = "trace::lenient", skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub traceparent: Option<Traceparent>,
}

impl From<Job> for RunnerJob {
    fn from(job: Job) -> Self {
        Self {
            build_id: job.build_id,
            repository: job.repository,
            git_ref: job.git_ref,
            commit: job.commit,
            submodules: job.submodules,
            steps: job.steps,
            on_cancel: job.on_cancel,
            env: job.env,
            secrets: job.secrets,
            clone_secret: job.clone_secret,
            deadline_in_ms: job.deadline_in_ms,
            max_duration_seconds: job.max_duration_seconds,
            log: job.log,
            traceparent: job.traceparent,
        }
    }
}

/// How a runner's part of a build went.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// All that was to run succeeded.
    Success,
    /// Something did not.
    Failed,
    /// It was told to stop, and did. Its worker knows why.
    Stopped,
}

/// How a build went, as the runner of its steps says it to the worker that holds the build, by way of the board. It ends nothing: what the
/// worker makes of it is the build's end.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Report {
    /// How it went.
    #[schema(inline)]
    pub outcome: Outcome,
    /// Why, unless it was a success.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub end_reason: Option<EndReason>,
    /// The same for a person, masked, at most 1 KiB: what is longer is cut.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error_message: Option<String>,
    /// The commit that was checked out: 40 or 64 hex digits. Anything else is left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub commit: Option<String>,
    /// How the steps went.
    #[serde(default)]
    pub steps: Vec<StepResult>,
    /// The last chunk's `seq`; 0 for none.
    #[serde(default)]
    pub last_seq: u64,
    /// Whether the runner gave up on chunks that are missing.
    #[serde(default)]
    pub logs_lost: bool,
    /// How long it tidied up after the steps had ended, which counts as no run time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tidied_ms: Option<u64>,
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_report_is_its_outcome_and_what_else_is_known() {
        let short: Report = serde_json::from_value(json!({ "outcome": "stopped", "colour": "red" })).expect("a report");
        let nothing = Report {
            outcome: Outcome::Stopped,
            end_reason: None,
            error_message: None,
            commit: None,
            steps: Vec::new(),
            last_seq: 0,
            logs_lost: false,
            tidied_ms: None,
        };
        assert_eq!(short, nothing);
        let again = json!({ "outcome": "stopped", "steps": [], "last_seq": 0, "logs_lost": false });
        assert_eq!(serde_json::to_value(&short).expect("JSON"), again);
    }

    #[test]
    fn a_reason_of_a_newer_release_is_internal_and_an_outcome_of_one_is_none() {
        let read = |outcome| serde_json::from_value::<Report>(json!({ "outcome": outcome, "end_reason": "meteor" }));
        assert_eq!(read("failed").expect("a report").end_reason, Some(EndReason::Internal));
        assert!(read("vanished").is_err());
    }
}
