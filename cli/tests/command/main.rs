//! The command as it is typed: a real process, against a small board that says what the test wants.

mod follow;
mod preview;
#[path = "../../../tests/skipped.rs"]
mod skipped;
mod stopped;
mod up;

use axum::Router;
use axum::extract::{Path, Query, State};
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse as _, Response};
use axum::routing::{get, post};
use serde_json::{Value, json};
use std::collections::HashMap;
use std::io::Write as _;
use std::os::unix::fs::PermissionsExt as _;
use std::process::{Command, Output, Stdio};
use std::sync::{Arc, Mutex};
use std::time::Duration;

const TOKEN: &str = "cba_token-of-the-test";
const ID: &str = "01a2308a-c2ff-7509-a0e1-a6168fbb6d21";

/// A board with one build, which ends after the second look.
#[derive(Clone)]
struct Fake {
    status: &'static str,
    looks: Arc<Mutex<u32>>,
    seen: Arc<Mutex<Vec<Value>>>,
}

fn build(status: &str) -> Value {
    let mut build = json!({
        "id": ID, "pipeline": "app", "status": status, "repository": "https://git.example/app.git", "ref": "main",
        "created_at": "2026-12-01T00:00:00Z", "step_names": ["test"], "version": 2 });
    if status != "running" {
        build["duration_ms"] = json!(1250);
        build["charged_seconds"] = json!(2);
        build["steps"] = json!([{ "name": "test", "status": "success", "exit_code": 0, "duration_ms": 1000 }]);
    }
    build
}

async fn read(State(fake): State<Fake>) -> axum::Json<Value> {
    let mut looks = fake.looks.lock().expect("looks");
    *looks += 1;
    axum::Json(build(if *looks > 2 { fake.status } else { "running" }))
}

async fn log(Path(_): Path<String>, Query(query): Query<HashMap<String, u64>>) -> axum::Json<Value> {
    let chunk = json!({ "seq": 1, "step": "test", "stream": "stdout", "at_ms": 1, "text": "hi \u{1b}[2J\u{1b}]0;pwned\u{7}there\n" });
    let chunks = if query.get("after") == Some(&0) { vec![chunk] } else { Vec::new() };
    axum::Json(json!({ "chunks": chunks, "last_seq": 1, "complete": true, "capped": false }))
}

async fn submit(State(fake): State<Fake>, headers: HeaderMap, body: axum::Json<Value>) -> Response {
    assert_eq!(headers["authorization"], format!("Bearer {TOKEN}"));
    fake.seen.lock().expect("seen").push(body.0.clone());
    if body["pipeline"] == "none" {
        let problem = json!({ "type": "about:blank", "title": "Unprocessable Entity", "status": 422, "code": "invalid",
            "detail": "the workspace has no pipeline of that name", "field": "pipeline", "request_id": "req-7" });
        return (StatusCode::UNPROCESSABLE_ENTITY, axum::Json(problem)).into_response();
    }
    (StatusCode::CREATED, axum::Json(build("running"))).into_response()
}

async fn put_secret(State(fake): State<Fake>, body: axum::Json<Value>) -> axum::Json<Value> {
    fake.seen.lock().expect("seen").push(body.0);
    axum::Json(json!({ "name": "TOKEN", "updated_at": "2026-12-01T00:00:00Z" }))
}

async fn make_token(State(fake): State<Fake>, body: axum::Json<Value>) -> Response {
    fake.seen.lock().expect("seen").push(body.0);
    let made = json!({ "id": "1a2b3c4d", "token": "cbw_made", "kind": "worker", "name": "host7" });
    (StatusCode::CREATED, axum::Json(made)).into_response()
}

/// Serves a fake; returns it and its address.
async fn board(status: &'static str) -> (Fake, String) {
    let fake = Fake { status, looks: Arc::default(), seen: Arc::default() };
    let app = Router::new()
        .route("/api/v1/builds", post(submit))
        .route("/api/v1/builds/{id}", get(read))
        .route("/api/v1/builds/{id}/logs", get(log))
        .route("/api/v1/secrets/{name}", axum::routing::put(put_secret))
        .route("/api/v1/admin/tokens", post(make_token))
        .with_state(fake.clone());
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let url = format!("http://{}", listener.local_addr().expect("an address"));
    tokio::spawn(async move { axum::serve(listener, app).await });
    (fake, url)
}

fn command(url: &str, args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_callboard"));
    command.args(args).env_clear().env("HOME", "/nonexistent").env("CALLBOARD_URL", url);
    command.env("CALLBOARD_API_TOKEN", TOKEN).stdin(Stdio::null()).current_dir("/");
    command
}

