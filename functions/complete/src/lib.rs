//! How did it end, what does it cost? (SPEC.md, Per-build worker calls; Budget) And how did it go, where it runs away from its worker?

mod end;
mod report;
mod tidy;

use axum::Extension;
use axum::extract::State;
use edge::path::Id;
use edge::{Combiner, Json, Rejection, Routes, Shell, WorkerToken};
use end::Call;
use protocol::Problem;
use protocol::worker::{Complete, Completed};
use std::sync::Arc;
use utoipa_axum::routes;

type Completes = Combiner<Call, Completed>;

/// The routes of this function.
pub fn routes() -> Routes {
    let reports = routes!(report::report, report::reported);
    Routes::new().routes(routes!(complete)).routes(reports).layer(Extension(Arc::<Completes>::default()))
}

/// Ends a build; the same status and reason again from the same token is the same answer.
#[utoipa::path(
    post,
    path = "/internal/worker/builds/{id}/complete",
    tag = "worker",
    params(("id" = Uuid, Path, description = "the build")),
    request_body = Complete,
    responses(
        (status = 200, description = "ended, now or before", body = Completed),
        (status = 401, description = "token unknown or revoked", body = Problem),
        (status = 404, description = "unknown, or another token's", body = Problem),
        (status = 409, description = "build_ended in another way, or logs_missing", body = Problem),
        (status = 422, description = "the report contradicts itself or the board", body = Problem),
    )
)]
async fn complete(
    State(shell): State<Shell>,
    Extension(completes): Extension<Arc<Completes>>,
    token: WorkerToken,
    Id(build): Id,
    Json(mut report): Json<Complete>,
) -> Result<Json<Completed>, Rejection> {
    tidy::tidy(&mut report.error_message, &mut report.commit, &mut report.steps);
    let batch_max = shell.config.batch_max;
    let serve = move |calls| end::serve(shell.clone(), calls);
    completes.call(Call { token, build, report }, batch_max, serve).await.map(Json)
}
