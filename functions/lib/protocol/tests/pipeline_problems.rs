//! What `PipelineSpec::problems` finds, and where.

use protocol::pipeline::{Network, PipelineSpec, PreviewSpec, Step};
use std::collections::BTreeMap;

fn step(name: &str) -> Step {
    Step {
        name: name.into(),
        image: "host".into(),
        commands: vec!["true".into()],
        env: BTreeMap::new(),
        timeout_seconds: None,
        network: Network::Isolated,
        on_cancel: false,
    }
}

fn check(change: impl FnOnce(&mut PipelineSpec), fields: &[&str]) {
    let mut spec = PipelineSpec {
        repository: "https://example.org/r.git".into(),
        default_ref: "main".into(),
        steps: vec![step("build"), step("test")],
        env: BTreeMap::new(),
        timeout_seconds: None,
        requires: Vec::new(),
        secrets: Vec::new(),
        clone_secret: None,
        registry_secrets: BTreeMap::new(),
        submodules: false,
        preview: None,
    };
    change(&mut spec);
    let found: Vec<String> = spec.problems().into_iter().map(|(path, _)| path).collect();
    assert_eq!(found, fields);
}

fn variable(name: &str, value: &str) -> BTreeMap<String, String> {
    BTreeMap::from([(name.to_owned(), value.to_owned())])
}

#[test]
fn a_plain_pipeline_is_fine() {
    check(|_| (), &[]);
}

#[test]
fn a_repository_is_https_without_credentials() {
    for address in
        ["http://h/r", "file:///r", "ssh://h/r", "git@h:r", "https://u:p@h/r", "https://", "https://h/r?x", ""]
    {
        check(|spec| spec.repository = address.into(), &["repository"]);
    }
}

#[test]
fn a_default_ref_is_one_that_git_accepts() {
    for name in ["--upload-pack=x", "a..b", "a@{1}", "", "a\0"] {
        check(|spec| spec.default_ref = name.into(), &["default_ref"]);
    }
}

#[test]
fn there_are_1_to_64_steps() {
    check(|spec| spec.steps.clear(), &["steps"]);
    check(|spec| spec.steps = (0..64).map(|at| step(&at.to_string())).collect(), &[]);
    check(|spec| spec.steps = (0..65).map(|at| step(&at.to_string())).collect(), &["steps"]);
}

#[test]
fn one_step_at_least_runs_without_a_cancel() {
    check(|spec| spec.steps[1].on_cancel = true, &[]);
    check(|spec| spec.steps.iter_mut().for_each(|step| step.on_cancel = true), &["steps"]);
}

#[test]
fn two_steps_have_two_names() {
    check(|spec| spec.steps[1].name = "build".into(), &["steps[1].name"]);
}

#[test]
fn a_steps_name_is_visible() {
    for name in ["", " a", "a\n", "a\0b"] {
        check(|spec| spec.steps[1].name = name.into(), &["steps[1].name"]);
    }
}

#[test]
fn an_image_is_a_word_and_no_option() {
    for image in ["", "a b", "--privileged", "a\0", "ä"] {
        check(|spec| spec.steps[0].image = image.into(), &["steps[0].image"]);
    }
    check(|spec| spec.steps[0].image = "ghcr.io/x/y@sha256:00".into(), &[]);
}

#[test]
fn a_command_is_not_empty_and_holds_no_nul() {
    check(|spec| spec.steps[0].commands.clear(), &["steps[0].commands"]);
    check(|spec| spec.steps[0].commands.push(" \n".into()), &["steps[0].commands[1]"]);
    check(|spec| spec.steps[0].commands.push("a\0".into()), &["steps[0].commands[1]"]);
    check(|spec| spec.steps[0].commands.push("x".repeat(64 * 1024)), &[]);
    check(|spec| spec.steps[0].commands.push("x".repeat(64 * 1024 + 1)), &["steps[0].commands[1]"]);
}

