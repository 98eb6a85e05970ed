//! What an operator says: workspaces, plans, tokens, workers, sweeps (SPEC.md, Operator calls).

use crate::object;
use crate::worker::Secret;
use crate::workspace::{PlanLimits, Workspace};
use serde::{Deserialize, Serialize};
use time::OffsetDateTime;
use utoipa::ToSchema;

/// `PUT /api/v1/admin/workspaces/{slug}`: makes a workspace, or leaves the one there is.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct PutWorkspace {
    /// Its plan; without one nothing of it is admitted or claimed.
    #[serde(default, deserialize_with = "object::option", skip_serializing_if = "Option::is_none")]
    pub plan: Option<PlanLimits>,
}

/// `GET /api/v1/admin/workspaces`: by name.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Workspaces {
    /// The workspaces.
    pub workspaces: Vec<Workspace>,
}

/// Whom a token lets in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum TokenKind {
    /// A worker.
    Worker,
    /// A web-app, for one workspace.
    Api,
    /// An operator.
    Operator,
}

impl TokenKind {
    /// The word on the wire and in the database.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Worker => "worker",
            Self::Api => "api",
            Self::Operator => "operator",
        }
    }

    /// The kind that `word` names.
    #[must_use]
    pub fn parse(word: &str) -> Option<Self> {
        match word {
            "worker" => Some(Self::Worker),
            "api" => Some(Self::Api),
            "operator" => Some(Self::Operator),
            _ => None,
        }
    }
}

/// `POST /api/v1/admin/tokens`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct NewToken {
    /// Whom it lets in.
    #[schema(inline)]
    pub kind: TokenKind,
    /// For an `api` token: its workspace.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub workspace: Option<String>,
    /// For a `worker` token: the workspaces whose builds it may take; all if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub workspaces: Option<Vec<String>>,
    /// What it is for, in the operator's own words.
    #[serde(default)]
    pub name: String,
}

/// A token, the one time that it is shown.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct CreatedToken {
    /// What `revoke` takes, and what `claimed_by` shows: the first 8 hex digits of its SHA-256.
    pub id: String,
    /// The token itself.
    pub token: Secret,
}

/// A token as the board shows it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Token {
    /// The first 8 hex digits of its SHA-256.
    pub id: String,
    /// Whom it lets in.
    #[schema(inline)]
    pub kind: TokenKind,
    /// For an `api` token: its workspace.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub workspace: Option<String>,
    /// For a `worker` token: the workspaces whose builds it may take; all if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub workspaces: Option<Vec<String>>,
    /// What it is for.
    pub name: String,
    /// When it was made.
    #[serde(with = "time::serde::rfc3339")]
    pub created_at: OffsetDateTime,
    /// When it was revoked, if it was.
    #[serde(with = "time::serde::rfc3339::option", skip_serializing_if = "Option::is_none", default)]
    pub revoked_at: Option<OffsetDateTime>,
}

/// `GET /api/v1/admin/tokens`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Tokens {
    /// The tokens, newest first.
    pub tokens: Vec<Token>,
}

/// A worker as the board last saw it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Worker {
    /// Its token's id.
    pub token_id: String,
    /// Its name.
    pub name: String,
    /// Its host.
    pub host_id: String,
    /// Its release.
    pub version: String,
    /// Its back ends.
    pub isolation: Vec<String>,
    /// Its labels.
    pub labels: Vec<String>,
    /// Builds that it holds.
    pub running: u32,
    /// When it last asked for work, to within 15 s.
    #[serde(with = "time::serde::rfc3339")]
    pub seen_at: OffsetDateTime,
}

/// `GET /api/v1/admin/workers`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Workers {
    /// The workers, last seen first.
    pub workers: Vec<Worker>,
}

/// `POST /api/v1/admin/sweep`: what the sweep did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Swept {
    /// Builds ended as `worker lost`.
    pub lost: u64,
    /// Builds ended as overdue.
    pub overdue: u64,
    /// Builds that waited too long, or can't be run.
    pub expired: u64,
    /// Ended builds that were purged.
    pub purged: u64,
    /// Plans that the billing service gave.
    #[serde(default)]
    pub plans_fetched: u64,
    /// Plans that it was asked for and did not give.
    #[serde(default)]
    pub plans_failed: u64,
    /// Plans taken out of effect because they are stale.
    #[serde(default)]
    pub plans_lapsed: u64,
    /// Previews whose time is over.
    #[serde(default)]
    pub previews_expired: u64,
    /// Previews that failed because their host is lost.
    #[serde(default)]
    pub previews_lost: u64,
    /// Destroyed previews that were purged.
    #[serde(default)]
    pub previews_purged: u64,
    /// Whether ends are held back after an outage.
    pub paused: bool,
    /// Rows that could not be ended; the next sweep tries again.
    pub errors: u64,
}
