//! What a build is at, in words.

use crate::clean::plain;
use protocol::Status;
use protocol::build::Build;
use rules::waiting::WaitingFor;
use std::time::Duration;

/// For how long it is no news that no worker has called: one that is about to start, or has a free slot, does within this.
const NO_NEWS: Duration = Duration::from_secs(20);

/// What a pending build waits for, in words: in a sentence, in a column, and whether its place in the line says how soon it goes.
struct Words {
    sentence: &'static str,
    column: &'static str,
    has_place: bool,
}

/// The one place for these words. A plan that can't be read, or a worker that is missing, makes the line stand still: whoever
/// stands first in it is not the next to go.
fn words(build: &Build) -> Words {
    // As the board has measured it: this machine's clock may be another. One that does not say is of the release before.
    let is_new = build.waited_ms.is_some_and(|waited| Duration::from_millis(waited) < NO_NEWS);
    let (sentence, column, has_place) = match build.waiting_for {
        Some(WaitingFor::Capacity) => ("for a free worker", "", true),
        Some(WaitingFor::RunningLimit) => {
            ("for another build of the workspace to end (its plan's limit)", "running limit", true)
        }
        Some(WaitingFor::Minutes) => ("for minutes that running builds have reserved", "minutes", true),
        Some(WaitingFor::Billing) => ("for the workspace's plan, which can't be read", "no plan", false),
        Some(WaitingFor::NoWorkerMatches) if is_new => ("for a worker to phone in", "no worker yet", false),
        Some(WaitingFor::NoWorkerMatches) => {
            ("for a worker that can take it: none was seen of late", "no worker matches", false)
        }
        None => ("", "", true),
    };
    Words { sentence, column, has_place }
}

fn place(build: &Build, words: &Words) -> Option<String> {
    match build.position.filter(|_| words.has_place)? {
        0 => Some("next in line".into()),
        ahead @ 1..1000 => Some(format!("{ahead} ahead")),
        _ => Some("1000 or more ahead".into()),
    }
}

/// What a pending build waits for, and how many are ahead of it.
#[must_use]
pub fn waiting(build: &Build) -> String {
    let words = words(build);
    let why = if words.sentence.is_empty() { "waiting".into() } else { format!("waiting {}", words.sentence) };
    [Some(why), place(build, &words)].into_iter().flatten().collect::<Vec<_>>().join(", ")
}

/// The same in a column.
#[must_use]
pub fn waiting_in_short(build: &Build) -> String {
    let words = words(build);
    let why = Some(words.column.to_owned()).filter(|why| !why.is_empty());
    [why, place(build, &words)].into_iter().flatten().collect::<Vec<_>>().join(", ")
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

    fn waits(why: Option<&str>, ahead: Option<u32>) -> [String; 2] {
        waits_since(why, ahead, Some(20_000))
    }

    fn waits_since(why: Option<&str>, ahead: Option<u32>, waited_ms: Option<u64>) -> [String; 2] {
        let build = json!({ "id": uuid::Uuid::nil(), "pipeline": "app", "status": "pending", "repository": "", "ref": "main",
            "created_at": "2026-12-01T00:00:00Z", "step_names": [], "version": 1, "waiting_for": why, "position": ahead, "waited_ms": waited_ms });
        let build: Build = serde_json::from_value(build).unwrap();
        assert_eq!(now_at(&build, None), waiting(&build));
        [waiting(&build), waiting_in_short(&build)]
    }

    #[test]
    fn that_no_worker_was_seen_is_no_news_of_a_build_that_has_just_come() {
        let waits = |waited_ms| waits_since(Some("no_worker_matches"), Some(0), waited_ms);
        let fresh = ["waiting for a worker to phone in", "no worker yet"];
        assert_eq!([waits(Some(0)), waits(Some(19_999))], [fresh.map(str::to_owned), fresh.map(str::to_owned)]);
        for old in [Some(20_000), None] {
            assert!(waits(old)[0].ends_with("none was seen of late"), "{:?}", waits(old));
        }
    }

    #[test]
    fn a_waiting_build_says_why_and_how_long_the_line_is_if_it_moves() {
        let limit = "for another build of the workspace to end (its plan's limit)";
        for (why, ahead, sentence, column) in [
            ("capacity", 0, "for a free worker, next in line", "next in line"),
            ("capacity", 999, "for a free worker, 999 ahead", "999 ahead"),
            ("capacity", 1000, "for a free worker, 1000 or more ahead", "1000 or more ahead"),
            ("running_limit", 0, &format!("{limit}, next in line"), "running limit, next in line"),
            ("running_limit", 2, &format!("{limit}, 2 ahead"), "running limit, 2 ahead"),
            ("minutes", 1, "for minutes that running builds have reserved, 1 ahead", "minutes, 1 ahead"),
            ("billing", 0, "for the workspace's plan, which can't be read", "no plan"),
            ("no_worker_matches", 0, "for a worker that can take it: none was seen of late", "no worker matches"),
            ("no_worker_matches", 7, "for a worker that can take it: none was seen of late", "no worker matches"),
        ] {
            assert_eq!(waits(Some(why), Some(ahead)), [format!("waiting {sentence}"), column.into()]);
        }
        assert_eq!(waits(None, None), ["waiting", ""], "an older board's answer to a submit says neither");
        assert_eq!(waits(Some("capacity"), None), ["waiting for a free worker", ""]);
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