#[test]
fn a_variable_is_named_where_it_stands() {
    check(|spec| spec.env = variable("A=B", "x"), &["env.A=B"]);
    check(|spec| spec.env = variable("CALLBOARD_X", "x"), &["env.CALLBOARD_X"]);
    check(|spec| spec.steps[1].env = variable("FOO", "a\0"), &["steps[1].env.FOO"]);
    check(|spec| spec.steps[1].env = variable("A\0", "x"), &["steps[1].env.A\\0"]);
}

#[test]
fn a_timeout_is_1_second_to_a_day() {
    for (seconds, fields) in [(0, &["timeout_seconds"][..]), (1, &[]), (86_400, &[]), (86_401, &["timeout_seconds"])] {
        check(|spec| spec.timeout_seconds = Some(seconds), fields);
    }
    check(|spec| spec.steps[0].timeout_seconds = Some(0), &["steps[0].timeout_seconds"]);
}

#[test]
fn labels_secrets_and_registries_are_words() {
    check(|spec| spec.requires = vec!["arch=arm64".into(), "a b".into()], &["requires[1]"]);
    check(|spec| spec.secrets = vec!["OK".into(), "no-dash".into()], &["secrets[1]"]);
    check(|spec| spec.secrets = ["A", "B", "A", "A"].map(str::to_owned).into(), &["secrets[2]", "secrets[3]"]);
    check(|spec| spec.requires = ["gpu", "Gpu", "gpu"].map(str::to_owned).into(), &["requires[2]"]);
    check(|spec| spec.clone_secret = Some(String::new()), &["clone_secret"]);
    check(|spec| spec.registry_secrets = variable("ghcr.io:443", "PULL"), &[]);
    check(|spec| spec.registry_secrets = variable("ghcr.io", "1"), &["registry_secrets.ghcr.io"]);
    check(|spec| spec.registry_secrets = variable("a/b", "PULL"), &["registry_secrets.a/b"]);
}

#[test]
fn no_detail_repeats_a_value() {
    let mut spec: PipelineSpec = serde_json::from_str(
        r#"{"repository": "https://u:hunter2@h/r", "steps": [{"name": "a", "commands": ["hunter2\u0000"]}]}"#,
    )
    .unwrap();
    spec.env = variable("A", "hunter2\0");
    assert!(spec.problems().len() == 3 && spec.problems().iter().all(|(_, detail)| !detail.contains("hunter2")));
}

fn preview(change: impl FnOnce(&mut PreviewSpec), fields: &[&str]) {
    let mut preview = PreviewSpec {
        image: "host".into(),
        commands: vec!["serve".into()],
        port: 8080,
        health_path: "/healthz?full=1".into(),
        ttl_seconds: 60,
        env: BTreeMap::new(),
        retain_failed: false,
    };
    change(&mut preview);
    check(|spec| spec.preview = Some(preview), fields);
}

#[test]
fn a_preview_names_a_command_a_port_a_path_and_a_time() {
    preview(|_| (), &[]);
    preview(|preview| preview.commands.clear(), &["preview.commands"]);
    preview(|preview| preview.commands.push(" ".into()), &["preview.commands[1]"]);
    preview(|preview| preview.port = 0, &["preview.port"]);
    preview(|preview| preview.image = "-v".into(), &["preview.image"]);
    for path in ["", "x", "http://h/", "/ ", "/#top", "/\r\nHost: x", "/é"] {
        preview(|preview| preview.health_path = path.into(), &["preview.health_path"]);
    }
    for (seconds, fields) in
        [(0, &["preview.ttl_seconds"][..]), (1, &[]), (86_400, &[]), (86_401, &["preview.ttl_seconds"])]
    {
        preview(|preview| preview.ttl_seconds = seconds, fields);
    }
    preview(|preview| preview.env = variable("A B", "x"), &["preview.env.A B"]);
}
