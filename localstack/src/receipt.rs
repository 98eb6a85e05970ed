//! What a build that has ended leaves to be said: how it ended, how long its steps took, what it cost.

use crate::clean::plain;
use crate::screen::Screen;
use crate::spell::took;
use crate::table::{details, table};
use protocol::build::{Build, StepResult, StepStatus};

/// The receipt; `more` are lines of a name and a value below the others.
#[must_use]
pub fn receipt(build: &Build, more: &[(&str, String)], screen: Screen) -> String {
    let mut lines = vec![
        ("status", Some(status(build, screen))),
        ("", build.error_message.as_deref().map(plain)),
        ("commit", build.commit.as_deref().map(plain)),
        ("ran", build.duration_ms.map(took)),
        ("charged", build.charged_seconds.map(|seconds| format!("{seconds} s"))),
    ];
    lines.extend(more.iter().map(|(name, value)| (*name, Some(value.clone()))));
    with_steps(details(&lines, screen.paint), build, screen)
}

/// A build's status, and why it ended so.
#[must_use]
pub fn status(build: &Build, screen: Screen) -> String {
    let reason = build.end_reason.map(|reason| format!(" ({reason})")).unwrap_or_default();
    format!("{}{reason}", screen.paint.status(build.status))
}

/// A text about a build, and below it a table of its steps, if there are any: of one that a worker held also those that it never
/// reported, since it was lost or came back too late to know.
#[must_use]
pub fn with_steps(text: String, build: &Build, screen: Screen) -> String {
    let is_over = build.status.is_final() && build.started_at.is_some();
    let is_known = |name: &String| build.steps.iter().any(|step| step.name == *name);
    let unknown: Vec<_> = build.step_names.iter().filter(|name| is_over && !is_known(name)).collect();
    if build.steps.is_empty() && unknown.is_empty() {
        return text;
    }
    let row = |step: &StepResult| {
        let code = step.exit_code.map(|code| code.to_string()).unwrap_or_default();
        vec![plain(&step.name), screen.paint.step_status(step.status), code, took_by(step)]
    };
    let unreported = |name: &String| vec![plain(name), screen.paint.dim("not reported"), String::new(), "–".into()];
    let rows: Vec<_> = build.steps.iter().map(row).chain(unknown.into_iter().map(unreported)).collect();
    let table = table(&["STEP", "STATUS", "EXIT", "TOOK"], &rows, screen.paint, screen.columns);
    format!("{text}\n\n{table}")
}

/// A step that never ran took no time, which is not the same as 0.0 s.
fn took_by(step: &StepResult) -> String {
    match step.status {
        StepStatus::Skipped => "–".into(),
        StepStatus::Success | StepStatus::Failed | StepStatus::TimedOut | StepStatus::Cancelled => {
            took(step.duration_ms)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::paint::Paint;
    use serde_json::json;

    #[track_caller]
    fn check_steps(status: &str, started: bool, steps: serde_json::Value, expected: &str) {
        let build = json!({ "id": uuid::Uuid::nil(), "pipeline": "app", "status": status, "repository": "", "ref": "main",
            "created_at": "2026-12-01T00:00:00Z", "started_at": started.then_some("2026-12-01T00:00:01Z"),
            "step_names": ["build", "test"], "version": 1, "steps": steps });
        let screen = Screen { paint: Paint(false), columns: None, is_live: false };
        assert_eq!(with_steps(String::new(), &serde_json::from_value(build).unwrap(), screen), expected);
    }

    #[test]
    fn steps_that_were_never_reported_are_shown_as_such() {
        let none = "\n\nSTEP   STATUS        EXIT  TOOK\nbuild  not reported        –\ntest   not reported        –";
        let one = "\n\nSTEP   STATUS        EXIT  TOOK\nbuild  success       0     0.1 s\ntest   not reported        –";
        check_steps("failed", true, json!([]), none);
        let built = json!([{ "name": "build", "status": "success", "exit_code": 0, "duration_ms": 60 }]);
        check_steps("failed", true, built, one);
        check_steps("failed", false, json!([]), "");
        check_steps("running", true, json!([]), "");
    }

    #[test]
    fn a_step_shows_the_time_that_the_log_showed_and_a_skipped_one_shows_none() {
        let build = json!({ "id": uuid::Uuid::nil(), "pipeline": "app", "status": "failed", "end_reason": "step_failed",
            "repository": "", "ref": "main", "created_at": "2026-12-01T00:00:00Z", "step_names": [], "version": 1,
            "duration_ms": 1960, "steps": [
                { "name": "a", "status": "failed", "exit_code": 3, "duration_ms": 60 },
                { "name": "b", "status": "skipped", "duration_ms": 0 }] });
        let screen = Screen { paint: Paint(false), columns: None, is_live: false };
        let text = receipt(&serde_json::from_value(build).unwrap(), &[("left", "7 minutes".into())], screen);
        let expected = "status   failed (step_failed)\nran      2.0 s\nleft     7 minutes\n\n\
                        STEP  STATUS   EXIT  TOOK\na     failed   3     0.1 s\nb     skipped        –";
        assert_eq!(text, expected);
    }
}
