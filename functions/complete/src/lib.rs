//! How did it end, what does it cost? (SPEC.md, Per-build worker calls; Budget)

use axum::extract::{Path, State};
use edge::{Json, Rejection, Routes, Shell, WorkerToken};
use protocol::worker::{Complete, Completed};
use protocol::{Code, Problem};
use rules::ending::{self, Decision, Held, Refusal, Report};
use store::builds::{self, End, Standing};
use utoipa_axum::routes;
use uuid::Uuid;

/// The longest message kept, in bytes.
const MESSAGE_MAX_BYTES: usize = 1024;
/// The longest name of a commit: a SHA-256 in hex.
const COMMIT_MAX_BYTES: usize = 64;

/// How often a complete that meets another change of its build looks again. A running build changes its state once.
const LOOKS_MAX: usize = 3;

/// The route of this function.
pub fn routes() -> Routes {
    Routes::new().routes(routes!(complete))
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
    token: WorkerToken,
    Path(id): Path<Uuid>,
    Json(mut report): Json<Complete>,
) -> Result<Json<Completed>, Rejection> {
    tidy(&mut report);
    for _ in 0..LOOKS_MAX {
        if let Some(completed) = attempt(&shell, &token, id, &report).await? {
            return Ok(Json(completed));
        }
    }
    Err(Rejection::TryAgain)
}

/// Reads, decides, writes under a guard. `None`: the build was changed in between; look again.
async fn attempt(
    shell: &Shell,
    token: &WorkerToken,
    id: Uuid,
    report: &Complete,
) -> Result<Option<Completed>, Rejection> {
    let (held, before) = match builds::standing(&shell.store, id, token.parts()).await? {
        Standing::Unauthorized => return Err(Rejection::Unauthorized),
        Standing::NotFound => return Err(Rejection::NotFound),
        Standing::Held { held, duration_ms, charged_seconds } => {
            (held, Completed { status: report.status, duration_ms, charged_seconds })
        }
    };
    if let Some(answer) = decided(held, report, before)? {
        return Ok(Some(answer));
    }
    let reason = ending::reason_or_default(report.status, report.end_reason, held.cancel);
    let end = End::Completed { token: &token.id, digest: &token.digest, report, reason };
    let ended = builds::finish(&shell.store, id, &end).await?;
    Ok(ended.map(|ended| {
        tracing::info!(
            build.id = %id, build.status = %report.status, end_reason = reason.map(tracing::field::display),
            duration_ms = ended.duration_ms, charged_seconds = ended.charged_seconds, "build ended"
        );
        let (duration_ms, charged_seconds) = (ended.duration_ms, ended.charged_seconds);
        Completed { status: report.status, duration_ms, charged_seconds }
    }))
}

/// What the rule says before anything is written: an answer that was given before, a refusal, or `None` to go on.
fn decided(held: Held, report: &Complete, before: Completed) -> Result<Option<Completed>, Rejection> {
    let said = Report {
        status: report.status,
        end_reason: report.end_reason,
        last_seq: report.last_seq,
        logs_lost: report.logs_lost,
    };
    match ending::complete(held, said) {
        Decision::End => Ok(None),
        Decision::Repeat => Ok(Some(before)),
        Decision::Ended => Err(Rejection::ended(held.status, held.end_reason)),
        Decision::LogsMissing { expected_seq } => Err(Rejection::Sequence { code: Code::LogsMissing, expected_seq }),
        Decision::Refused(Refusal::NotFinal) => Err(Rejection::invalid("status", "not a final status")),
        Decision::Refused(Refusal::NobodyCancelled) => {
            Err(Rejection::invalid("status", "nobody asked for this build's end"))
        }
        Decision::Refused(Refusal::ReasonMismatch) => {
            Err(Rejection::invalid("end_reason", "not a reason that a worker gives for this status"))
        }
    }
}

/// A report is never refused for what it says to people: that is cut to what can be stored.
fn tidy(report: &mut Complete) {
    if let Some(message) = &mut report.error_message {
        message.retain(|letter| letter != '\0');
        message.truncate(message.floor_char_boundary(MESSAGE_MAX_BYTES));
    }
    let is_commit = |commit: &String| {
        commit.len() <= COMMIT_MAX_BYTES && commit.bytes().all(|byte| byte.is_ascii_hexdigit()) && commit.len() >= 40
    };
    report.commit = report.commit.take().filter(is_commit);
    report.steps.truncate(rules::pipeline::STEPS_MAX + 1);
    for step in &mut report.steps {
        step.name.retain(|letter| letter != '\0');
        step.name.truncate(step.name.floor_char_boundary(256));
    }
}
