//! `POST /api/v1/admin/previews/reconcile`: leases of ports, mended.

use axum::extract::State;
use edge::{Json, Operator, Rejection, Shell};
use protocol::Problem;
use protocol::preview::Reconciled;
use store::port_leases;

/// Removes leases of ports that no preview stands behind, makes missing ones again, and says which.
#[utoipa::path(
    post,
    path = "/api/v1/admin/previews/reconcile",
    tag = "admin",
    responses(
        (status = 200, description = "what was mended", body = Reconciled),
        (status = 401, description = "not an operator's token", body = Problem),
    )
)]
pub(crate) async fn reconcile(State(shell): State<Shell>, _: Operator) -> Result<Json<Reconciled>, Rejection> {
    let reconciled = port_leases::reconcile(&shell.store).await?;
    for lease in &reconciled.mended {
        tracing::warn!(
            preview.id = %lease.preview_id, host.id = %lease.host_id, host.port = lease.port, change = ?lease.change,
            "lease mended"
        );
    }
    Ok(Json(reconciled))
}
