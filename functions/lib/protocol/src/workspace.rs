//! A workspace's plan, its use, and its secrets' names (SPEC.md, 2).

use serde::{Deserialize, Serialize};
use time::OffsetDateTime;
use utoipa::ToSchema;

/// A workspace and what it uses of its plan.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Workspace {
    /// Its name.
    pub slug: String,
    /// What the plan allows, if it can be read.
    pub limits: Option<PlanLimits>,
    /// As of when the billing service's plan counts; absent where operators set plans. After 15 minutes it can't be relied on:
    /// the next submit asks for it again, and the sweep does while builds wait or run.
    #[serde(with = "time::serde::rfc3339::option", skip_serializing_if = "Option::is_none", default)]
    pub plan_fetched_at: Option<OffsetDateTime>,
    /// Seconds charged this month (UTC).
    pub charged_seconds: u32,
    /// Seconds that running builds have reserved.
    pub reserved_seconds: u32,
    /// Seconds left of the month, before reservations; absent if the plan can't be read.
    pub left_seconds: Option<u32>,
    /// Running builds.
    pub running: u32,
    /// Waiting builds.
    pub pending: u32,
    /// Previews that have one of the plan's places: those that start or run.
    #[serde(default)]
    pub previews: u32,
}

/// What a plan allows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct PlanLimits {
    /// Build minutes a month.
    pub minutes_per_month: u32,
    /// The longest that one build may run, in seconds (at most 86,400).
    #[serde(default = "half_an_hour")]
    pub build_seconds_max: u32,
    /// Builds that may run at once.
    #[serde(default = "four")]
    pub running_max: u32,
    /// Builds that may wait at once.
    #[serde(default = "thousand")]
    pub pending_max: u32,
    /// Previews that may live at once.
    #[serde(default = "four")]
    pub previews_max: u32,
    /// The longest that one preview may live, in seconds (at most 86,400); an extension counts from when it is made.
    #[serde(default = "a_day")]
    pub preview_seconds_max: u32,
}

fn half_an_hour() -> u32 {
    1800
}
fn four() -> u32 {
    4
}
fn thousand() -> u32 {
    1000
}
fn a_day() -> u32 {
    86_400
}

/// A secret's new value.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct SecretValue {
    /// At most 64 KiB; never shown again.
    pub value: crate::worker::Secret,
}

/// A secret as the board shows it: all but its value.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct SecretName {
    /// Its name, also that of the variable.
    pub name: String,
    /// When its value was last set.
    #[serde(with = "time::serde::rfc3339")]
    pub updated_at: OffsetDateTime,
}

/// All secrets of a workspace, by name.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Secrets {
    /// The secrets.
    pub secrets: Vec<SecretName>,
}
