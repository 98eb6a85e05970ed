//! What a build is at, in words.

use crate::clean::plain;
use protocol::Status;
use protocol::build::{Build, WaitingFor};

/// What a pending build waits for, and how many are ahead of it.
#[must_use]
pub fn waiting(build: &Build) -> String {
    let why = match build.waiting_for {
        Some(WaitingFor::Capacity) | None => "for a free worker",
        Some(WaitingFor::RunningLimit) => "for another build of the workspace to end (its plan's limit)",
        Some(WaitingFor::Minutes) => "for minutes that running builds have reserved",
        Some(WaitingFor::Billing) => "for the workspace's plan, which can't be read",
        Some(WaitingFor::NoWorkerMatches) => "for a worker: none that was seen of late can take it",
    };
    match build.position {
        None | Some(0) => format!("waiting {why}, next in line"),
        Some(ahead @ 1..1000) => format!("waiting {why}, {ahead} ahead"),
        Some(_) => format!("waiting {why}, 1000 or more ahead"),
    }
}

/// What a build is at: `step` is the one whose output came last, if any did.
pub(super) fn now_at(build: &Build, step: Option<&str>) -> String {
    match build.status {
        Status::Pending if build.cancel_requested => "cancelling".into(),
        Status::Pending => waiting(build),
        Status::Running if build.cancel_requested => "asked to stop; its worker ends it within a minute".into(),
        Status::Running => running(build, step),
        Status::Success | Status::Failed | Status::TimedOut | Status::Cancelled => "reading the rest of the log".into(),
    }
}

/// The later of what the worker said with its last heartbeat, which may be half a minute old, and what has written since.
fn running(build: &Build, step: Option<&str>) -> String {
    let place = |name: &str| build.step_names.iter().position(|step| step == name);
    let at = step.into_iter().chain(build.phase.as_deref()).max_by_key(|name| place(name));
    match at.map(|name| (name, place(name))) {
        Some((name, Some(at))) => format!("{} ({} of {})", plain(name), at + 1, build.step_names.len()),
        Some((name, None)) => plain(name),
        None => "starting".into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[track_caller]
    fn check(fields: serde_json::Value, step: Option<&str>, expected: &str) {
        let mut build = json!({ "id": uuid::Uuid::nil(), "pipeline": "app", "status": "running", "repository": "", "ref": "main",
            "created_at": "2026-12-01T00:00:00Z", "step_names": ["build", "test"], "version": 1 });
        build.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
        let build: Build = serde_json::from_value(build).unwrap();
        assert_eq!(now_at(&build, step), expected);
    }

    #[test]
    fn a_waiting_build_says_why_and_how_long_the_line_is() {
        let pending = |why: &str, ahead: u32| json!({ "status": "pending", "waiting_for": why, "position": ahead });
        check(pending("capacity", 0), None, "waiting for a free worker, next in line");
        check(pending("capacity", 3), None, "waiting for a free worker, 3 ahead");
        check(
            pending("no_worker_matches", 1000),
            None,
            "waiting for a worker: none that was seen of late can take it, \
             1000 or more ahead",
        );
    }

    #[test]
    fn a_running_build_is_at_the_later_of_what_was_written_and_what_the_worker_said() {
        check(json!({}), None, "starting");
        check(json!({ "phase": "clone" }), None, "clone");
        check(json!({ "phase": "clone" }), Some("build"), "build (1 of 2)");
        check(json!({ "phase": "test" }), Some("build"), "test (2 of 2)");
        check(json!({ "phase": "a\u{1b}[2Jb" }), None, "ab");
    }
}
