//! The worker's own image, as worker-image/Dockerfile makes it: `./tests/image` builds it.

use crate::back_ends::{ask, socket};
use crate::board::{TOKEN, job, step};
use crate::fleet::{ACCEPTED, eventually, free_port};
use crate::skipped::skip;
use crate::{Board, Forge};
use protocol::Status;
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::{Command, Output};

/// The image; without one the calling test is skipped.
pub(crate) fn image() -> Option<String> {
    let (image, daemon) = (variable("CALLBOARD_TEST_IMAGE"), socket());
    if image.is_none() && daemon.is_some() {
        let why = variable("CALLBOARD_TEST_IMAGE_WHY");
        skip(
            "image",
            &why.unwrap_or_else(|| "run the tests by ./tests/run, or by ./tests/docker ./tests/image".into()),
        );
    }
    daemon.and(image)
}

fn variable(name: &str) -> Option<String> {
    std::env::var_os(name).and_then(|value| value.into_string().ok())
}

fn docker(args: &[&str]) -> Output {
    let host = format!("unix://{}", socket().unwrap().display());
    Command::new("docker").args(["--host", &host]).args(args).output().unwrap()
}

fn said(output: &Output) -> String {
    format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
}

/// A container of the image, with the options that the Dockerfile names; gone with this.
struct Contained(String);

impl Contained {
    fn start(image: &str, board: &Board, forge: &Forge, token: &Path) -> Self {
        let (token, ca) = (token.to_str().unwrap(), forge.ca());
        let volumes = [(token, "/etc/callboard/worker.token"), (ca.to_str().unwrap(), "/ca.pem")]
            .map(|(from, to)| format!("{from}:{to}:ro"));
        let settings = [
            format!("CALLBOARD_URL={}", board.url),
            "CALLBOARD_WORKER_TOKEN_FILE=/etc/callboard/worker.token".into(),
            "CALLBOARD_CA_BUNDLE=/ca.pem".into(),
            format!("CALLBOARD_EGRESS_ALLOW={}", forge.address),
            format!("CALLBOARD_ACCEPT={ACCEPTED}"),
            // It has the host's network here.
            format!("CALLBOARD_METRICS_ADDR=127.0.0.1:{}", free_port()),
        ];
        let mut args = vec!["run", "--detach", "--network", "host"];
        for option in ["seccomp=unconfined", "apparmor=unconfined", "systempaths=unconfined"] {
            args.extend(["--security-opt", option]);
        }
        args.extend(volumes.iter().flat_map(|volume| ["--volume", volume]));
        args.extend(settings.iter().flat_map(|setting| ["--env", setting]));
        args.push(image);
        let output = docker(&args);
        assert!(output.status.success(), "{}", said(&output));
        Self(String::from_utf8_lossy(&output.stdout).trim().to_owned())
    }
}

impl Drop for Contained {
    fn drop(&mut self) {
        if std::thread::panicking() {
            println!("the worker said:\n{}", said(&docker(&["logs", &self.0])));
        }
        docker(&["rm", "--force", "--volumes", &self.0]);
    }
}

#[test]
fn it_is_a_plain_users_and_says_how_it_is_and_how_it_ends() {
    let Some(image) = image() else { return };
    let config = ask("GET", &format!("/images/{image}/json"))["Config"].clone();
    assert_eq!((config["User"].as_str(), config["StopSignal"].as_str()), (Some("10001:10001"), Some("SIGTERM")));
    assert_eq!(config["Healthcheck"]["Test"], serde_json::json!(["CMD", "/usr/local/bin/callboard-worker", "health"]));
    let output = docker(&["run", "--rm", "--network", "host", &image, "--version"]);
    assert!(said(&output).starts_with("callboard-worker "), "{}", said(&output));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_worker_of_the_image_is_well_and_drains_when_it_is_told_to_end() {
    let Some(image) = image() else { return };
    let (board, forge, directory) = (Board::start().await, Forge::start().await, tempfile::tempdir().unwrap());
    let token = directory.path().join("token");
    fs::write(&token, TOKEN).unwrap();
    // It runs as somebody else, who is to read it.
    fs::set_permissions(&token, fs::Permissions::from_mode(0o644)).unwrap();
    for path in [directory.path(), forge.directory.path()] {
        fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
    }
    let worker = Contained::start(&image, &board, &forge, &token);
    let build = board.offer(job(&forge.url(), vec![step("long", &["echo running; sleep 3; echo through"])]));
    board.until_log("running\n").await;
    let health = docker(&["exec", &worker.0, "/usr/local/bin/callboard-worker", "health"]);
    assert!(health.status.success(), "{}", said(&health));
    docker(&["kill", "--signal", "TERM", &worker.0]);
    let report = board.report(build).await;
    assert_eq!(report.status, Status::Success, "{}", board.log());
    assert!(board.log().contains("through\n"), "{}", board.log());
    let state = || ask("GET", &format!("/containers/{}/json", worker.0))["State"].clone();
    eventually("its end", || (state()["Running"] == false).then_some(()));
    assert_eq!(state()["ExitCode"], 0, "{}", state());
}
