//! Which leases lapsed, and then what? Scheduled every 30 s, as a function or a cron; an operator may ask for a sweep
//! too (SPEC.md, Reaper).
//!
//! A sweep writes only what is due, in bounded batches, each row's failure on its own. Two at once do no harm: every
//! write repeats in its guard what was found.

mod numbers;
mod plans;
mod previews;
mod sweep;
mod tasks;

pub use sweep::sweep;

use axum::extract::State;
use edge::{Json, Operator, Rejection, Routes, Shell};
use protocol::Problem;
use protocol::admin::Swept;
use utoipa_axum::routes;

/// The operator's route to a sweep.
pub fn routes() -> Routes {
    Routes::new().routes(routes!(sweep_now))
}

/// Serves Lambda's events: the schedule's sweep the board, a request goes to the route, with its token.
///
/// # Errors
///
/// A setting that can't be used, or the Lambda runtime's own.
pub async fn on_lambda() -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
    edge::scheduled_main(routes(), |shell, _| async move {
        let swept = sweep(&shell).await?;
        numbers::tell(&shell, &swept).await;
        serde_json::to_value(swept).map_err(|error| Rejection::Internal(error.to_string()))
    })
    .await
}

/// Sweeps now, previews too, whenever they were last cleaned up.
#[utoipa::path(
    post,
    path = "/api/v1/admin/sweep",
    tag = "admin",
    responses(
        (status = 200, description = "what the sweep did", body = Swept),
        (status = 401, description = "not an operator's token", body = Problem),
    )
)]
async fn sweep_now(State(shell): State<Shell>, _: Operator) -> Result<Json<Swept>, Rejection> {
    sweep::sweep_for(&shell, sweep::Asked::ByOperator).await.map(Json)
}
