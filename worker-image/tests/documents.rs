//! What is written for people says what is so: the protocol's examples, and the container's recipe.

#![allow(clippy::unwrap_used, reason = "a test that can not go on fails")]

use callboard_worker::cli::Cli;
use callboard_worker::poll::GaveUp;
use callboard_worker::worker::Failed;
use callboard_worker::workplace::Unfit;
use clap::CommandFactory as _;
use protocol::Problem;
use protocol::preview::{PreviewOrders, PreviewSync};
use protocol::runner::{Report, RunnerJob};
use protocol::worker::{ClaimRequest, Complete, Completed, Heartbeat, Job, LogBatch, LogStored, Renewed};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use std::path::{Path, PathBuf};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

fn read(path: &str) -> String {
    std::fs::read_to_string(root().join(path)).unwrap()
}

/// The example of this name in the document.
fn example(name: &str) -> Value {
    let document = read("docs/worker-protocol.md");
    let (_, after) = document.split_once(&format!("```json {name}\n")).unwrap_or_else(|| panic!("no example {name}"));
    serde_json::from_str(after.split_once("\n```").unwrap().0).unwrap_or_else(|error| panic!("{name}: {error}"))
}

/// Everything that the example says is known, and means the same when it is written again.
fn check<T: DeserializeOwned + Serialize>(name: &str) {
    let said = example(name);
    let read: T = serde_json::from_value(said.clone()).unwrap_or_else(|error| panic!("{name}: {error}"));
    let again = serde_json::to_value(read).unwrap();
    for (key, value) in said.as_object().unwrap() {
        assert_eq!(again.get(key), Some(value), "{name}: {key}");
    }
}

#[test]
fn the_protocols_examples_are_what_is_said() {
    check::<Problem>("problem");
    check::<ClaimRequest>("claim");
    check::<Job>("job");
    check::<RunnerJob>("runner");
    check::<Report>("report");
    check::<Heartbeat>("heartbeat");
    check::<Renewed>("renewed");
    check::<LogBatch>("logs");
    check::<LogStored>("stored");
    check::<Complete>("complete");
    check::<Completed>("completed");
    check::<PreviewSync>("sync");
    check::<PreviewOrders>("orders");
}

#[test]
fn every_reason_that_a_worker_may_report_is_in_the_document() {
    let document = read("docs/worker-protocol.md");
    for reason in protocol::EndReason::ALL.iter().filter(|reason| reason.is_workers()) {
        assert!(document.contains(&format!("`{}`", reason.as_str())), "{}", reason.as_str());
    }
}

#[test]
fn every_exit_code_of_a_worker_is_in_the_readme_and_in_its_help() {
    let failures = [
        Failed::NoSandbox(String::new()),
        Failed::GaveUp(GaveUp::Unhealthy(Vec::new())),
        Failed::Limit(String::new(), 1),
        Failed::Unfit(Unfit::Closed { root: PathBuf::new(), closed: PathBuf::new() }),
        Failed::Unfit(Unfit::Taken(PathBuf::new())),
        Failed::Unreported(1),
        Failed::GaveUp(GaveUp::TokenRefused),
        Failed::Settings(anyhow::anyhow!("")),
    ];
    let readme = read("README.md").replace('\n', " ");
    let (_, codes) = readme.split_once("Exit codes: 69 ").expect("the worker's exit codes");
    let codes = format!(" 69 {}", codes.split_once(". ").expect("an end").0);
    let help = Cli::command().render_long_help().to_string();
    for code in failures.map(|failure| failure.exit_code()) {
        assert!(codes.contains(&format!(" {code} ")), "{code} is not in README.md: {codes}");
        assert!(help.contains(&format!("\n  {code}  ")), "{code} is not in {help}");
    }
}

/// The Dockerfile's instructions, a line each.
fn instructions() -> Vec<String> {
    let file = read("worker-image/Dockerfile").replace("\\\n", " ");
    let lines = file.lines().filter(|line| !line.starts_with('#') && !line.trim().is_empty());
    lines.map(str::to_owned).collect()
}

fn of(instruction: &str) -> Vec<String> {
    let begins = format!("{instruction} ");
    instructions().iter().filter_map(|line| line.strip_prefix(&begins).map(str::to_owned)).collect()
}

#[test]
fn what_the_recipe_copies_is_there() {
    for copied in of("COPY").iter().filter(|line| !line.starts_with("--from=")) {
        let words: Vec<&str> = copied.split_whitespace().filter(|word| !word.starts_with("--")).collect();
        for source in &words[..words.len() - 1] {
            assert!(root().join(source).exists(), "{source}");
        }
    }
}

#[test]
fn the_image_stops_by_draining_runs_as_nobody_special_and_asks_itself_for_its_health() {
    assert_eq!(of("STOPSIGNAL"), ["SIGTERM"]);
    assert_eq!(of("USER"), ["10001:10001"]);
    let health = of("HEALTHCHECK").concat();
    assert!(health.ends_with("CMD [\"/usr/local/bin/callboard-worker\", \"health\"]"), "{health}");
    assert!(of("ENV").concat().contains("CALLBOARD_METRICS_ADDR=127.0.0.1:"));
    // A shell in between would keep the signal to itself.
    assert_eq!(of("ENTRYPOINT"), ["[\"/usr/local/bin/callboard-worker\"]"]);
}

#[test]
fn the_binary_needs_nothing_that_a_bare_debian_has_not() {
    let output = std::process::Command::new("ldd").arg(env!("CARGO_BIN_EXE_callboard-worker")).output().unwrap();
    let needed = String::from_utf8_lossy(&output.stdout).into_owned();
    let bare = ["linux-vdso.so", "libgcc_s.so", "libm.so", "libc.so", "ld-linux"];
    for line in needed.lines() {
        assert!(bare.iter().any(|name| line.contains(name)), "{line}");
    }
}
