//! What a worker and the control plane say to each other (SPEC.md, Worker calls). Unknown fields are ignored.

use crate::build::StepResult;
use crate::log::Chunk;
use crate::pipeline::{Env, PreviewSpec, Step};
use crate::trace::{self, Traceparent};
use rules::{CancelReason, EndReason, Status};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt;
use utoipa::ToSchema;
use uuid::Uuid;

/// The worker that asks.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct WorkerInfo {
    /// Its name, for people.
    pub name: String,
    /// Its release.
    #[serde(default)]
    pub version: String,
    /// Its host, stable over restarts.
    #[serde(default)]
    pub host_id: String,
    /// The back ends it has: `bubblewrap`, `docker`, `ecs`.
    #[serde(default)]
    pub isolation: Vec<String>,
    /// Its labels, such as `arch=arm64`.
    #[serde(default)]
    pub labels: Vec<String>,
}

/// A request for a build.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ClaimRequest {
    /// The worker's own number for this claim; a repeat gets the same job.
    #[serde(deserialize_with = "crate::id::deserialize")]
    pub claim_id: Uuid,
    /// Who asks.
    pub worker: WorkerInfo,
}

/// How logs are to be sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct LogLimits {
    /// The largest content of one chunk, encoded.
    pub max_chunk_bytes: usize,
    /// The largest content of all chunks of one request, encoded.
    pub max_batch_bytes: usize,
    /// How often chunks go out.
    pub interval_ms: u64,
    /// Past this many bytes the board discards.
    pub cap_bytes: u64,
}

/// A value that must not be printed.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(transparent)]
pub struct Secret(pub String);

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("***")
    }
}

/// A build as its worker receives it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Job {
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
    /// What to run, in order, if the build is cancelled once its source is there: for a minute at most in all, which counts for
    /// nothing.
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
    /// What a registry, and nobody else, is shown when an image is pulled from it, by registry: `user:password`, or a token.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub registry_secrets: BTreeMap<String, Secret>,
    /// Good for this build's logs call, and for one runner of its steps to fetch the job, alone.
    pub log_token: Secret,
    /// How long the lease lasts, from when the request was sent.
    pub lease_ttl_ms: u64,
    /// How long after the lease's end the board may call the build lost.
    #[serde(default = "lease_grace_ms")]
    pub lease_grace_ms: u64,
    /// How often to call back.
    pub heartbeat_every_ms: u64,
    /// When the build must have ended, from when the request was sent.
    pub deadline_in_ms: u64,
    /// What the build may take in all.
    pub max_duration_seconds: u32,
    /// How logs are to be sent.
    pub log: LogLimits,
    /// What is started after success: the workspace is to be kept for it, and named in the next sync.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub preview: Option<PreviewSpec>,
    /// The trace that the build belongs to, as a header says it: sent back with every call about the build.
    #[serde(default, deserialize_with = "trace::lenient", skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub traceparent: Option<Traceparent>,
}

fn lease_grace_ms() -> u64 {
    120_000
}

/// A sign of life.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Heartbeat {
    /// What the worker is at: `clone`, or a step's name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub phase: Option<String>,
    /// How long ago the running step last wrote.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_output_age_ms: Option<u64>,
}

/// The answer to a sign of life.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Renewed {
    /// How long the lease lasts now, from when the request was sent.
    pub lease_ttl_ms: u64,
    /// When the build must have ended, from when the request was sent; 0 if that is past.
    pub deadline_in_ms: u64,
    /// Whether to stop, and why.
    #[schema(value_type = Option<String>)]
    pub cancel: Option<CancelReason>,
}

/// Chunks in order of their `seq`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct LogBatch {
    /// The chunks.
    pub chunks: Vec<Chunk>,
}

/// What became of a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct LogStored {
    /// Chunks stored now.
    pub stored: u64,
    /// Chunks that were stored before.
    pub duplicates: u64,
    /// The `seq` expected next.
    pub next_seq: u64,
    /// Whether chunks are being discarded, past the cap.
    pub capped: bool,
    /// Whether to stop, and why.
    #[schema(value_type = Option<String>)]
    pub cancel: Option<CancelReason>,
}

/// The report of an end.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Complete {
    /// A final status.
    #[schema(value_type = String)]
    pub status: Status,
    /// Why, unless it was a success: one that is given then is left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub end_reason: Option<EndReason>,
    /// The same for a person, masked, at most 1 KiB.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error_message: Option<String>,
    /// The commit that was built: 40 or 64 hex digits. Anything else is left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub commit: Option<String>,
    /// From the claim to the end of the steps.
    pub ran_ms: u64,
    /// The last chunk's `seq`; 0 for none.
    #[serde(default)]
    pub last_seq: u64,
    /// Whether the worker gave up on chunks that are missing.
    #[serde(default)]
    pub logs_lost: bool,
    /// How the steps went.
    #[serde(default)]
    pub steps: Vec<StepResult>,
}

/// The answer to the report of an end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Completed {
    /// The build's status.
    #[schema(value_type = String)]
    pub status: Status,
    /// How long it ran.
    pub duration_ms: u64,
    /// What it cost.
    pub charged_seconds: u32,
}
