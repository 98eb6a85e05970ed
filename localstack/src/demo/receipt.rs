//! The receipt of a build: how it ended, how long each step took, what it cost.

use crate::follow::Paint;
use protocol::build::{Build, StepStatus};
use protocol::workspace::Workspace;

/// Prints it.
pub(super) fn print(build: &Build, workspace: &Workspace) {
    let paint = Paint::new();
    println!("\n{}", paint.bold("── receipt "));
    let reason = build.end_reason.map(|reason| format!(" ({reason})")).unwrap_or_default();
    println!("status   {}{reason}", paint.status(build.status));
    if let Some(message) = &build.error_message {
        println!("         {message}");
    }
    if let Some(commit) = &build.commit {
        println!("commit   {commit}");
    }
    for step in &build.steps {
        let code = step.exit_code.map(|code| format!(", exit code {code}")).unwrap_or_default();
        let took = seconds(step.duration_ms);
        let status = words(step.status);
        println!("step     {:<20} {status:<9} {took:>8}{code}", step.name);
    }
    println!("ran      {}", seconds(build.duration_ms.unwrap_or(0)));
    let left = workspace.left_seconds.map_or_else(|| "?".into(), |left| (left / 60).to_string());
    println!("charged  {} s, {left} minutes left this month", build.charged_seconds.unwrap_or(0));
    let reserved = build.max_duration_seconds.unwrap_or(0);
    println!(
        "freed    the lease, and {reserved} s that were reserved; still reserved: {} s",
        workspace.reserved_seconds
    );
}

fn words(status: StepStatus) -> &'static str {
    match status {
        StepStatus::Success => "success",
        StepStatus::Failed => "failed",
        StepStatus::TimedOut => "timed out",
        StepStatus::Cancelled => "cancelled",
        StepStatus::Skipped => "skipped",
    }
}

fn seconds(ms: u64) -> String {
    format!("{}.{} s", ms / 1000, ms % 1000 / 100)
}
