//! `GET /api/v1/workspace`: a plan and what is used of it.

use axum::extract::State;
use edge::{Api, Json, Rejection, Shell};
use protocol::workspace::{PlanLimits, Workspace};
use rules::budget::{Plan, left};
use store::workspaces::{self, Standing};

/// The token's own workspace.
#[utoipa::path(get, path = "/api/v1/workspace", tag = "workspace", responses((status = 200, body = Workspace)))]
pub(crate) async fn read(State(shell): State<Shell>, api: Api) -> Result<Json<Workspace>, Rejection> {
    let standing = workspaces::standing(&shell.store, api.workspace, &shell.config.timing).await?;
    standing.map(|standing| Json(shown(standing))).ok_or(Rejection::NotFound)
}

/// A workspace as it is shown.
pub(crate) fn shown(standing: Standing) -> Workspace {
    let Standing { slug, plan, plan_fetched_at, usage, previews } = standing;
    Workspace {
        slug,
        limits: plan.map(limits),
        plan_fetched_at,
        charged_seconds: usage.charged.0,
        reserved_seconds: usage.reserved.0,
        left_seconds: plan.map(|plan| left(plan, usage.charged).0),
        running: usage.running,
        pending: usage.pending,
        previews,
    }
}

/// A plan as it is set.
pub(crate) fn limits(plan: Plan) -> PlanLimits {
    PlanLimits {
        minutes_per_month: plan.seconds_per_month.0 / 60,
        build_seconds_max: plan.build_seconds_max.0,
        running_max: plan.running_max,
        pending_max: plan.pending_max,
        previews_max: plan.previews.live_max,
        preview_seconds_max: plan.previews.seconds_max.0,
    }
}
