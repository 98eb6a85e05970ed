//! The house's own rules: who may depend on whom, and which words stand where (STYLE.md; CONTRIBUTING.md).

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the workspace").to_owned()
}

fn read(path: &str) -> String {
    std::fs::read_to_string(root().join(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// The names under `[dependencies]` of a crate's manifest.
fn dependencies(folder: &str) -> BTreeSet<String> {
    let manifest = read(&format!("{folder}/Cargo.toml"));
    let section = manifest.split("[dependencies]").nth(1).unwrap_or("").split("\n[").next().unwrap_or("");
    let names = section.lines().filter_map(|line| line.split(['.', ' ', '=']).next());
    names.filter(|name| !name.is_empty() && !name.starts_with('#')).map(str::to_owned).collect()
}

const FUNCTIONS: [&str; 9] =
    ["admission", "board", "claim", "complete", "heartbeat", "logs", "migrate", "previews", "reaper"];
const LIBRARIES: [&str; 4] = ["edge", "protocol", "rules", "store"];

fn ours(folder: &str) -> BTreeSet<String> {
    let names = dependencies(folder);
    let is_ours = |name: &String| {
        FUNCTIONS.contains(&name.as_str()) || LIBRARIES.contains(&name.as_str()) || name == "localstack"
    };
    names.into_iter().filter(is_ours).collect()
}

fn set(names: &[&str]) -> BTreeSet<String> {
    names.iter().map(|name| (*name).to_owned()).collect()
}

#[test]
fn dependencies_point_one_way() {
    assert_eq!(ours("functions/lib/rules"), set(&[]));
    assert_eq!(ours("functions/lib/protocol"), set(&["rules"]));
    assert_eq!(ours("functions/lib/store"), set(&["protocol", "rules"]));
    assert_eq!(ours("functions/lib/edge"), set(&["protocol", "rules", "store"]));
    assert_eq!(ours("worker-image"), set(&["protocol", "rules"]));
    for function in FUNCTIONS {
        let names = ours(&format!("functions/{function}"));
        assert!(names.is_subset(&set(&LIBRARIES)), "{function} knows {names:?}");
    }
}

#[test]
fn what_is_put_into_every_image_of_a_task_stays_small() {
    assert_eq!(dependencies("worker-image/shim"), set(&["nix", "seccompiler", "serde", "serde_json"]));
}

#[test]
fn rules_depend_on_no_io_clock_or_dice() {
    assert_eq!(dependencies("functions/lib/rules"), set(&["serde"]));
    for file in files("functions/lib/rules/src", "rs") {
        let text = std::fs::read_to_string(&file).expect("a file of the workspace");
        let code = text.split("#[cfg(test)]").next().unwrap_or("");
        for word in ["std::fs", "std::net::Tcp", "Instant", "SystemTime", "std::env", "rand::"] {
            assert!(!code.contains(word), "{}: {word}", file.display());
        }
    }
}

#[test]
fn only_store_and_tests_name_sqlx() {
    for folder in ["functions", "worker-image", "localstack", "cli"] {
        for file in files(folder, "toml") {
            let is_store = file.ends_with("lib/store/Cargo.toml");
            let text = std::fs::read_to_string(&file).expect("a file of the workspace");
            assert!(is_store || !text.contains("sqlx"), "{}", file.display());
        }
    }
}

/// What building these packages builds, with these options, one crate a line.
fn tree(options: &[&str]) -> String {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut command = std::process::Command::new(cargo);
    command.args(["tree", "--locked", "--offline", "--edges", "normal,build", "--prefix", "none"]).args(options);
    let output = command.current_dir(root()).output().expect("cargo");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8_lossy(&output.stdout).into_owned()
}

#[test]
fn the_one_machine_stack_builds_without_the_aws_sdk() {
    let built = tree(&["-p", "callboard-cli", "-p", "callboard-localstack", "-p", "callboard-worker"]);
    assert!(built.contains("callboard-worker ") && built.contains("callboard-store "), "{built}");
    let aws: Vec<&str> = built.lines().filter(|line| line.starts_with("aws-")).collect();
    assert!(aws.is_empty(), "{aws:?}");
}

#[test]
fn only_the_workers_back_end_for_ecs_names_the_aws_sdk() {
    for folder in ["functions", "localstack", "cli", "worker-image"] {
        for file in files(folder, "toml") {
            let text = std::fs::read_to_string(&file).expect("a file of the workspace");
            let lines: Vec<&str> = text.lines().filter(|line| line.starts_with("aws-")).collect();
            let is_worker = file.ends_with("worker-image/Cargo.toml");
            assert!(lines.iter().all(|line| is_worker && line.contains("optional = true")), "{}", file.display());
        }
    }
    let is_its = |file: &Path| file.components().any(|part| part.as_os_str() == "ecs");
    for file in files("worker-image/src", "rs") {
        let text = std::fs::read_to_string(&file).expect("a file of the workspace");
        assert!(is_its(&file) || !text.contains("aws_"), "{}", file.display());
    }
}

#[test]
fn every_crate_takes_the_workspaces_lints_and_versions() {
    for file in
        ["functions", "worker-image", "localstack", "cli", "tests"].iter().flat_map(|folder| files(folder, "toml"))
    {
        if file.file_name().is_some_and(|name| name == "Cargo.toml") {
            let text = std::fs::read_to_string(&file).expect("a file of the workspace");
            assert!(text.contains("[lints]\nworkspace = true"), "{}", file.display());
            let version = |line: &&str| line.contains("version = \"") && !line.starts_with("version");
            assert_eq!(text.lines().find(version), None, "{}", file.display());
        }
    }
}

#[test]
fn the_state_chart_is_the_rules_table() {
    use rules::Status;
    use rules::status::Actor;
    let chart = chart(0);
    let arrow = |from: Status, to: Status| chart.contains(&format!("  {from} --> {to}:"));
    for from in Status::ALL {
        for to in Status::ALL {
            let actors = [Actor::Claim, Actor::Complete, Actor::Reaper, Actor::Cancel];
            let allowed = actors.iter().any(|actor| from.may_become(*to, *actor));
            assert!(from == to || allowed == arrow(*from, *to), "{from} --> {to}");
        }
    }
}

#[test]
fn the_chart_of_previews_is_the_rules_table() {
    use rules::preview::{Actor, State};
    let chart = chart(1);
    let words = [(Actor::Host, "host"), (Actor::User, "user"), (Actor::Scheduler, "scheduler")];
    for (from, to) in State::ALL.iter().flat_map(|from| State::ALL.iter().map(move |to| (*from, *to))) {
        let arrow = format!("  {from} --> {to}:");
        let line = chart.lines().find_map(|line| line.strip_prefix(&arrow));
        for (actor, word) in words {
            let drawn =
                line.is_some_and(|who| who.split(';').any(|who| who.trim().split([' ', ',']).next() == Some(word)));
            assert_eq!(drawn, from.may_become(to, actor), "{from} --> {to} by {word}");
        }
    }
}

/// A state chart of ARCHITECTURE.md.
fn chart(place: usize) -> String {
    let text = read("ARCHITECTURE.md");
    let charts = text.split("```mermaid").skip(1).filter_map(|rest| rest.split("```").next());
    charts.into_iter().nth(place).expect("a chart").to_owned()
}

/// Files below `folder` with this ending, without what builds leave.
fn files(folder: &str, ending: &str) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut folders = vec![root().join(folder)];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(&folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display())) {
            let path = entry.expect("an entry").path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|found| found == ending) {
                found.push(path);
            }
        }
    }
    found
}
