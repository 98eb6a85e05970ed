//! Live previews whose services run in containers.

use crate::previews::{called, destroy, end, get, is_gone, is_quiet, pipeline, ports, set};
use crate::scene::Scene;
use crate::skipped::skip;
use protocol::preview::Preview;
use rules::preview::{Stage, State};
use std::process::Command;
use uuid::Uuid;

/// An image of programs of this host, made beside the tests' daemon.
const IMAGE: &str = "callboard-test:host";

/// The daemon of the tests; without one the calling test is skipped.
fn daemon() -> Option<String> {
    let socket = std::env::var_os("CALLBOARD_TEST_DOCKER").and_then(|socket| socket.into_string().ok());
    if socket.is_none() {
        let why = std::env::var_os("CALLBOARD_TEST_DOCKER_WHY").and_then(|why| why.into_string().ok());
        skip("docker", &why.unwrap_or_else(|| "run the tests by ./tests/run, or by ./tests/docker".into()));
    }
    socket.map(|socket| format!("unix://{socket}"))
}

/// The lines that docker says.
fn docker(args: &[&str]) -> Vec<String> {
    let said = Command::new("docker").arg("--host").arg(daemon().expect("a daemon")).args(args).output();
    String::from_utf8(said.expect("docker runs").stdout).expect("text").lines().map(str::to_owned).collect()
}

fn of(build: Uuid) -> String {
    format!("label=callboard.build={build}")
}

/// The states of the containers of a build.
fn containers(build: Uuid) -> Vec<String> {
    docker(&["ps", "--all", "--format", "{{.State}}", "--filter", &of(build)])
}

async fn running(more: &str, restart: bool) -> Option<(Scene, Uuid, Preview)> {
    let daemon = daemon()?;
    let mut scene = set().await?;
    scene.apply(&pipeline(more).replace("\"image\": \"host\"", &format!("\"image\": \"{IMAGE}\""))).await;
    let args = ["--isolation", "auto", "--docker-host", &daemon, "--pull", "never", "--preview-ports", &ports().1];
    scene.start_worker_with(&args, restart);
    let build = scene.submit().await;
    let running = scene.preview(build, |preview| preview.status == State::Running).await;
    Some((scene, build, running))
}

#[tokio::test]
async fn a_preview_in_a_container_is_reached_outlives_the_worker_and_leaves_nothing() {
    let Some((scene, build, before)) = running("", true).await else { return };
    let (url, port) = (before.url.clone().expect("an address"), before.port.expect("a port"));
    assert_eq!(get(&url).await, "hello from first\n");
    assert_eq!(containers(build), ["running", "running"], "the service and its network");
    end(scene.stack.worker().and_then(|worker| worker.pid()).expect("a worker"));
    assert_eq!(get(&url).await, "hello from first\n");
    scene.until_worker_is_ready(2).await;
    let after = scene.preview(build, |preview| preview.status == State::Running).await;
    assert_eq!((&after.url, after.version), (&before.url, before.version));
    assert_eq!((get(&url).await.as_str(), containers(build)), ("hello from first\n", vec!["running".to_owned(); 2]));
    let reached = get(&format!("{url}out/{}", scene.git.egress())).await;
    assert!(reached.contains(" 200 "), "its network is no build's: {reached}");
    destroy(&scene, &after).await;
    scene.preview(build, |preview| preview.status == State::Destroyed).await;
    is_gone(&scene, build, port);
    assert_eq!(containers(build), Vec::<String>::new());
    scene.end_but_for_directories().await;
}

#[tokio::test]
async fn the_stopped_container_of_one_that_failed_is_kept_until_it_is_destroyed_where_that_is_wanted() {
    for (more, left) in [(r#", "retain_failed": true"#, vec!["exited"]), ("", Vec::new())] {
        let Some((scene, build, before)) = running(more, false).await else { return };
        let (url, port) = (before.url.clone().expect("an address"), before.port.expect("a port"));
        reqwest::get(format!("{url}die")).await.ok();
        let failed = scene.preview(build, |preview| preview.status == State::Failed && preview.port.is_none()).await;
        assert_eq!((failed.stage, containers(build)), (Some(Stage::Run), left.iter().map(|it| (*it).into()).collect()));
        is_quiet(&scene, build, port);
        destroy(&scene, &failed).await;
        scene.preview(build, |preview| preview.status == State::Destroyed).await;
        is_gone(&scene, build, port);
        assert_eq!(containers(build), Vec::<String>::new());
        scene.end_but_for_directories().await;
    }
}

#[tokio::test]
async fn a_preview_whose_network_breaks_has_failed_and_says_why() {
    let Some((scene, build, before)) = running("", false).await else { return };
    let network = docker(&["ps", "--no-trunc", "--format", "{{.ID}} {{.Command}}", "--filter", &of(build)]);
    let network = network.iter().find(|line| line.contains(" network --build ")).expect("a network");
    docker(&["kill", network.split(' ').next().expect("its number")]);
    let failed = scene.preview(build, |preview| preview.status == State::Failed && preview.port.is_none()).await;
    let why = failed.message.clone().unwrap_or_default();
    assert_eq!(failed.stage, Some(Stage::Run));
    assert!(why.contains("the service's network broke: it ended with exit code 137"), "{why}");
    assert_eq!(containers(build), Vec::<String>::new());
    destroy(&scene, &failed).await;
    scene.preview(build, |preview| preview.status == State::Destroyed).await;
    is_gone(&scene, build, before.port.expect("a port"));
    scene.end_but_for_directories().await;
}

#[tokio::test]
async fn a_keeper_that_is_killed_takes_its_container_with_it() {
    let Some((scene, build, before)) = running("", false).await else { return };
    called(&scene, build, "keep").into_iter().for_each(end);
    called(&scene, build, "guard").into_iter().for_each(end);
    let failed = scene.preview(build, |preview| preview.status == State::Failed && preview.port.is_none()).await;
    assert_eq!(failed.stage, Some(Stage::Run));
    assert_eq!(containers(build), Vec::<String>::new());
    destroy(&scene, &failed).await;
    scene.preview(build, |preview| preview.status == State::Destroyed).await;
    is_gone(&scene, build, before.port.expect("a port"));
    scene.end_but_for_directories().await;
}
