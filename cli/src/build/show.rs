//! Builds for people: a table of many, one in detail.

use crate::output::Output;
use localstack::clean::{exact, plain};
use localstack::follow::{waiting, waiting_in_short};
use localstack::receipt::{status, with_steps};
use localstack::spell::{ago, now, took};
use localstack::table::details;
use protocol::Status;
use protocol::build::Build;

/// Many builds; those of `all`, or of what was asked for.
pub(super) fn table(builds: &[Build], all: bool, output: Output) -> String {
    if builds.is_empty() && all {
        return "no builds yet; submit one with `callboard build submit PIPELINE`".into();
    }
    if builds.is_empty() {
        return "no such builds; `callboard build list` shows all".into();
    }
    let row = |build: &Build| {
        vec![
            build.id.to_string(),
            plain(&build.pipeline),
            exact(&build.git_ref),
            output.paint.status(build.status),
            note(build),
            build.duration_ms.map(took).unwrap_or_default(),
            ago(build.created_at, now()),
        ]
    };
    let rows: Vec<_> = builds.iter().map(row).collect();
    output.table(&["ID", "PIPELINE", "REF", "STATUS", "NOTE", "RAN", "SUBMITTED"], &rows)
}

/// The one thing about a build's state that is worth a column.
fn note(build: &Build) -> String {
    match build.status {
        Status::Pending => waiting_in_short(build),
        Status::Running if build.cancel_requested => "cancelling".into(),
        Status::Running => build.phase.as_deref().map(plain).unwrap_or_default(),
        Status::Success => String::new(),
        Status::Failed | Status::TimedOut | Status::Cancelled => {
            build.end_reason.map(|reason| reason.to_string()).unwrap_or_default()
        }
    }
}

/// One build in detail.
pub(super) fn build(build: &Build, output: Output) -> String {
    let ago = |at| ago(at, now());
    let is_waiting = build.status == Status::Pending;
    let head = [
        ("build", Some(build.id.to_string())),
        ("pipeline", Some(plain(&build.pipeline))),
        ("status", Some(status(build, output.screen))),
        ("", build.error_message.as_deref().map(plain)),
        ("", is_waiting.then(|| waiting(build))),
        ("at", build.phase.as_deref().filter(|_| !build.status.is_final()).map(plain)),
        ("stopping", (build.cancel_requested && !build.status.is_final()).then(|| "somebody asked for its end".into())),
        ("repository", Some(plain(&build.repository))),
        ("ref", Some(exact(&build.git_ref))),
        ("commit", build.commit.as_deref().map(plain)),
        ("retry of", build.retry_of.map(|id| id.to_string())),
        ("submitted", Some(ago(build.created_at))),
        ("started", build.started_at.map(ago)),
        ("ended", build.ended_at.map(ago)),
        ("worker", build.claimed_by.as_deref().map(|id| format!("token {}", plain(id)))),
        (
            "deadline",
            build.max_duration_seconds.map(|seconds| format!("{} after its start", took(u64::from(seconds) * 1000))),
        ),
        ("ran", build.duration_ms.map(took)),
        ("charged", build.charged_seconds.map(|seconds| format!("{seconds} s"))),
    ];
    with_steps(details(&head, output.paint), build, output.screen)
}
