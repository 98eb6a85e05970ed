//! How did it end, what does it cost? (SPEC.md, Per-build worker calls; Budget)

mod end;

use axum::Extension;
use axum::extract::State;
use edge::path::Id;
use edge::{Combiner, Json, Rejection, Routes, Shell, WorkerToken};
use end::Call;
use protocol::Problem;
use protocol::worker::{Complete, Completed};
use std::sync::Arc;
use tracing::Span;
use utoipa_axum::routes;

/// The longest message kept, in bytes.
const MESSAGE_MAX_BYTES: usize = 1024;

type Completes = Combiner<Call, Completed>;

/// The route of this function.
pub fn routes() -> Routes {
    Routes::new().routes(routes!(complete)).layer(Extension(Arc::<Completes>::default()))
}

/// Ends a build; the same status and reason again from the same token is the same answer.
#[utoipa::path(
    post,
    path = "/internal/worker/builds/{id}/complete",
    tag = "worker",
    params(
        ("id" = Uuid, Path, description = "the build"),
        ("traceparent" = Option<String>, Header, description = "the job's: it is in this call's log lines"),
    ),
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
    tidy(&mut report);
    let batch_max = shell.config.batch_max;
    let serve = move |calls| end::serve(shell.clone(), calls);
    let call = Call { token, build, report, span: Span::current() };
    completes.call(call, batch_max, serve).await.map(Json)
}

/// A report is never refused for what it says to people: that is cut to what can be stored. Nor for a commit that can't be one: refused, it
/// would come again as `internal`, and the outcome would be lost.
fn tidy(report: &mut Complete) {
    if let Some(message) = &mut report.error_message {
        message.retain(|letter| letter != '\0');
        message.truncate(message.floor_char_boundary(MESSAGE_MAX_BYTES));
    }
    report.commit = report.commit.take().filter(|commit| rules::runnable::is_commit(commit));
    report.steps.truncate(rules::pipeline::STEPS_MAX + 1);
    for step in &mut report.steps {
        step.name.retain(|letter| letter != '\0');
        step.name.truncate(step.name.floor_char_boundary(256));
    }
}
