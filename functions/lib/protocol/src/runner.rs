//! What runs a build's steps away from its worker, as the control plane hands it the job (docs/worker-protocol.md, Job).

use crate::pipeline::{Env, Step};
use crate::trace::{self, Traceparent};
use crate::worker::{Job, LogLimits, Secret};
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
