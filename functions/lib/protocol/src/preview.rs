//! Live previews: as a host reports them and is told of them, and as the web-app reads them (SPEC.md, 2 and 4).

use crate::pipeline::Env;
use crate::worker::Secret;
use rules::preview::{Order, Seen, Stage, State, WaitingFor};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use time::OffsetDateTime;
use utoipa::ToSchema;
use uuid::Uuid;

/// The most previews that one sync may name.
pub const REPORTS_MAX: usize = 1000;
/// The most bytes that are kept of what a preview last wrote.
pub const LOG_TAIL_MAX_BYTES: usize = 16 * 1024;

/// The ports that a host gives to previews, both ends included.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct PortRange {
    /// The first.
    pub first: u16,
    /// The last.
    pub last: u16,
}

/// `POST /internal/worker/previews/sync`: this host's previews as they are. What it leaves out is as it was.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct PreviewSync {
    /// The host, stable over restarts. What one host holds, no other can touch, nor another token.
    pub host_id: String,
    /// The ports that it gives to previews.
    pub ports: PortRange,
    /// Its previews, at most 1,000; each build at most once.
    #[serde(default)]
    pub previews: Vec<PreviewReport>,
}

/// How a host finds a preview.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct PreviewReport {
    /// The build whose workspace it is started from.
    #[serde(deserialize_with = "crate::id::deserialize")]
    pub build_id: Uuid,
    /// How it is: `kept`, `starting`, `running`, `failed`, `destroying` or `destroyed`.
    #[schema(value_type = String)]
    pub state: Seen,
    /// The version that the host was last told. A report of another one changes nothing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub version: Option<i64>,
    /// Failed: at what (`start`, `run`, `recovery`, `unsupported`, `internal`).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub stage: Option<Stage>,
    /// The port that is bound for it, or that was and can't be bound again; absent once it is free.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub port: Option<u16>,
    /// Whether every port of the range is taken, so that it can't start yet.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub no_port: bool,
    /// Running: where people reach it; http or https, at most 2,048 bytes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub url: Option<String>,
    /// What is the matter, for people: masked, at most 1 KiB.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    /// What its service last wrote: masked, at most 16 KiB.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub log_tail: Option<String>,
}

/// What a host's previews are to become.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct PreviewOrders {
    /// One for each that the sync named, and for each other one that the host is to hold.
    pub previews: Vec<PreviewOrder>,
    /// How often to call.
    pub sync_every_ms: u64,
}

/// What a preview is to become.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct PreviewOrder {
    /// Its build.
    pub build_id: Uuid,
    /// `wait`, `start`, `keep`, `rebind`, `stop`, `destroy` or `forget`.
    #[schema(value_type = String)]
    pub order: Order,
    /// The version to report it with; absent where the board has none for this host.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub version: Option<i64>,
    /// With `start`: what to run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub run: Option<PreviewRun>,
}

/// What a preview runs. Its secrets are opened for the host that holds it, and for no other.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct PreviewRun {
    /// The image to run in.
    pub image: String,
    /// Shell commands, in order; the last one is the service.
    pub commands: Vec<String>,
    /// The port that the service listens on, inside.
    pub port: u16,
    /// What is asked of the service until it answers.
    pub health_path: String,
    /// The build's variables, but for those that a secret hides, and its own, which hide secrets.
    #[serde(default)]
    pub env: Env,
    /// Secrets that it sees as variables, and that are masked in what it writes.
    #[serde(default)]
    pub secrets: BTreeMap<String, Secret>,
    /// What registries are shown when its image is pulled, by registry: `user:password`. Its processes never see it.
    #[serde(default)]
    pub registry_secrets: BTreeMap<String, Secret>,
    /// Whether what is left of it is kept, stopped, if it fails.
    #[serde(default)]
    pub retain_failed: bool,
}

/// A preview as the board shows it. What does not apply to its state is absent.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Preview {
    /// Its id (UUIDv7).
    pub id: Uuid,
    /// The build whose workspace it is started from.
    pub build_id: Uuid,
    /// The build's pipeline.
    pub pipeline: String,
    /// `starting`, `running`, `expired`, `destroying`, `destroyed` or `failed`.
    #[schema(value_type = String)]
    pub status: State,
    /// Failed, or destroyed after that: at what.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub stage: Option<Stage>,
    /// What is the matter, for people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    /// Starting: what it waits for (`host`, `quota`, `port`), if anything.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub waiting_for: Option<WaitingFor>,
    /// Where it is reached, once it runs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub url: Option<String>,
    /// The host that holds it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub host_id: Option<String>,
    /// The host's port that is leased for it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub port: Option<u16>,
    /// Whether what is left of it is kept if it fails.
    pub retain_failed: bool,
    /// What its service last wrote; only where one preview is read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub log_tail: Option<String>,
    /// When its build succeeded.
    #[serde(with = "time::serde::rfc3339")]
    pub created_at: OffsetDateTime,
    /// When it first answered.
    #[serde(with = "time::serde::rfc3339::option", skip_serializing_if = "Option::is_none", default)]
    pub started_at: Option<OffsetDateTime>,
    /// When its time is over.
    #[serde(with = "time::serde::rfc3339")]
    pub expires_at: OffsetDateTime,
    /// When it was gone.
    #[serde(with = "time::serde::rfc3339::option", skip_serializing_if = "Option::is_none", default)]
    pub destroyed_at: Option<OffsetDateTime>,
    /// Raised by every change; the ETag.
    pub version: i64,
}

/// A page of previews, newest first.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Previews {
    /// The previews.
    pub previews: Vec<Preview>,
    /// Where the next page begins; absent on the last.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next_cursor: Option<String>,
}

/// `POST /api/v1/previews/{id}/extend`. The body may be absent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ExtendPreview {
    /// How long it is to live from now on, in seconds; as long as its pipeline said if absent. Never shortens its life.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ttl_seconds: Option<u32>,
}

/// What was wrong with a port's lease, and what became of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum LeaseChange {
    /// Its preview is destroyed, or its host is lost: removed.
    Orphaned,
    /// Its preview says another port, or is another host's: removed.
    Inconsistent,
    /// A preview's port had none: made again.
    Missing,
    /// A preview's port had none, and another preview holds it: the preview is left without a port.
    Taken,
    /// A word of a newer release.
    #[serde(other)]
    Unknown,
}

/// A lease that was mended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Mended {
    /// What was wrong with it.
    #[schema(inline)]
    pub change: LeaseChange,
    /// Its host.
    pub host_id: String,
    /// Its port.
    pub port: u16,
    /// Its preview.
    pub preview_id: Uuid,
}

/// `POST /api/v1/admin/previews/reconcile`: what was done. Nothing, where every lease was as it should be.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Reconciled {
    /// The leases that were mended.
    pub mended: Vec<Mended>,
    /// The leases there are now.
    pub leases: u64,
}