async fn run(mut command: Command) -> (i32, String, String) {
    let output: Output = tokio::task::spawn_blocking(move || command.output()).await.expect("joined").expect("it runs");
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).expect("text");
    let (stdout, stderr) = (text(output.stdout), text(output.stderr));
    assert!(!stdout.contains(TOKEN) && !stderr.contains(TOKEN), "the token is printed");
    (output.status.code().unwrap_or(-1), stdout, stderr)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_followed_builds_end_is_the_exit_code() {
    for (status, code) in [("success", 0), ("failed", 1), ("cancelled", 3), ("timed_out", 4)] {
        let (_, url) = board(status).await;
        let (exit, stdout, stderr) = run(command(&url, &["build", "submit", "app", "--follow"])).await;
        assert_eq!(exit, code, "{stderr}");
        assert!(stdout.contains(status) && stdout.contains("test") && stdout.contains("2 s"), "{stdout}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn piped_output_has_no_colours_and_a_builds_output_controls_nothing() {
    let (_, url) = board("success").await;
    let (_, stdout, _) = run(command(&url, &["build", "submit", "app", "--follow"])).await;
    assert!(!stdout.contains('\u{1b}') && !stdout.contains('\u{7}'), "{stdout:?}");
    assert!(stdout.contains("there"), "{stdout:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_submitted_is_what_was_typed() {
    let (fake, url) = board("success").await;
    let args = ["build", "submit", "app", "--ref", "v1", "--env", "A=b=c", "--env", "D=", "--json"];
    let (exit, stdout, _) = run(command(&url, &args)).await;
    let printed: Value = serde_json::from_str(&stdout).expect("JSON");
    assert_eq!((exit, &printed["id"]), (0, &json!(ID)));
    let seen = fake.seen.lock().expect("seen").clone();
    assert_eq!(seen, [json!({ "pipeline": "app", "ref": "v1", "env": { "A": "b=c", "D": "" } })]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_refusal_says_what_where_and_which_request() {
    let (_, url) = board("success").await;
    let (exit, _, stderr) = run(command(&url, &["build", "submit", "none"])).await;
    assert_eq!(exit, 2);
    for word in ["there is no pipeline none", "`callboard pipeline list`", "invalid", "req-7"] {
        assert!(stderr.contains(word), "{stderr}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_board_that_does_not_answer_is_5_and_named() {
    let (exit, _, stderr) = run(command("http://127.0.0.1:1", &["build", "list"])).await;
    assert_eq!(exit, 5);
    assert!(stderr.contains("http://127.0.0.1:1 does not answer"), "{stderr}");
}

#[tokio::test(flavor = "multi_thread")]
async fn without_settings_it_says_how_to_get_them() {
    let mut bare = command("", &["build", "list"]);
    bare.env_remove("CALLBOARD_URL").env_remove("CALLBOARD_API_TOKEN");
    bare.env("CALLBOARD_ENV_FILE", "/nonexistent/callboard.env");
    let (exit, _, stderr) = run(bare).await;
    assert_eq!(exit, 2);
    assert!(stderr.contains("/nonexistent/callboard.env is not there"), "{stderr}");
    let (exit, _, _) = run(command("", &["no-such-command"])).await;
    assert_eq!(exit, 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn every_fault_of_a_pipeline_file_is_told_with_line_and_key() {
    let dir = tempfile::tempdir().expect("a directory");
    let file = dir.path().join("callboard.yaml");
    std::fs::write(
        &file,
        "name: app\nrepository: http://h/r\ntimeout: 10q\nsteps:\n  - name: a\n    run: b\n    colour: red\n",
    )
    .expect("written");
    let path = file.to_str().expect("text");
    let (exit, _, stderr) = run(command("http://127.0.0.1:1", &["pipeline", "apply", "-f", path])).await;
    assert_eq!(exit, 2);
    for words in [":2:1: repository: ", ":3:1: timeout: \"10q\"", ":7:5: steps[0].colour: "] {
        assert!(stderr.contains(&format!("{path}{words}")), "{words} is not in {stderr}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_never_ends_is_read_within_a_limit() {
    let zeros = || Stdio::from(std::fs::File::open("/dev/zero").expect("there"));
    let (fake, url) = board("success").await;
    for (args, said) in [
        (&["pipeline", "apply", "-f", "/dev/zero"][..], "/dev/zero can't be read as a pipeline: larger than 1024 KiB"),
        (&["pipeline", "apply", "-f", "-"], "- can't be read as a pipeline: larger than 1024 KiB"),
        (&["secret", "set", "TOKEN"], "standard input can't be read: larger than 64 KiB"),
        (&["secret", "set", "TOKEN", "--file", "/dev/zero"], "/dev/zero can't be a secret's value: larger than 64 KiB"),
        (&["--env-file", "/dev/zero", "workspace", "show"], "/dev/zero can't be read: larger than 64 KiB"),
        (&["demo", "/", "--secret-file", "TOKEN=/dev/zero"], "larger than 64 KiB"),
    ] {
        let mut command = command(&url, args);
        command.stdin(zeros());
        if args[0] == "--env-file" {
            command.env_remove("CALLBOARD_URL");
        }
        let (exit, _, stderr) = run(command).await;
        assert!(exit == 2 && stderr.contains(said), "{args:?}: {stderr}");
    }
    assert!(fake.seen.lock().expect("seen").is_empty(), "nothing of it is sent");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_value_of_a_demos_secret_is_no_argument() {
    let (exit, _, stderr) = run(command("", &["demo", "/", "--secret", "TOKEN=hunter2"])).await;
    assert!(exit == 2 && stderr.contains("environment variable TOKEN") && !stderr.contains("hunter2"), "{stderr}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_secrets_value_comes_from_standard_input_and_loses_one_newline() {
    let (fake, url) = board("success").await;
    let mut command = command(&url, &["secret", "set", "TOKEN"]);
    let output = tokio::task::spawn_blocking(move || {
        let mut child =
            command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("it runs");
        let arguments = std::fs::read(format!("/proc/{}/cmdline", child.id())).expect("its arguments");
        child.stdin.take().expect("stdin").write_all(b"s3cret\n\n").expect("written");
        (child.wait_with_output().expect("it ends"), arguments)
    });
    let (output, arguments) = output.await.expect("joined");
    assert!(output.status.success());
    assert_eq!(fake.seen.lock().expect("seen").clone(), [json!({ "value": "s3cret\n" })]);
    for text in [&output.stdout, &output.stderr, &arguments] {
        assert!(!String::from_utf8_lossy(text).contains("s3cret"));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_token_goes_into_a_file_of_its_owners_alone_and_overwrites_none() {
    let (fake, url) = board("success").await;
    let dir = tempfile::tempdir().expect("a directory");
    let file = dir.path().join("worker.token");
    let create = || {
        let args = ["token", "create", "--kind", "worker", "--out", file.to_str().expect("text")];
        let mut command = command(&url, &args);
        command.env("CALLBOARD_OPERATOR_TOKEN", TOKEN);
        run(command)
    };
    let (exit, stdout, stderr) = create().await;
    assert_eq!(exit, 0, "{stderr}");
    assert!(
        stdout.contains("worker.token") && !stdout.contains("cbw_made") && !stderr.contains("cbw_made"),
        "{stdout}"
    );
    assert_eq!(std::fs::read_to_string(&file).expect("there"), "cbw_made\n");
    assert_eq!(std::fs::metadata(&file).expect("there").permissions().mode() & 0o777, 0o600);
    let (exit, _, stderr) = create().await;
    assert!(exit == 2 && stderr.contains("worker.token is there already") && stderr.contains("another"), "{stderr}");
    assert_eq!(fake.seen.lock().expect("seen").len(), 1, "no token is made that can't be kept");
}

#[tokio::test(flavor = "multi_thread")]
async fn usage_names_only_what_a_command_cant_do_without() {
    for args in
        [&["build", "submit"][..], &["build", "show"], &["pipeline", "show"], &["token", "create"], &["plan", "set"]]
    {
        let mut command = command("http://127.0.0.1:1", args);
        command.env("CALLBOARD_ENV_FILE", "/nonexistent/callboard.env");
        let (exit, _, stderr) = run(command).await;
        let usage = stderr.lines().find(|line| line.starts_with("Usage:")).unwrap_or(&stderr);
        assert!(exit == 2 && usage.starts_with("Usage: callboard") && !usage.contains("--env-file"), "{stderr}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_no_id_is_told_before_any_board_is_asked() {
    for args in [&["build", "show", "app"][..], &["build", "logs", "-f", "01a2308a"], &["preview", "open", "7"]] {
        let (exit, _, stderr) = run(command("http://127.0.0.1:1", args)).await;
        assert!(exit == 2 && stderr.contains("one looks like 01a2308a-c2ff-") && stderr.contains("list`"), "{stderr}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn completions_that_nobody_reads_end_quietly() {
    let mut command = command("", &["completions", "bash"]);
    let ended = tokio::task::spawn_blocking(move || {
        let (reader, writer) = std::io::pipe().expect("a pipe");
        drop(reader);
        command.stdout(writer).output().expect("it ends")
    });
    let ended = ended.await.expect("joined");
    assert_eq!((ended.status.code(), ended.stderr.as_slice()), (Some(141), &b""[..]));
}

#[tokio::test(flavor = "multi_thread")]
async fn ctrl_c_lets_go_of_a_build_and_says_how_to_go_on() {
    let (fake, url) = board("running").await;
    let mut command = command(&url, &["build", "logs", "-f", ID]);
    let output = tokio::task::spawn_blocking(move || {
        let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("it runs");
        while *fake.looks.lock().expect("looks") < 2 {
            std::thread::sleep(Duration::from_millis(10));
        }
        let pid = nix::unistd::Pid::from_raw(i32::try_from(child.id()).expect("a pid"));
        nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGINT).expect("signalled");
        child.wait_with_output().expect("it ends")
    });
    let output = output.await.expect("joined");
    assert_eq!(output.status.code(), Some(130));
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(stderr.contains("callboard build logs -f") && stderr.contains("callboard build cancel"), "{stderr}");
}

#[tokio::test(flavor = "multi_thread")]
async fn completions_and_help_are_printed() {
    let (exit, stdout, _) = run(command("", &["completions", "bash"])).await;
    assert!(exit == 0 && stdout.contains("_callboard()"));
    let (exit, stdout, _) = run(command("", &["--help"])).await;
    assert!(exit == 0 && stdout.contains("Exit codes"));
}
