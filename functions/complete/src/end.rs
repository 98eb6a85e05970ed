//! Ending builds together: one statement for all that wait. It guards what the rule decides; what it refused is looked at, and
//! the rule says why.

use edge::{Metric, Rejection, Shell, WorkerToken};
use futures::future::join_all;
use protocol::Code;
use protocol::worker::{Complete, Completed};
use rules::ending::{self, Decision, Held, Refusal, Report};
use rules::{CancelReason, EndReason, Status};
use store::builds::{self, Standing};
use store::endings::{self, Ended, Reported};
use tracing::Span;
use uuid::Uuid;

/// How often a complete that meets another change of its build looks again. A running build changes its state once.
const LOOKS_MAX: usize = 3;

/// A worker's report of an end.
#[derive(Clone, Debug)]
pub(crate) struct Call {
    /// Whose.
    pub(crate) token: WorkerToken,
    /// Of which build.
    pub(crate) build: Uuid,
    /// What it said.
    pub(crate) report: Complete,
    /// Its request's: calls that are served together are logged each in its own.
    pub(crate) span: Span,
}

type Answer = Result<Completed, Rejection>;

/// Ends builds; answers in the order of the calls. Of several reports on one build the first is served with the others, and
/// the rest after it. What could not be served with the others is served beside them: none waits for another's trouble.
pub(crate) async fn serve(shell: Shell, calls: Vec<Call>) -> Vec<Answer> {
    let is_first = |place: usize| calls[..place].iter().all(|other| other.build != calls[place].build);
    let firsts: Vec<&Call> = (0..calls.len()).filter(|place| is_first(*place)).map(|place| &calls[place]).collect();
    let ended = attempt(&shell, &firsts).await;
    let answer = async |(place, call): (usize, &Call)| match ended
        .iter()
        .find(|ended| ended.build == call.build)
        .filter(|_| is_first(place))
    {
        Some(ended) => Ok(completed(&shell, call, *ended)),
        None => alone(&shell, call).await,
    };
    join_all(calls.iter().enumerate().map(answer)).await
}

/// Ends those of the builds that the guard lets through. Where one's trouble would be everybody's, none: each is then served
/// by itself.
async fn attempt(shell: &Shell, calls: &[&Call]) -> Vec<Ended> {
    let reports: Vec<Reported<'_>> = calls.iter().filter_map(|call| reported(call)).collect();
    if reports.is_empty() {
        return Vec::new();
    }
    endings::complete(&shell.store, &reports).await.unwrap_or_else(|error| {
        tracing::warn!(%error, calls = calls.len(), "builds could not be ended together");
        Vec::new()
    })
}

/// The report as the store takes it, unless the rule refuses it whatever the board says.
fn reported(call: &Call) -> Option<Reported<'_>> {
    let report = said(&call.report);
    // The reason that a cancel was asked with is on the build's row; any stands for it here.
    let cancel = (report.status == Status::Cancelled).then_some(CancelReason::User);
    let held = Held { status: Status::Running, end_reason: None, cancel, next_seq: u64::MAX, completed: false };
    let reason = ending::reason_or_default(report.status, report.end_reason, cancel);
    matches!(ending::complete(held, report), Decision::End).then_some(Reported {
        build: call.build,
        token: call.token.parts(),
        report: &call.report,
        reason,
    })
}

/// Reads, decides, and ends a build if the rule says so.
async fn alone(shell: &Shell, call: &Call) -> Answer {
    for _ in 0..LOOKS_MAX {
        let (held, before) = match builds::standing(&shell.store, call.build, call.token.parts()).await? {
            Standing::Unauthorized => return Err(Rejection::Unauthorized),
            Standing::NotFound => return Err(Rejection::NotFound),
            Standing::Held { held, duration_ms, charged_seconds } => {
                (held, Completed { status: call.report.status, duration_ms, charged_seconds })
            }
        };
        if let Some(answer) = decided(held, &call.report, before)? {
            return Ok(answer);
        }
        let reason = ending::reason_or_default(call.report.status, call.report.end_reason, held.cancel);
        let reported = Reported { build: call.build, token: call.token.parts(), report: &call.report, reason };
        if let Some(ended) = endings::complete(&shell.store, &[reported]).await?.pop() {
            return Ok(completed(shell, call, ended));
        }
    }
    Err(Rejection::TryAgain)
}

fn completed(shell: &Shell, call: &Call, ended: Ended) -> Completed {
    let Ended { duration_ms, charged_seconds, .. } = ended;
    let status = call.report.status;
    call.span.in_scope(|| {
        tracing::info!(
            build.id = %call.build, build.status = %status, end_reason = call.report.end_reason.map(EndReason::as_str),
            duration_ms, charged_seconds, "build ended"
        );
    });
    shell.metrics.tell(&[(Metric::EndedBuilds, 1.0)]);
    Completed { status, duration_ms, charged_seconds }
}

fn said(report: &Complete) -> Report {
    Report {
        status: report.status,
        end_reason: report.end_reason,
        last_seq: report.last_seq,
        logs_lost: report.logs_lost,
    }
}

/// What the rule says before anything is written: an answer that was given before, a refusal, or `None` to go on.
fn decided(held: Held, report: &Complete, before: Completed) -> Result<Option<Completed>, Rejection> {
    match ending::complete(held, said(report)) {
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
