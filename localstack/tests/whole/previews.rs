//! Live previews, from their build's success until nothing of them is left.

use crate::scene::Scene;
use crate::skipped;
use localstack::leftovers;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use protocol::preview::Preview;
use protocol::worker::Secret;
use protocol::workspace::{SecretName, SecretValue};
use reqwest::Method;
use rules::preview::{Stage, State, WaitingFor};
use std::fs;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::TcpStream;
use uuid::Uuid;

/// Whether the service of these tests runs here; if not, the calling test is skipped.
pub(crate) fn can_serve() -> bool {
    let has_perl = Path::new("/usr/bin/perl").exists();
    if !has_perl {
        skipped::skip("perl", "the service of the tests is written in it");
    }
    has_perl
}

/// A pipeline whose preview is the service; `more` stands among the preview's fields.
pub(crate) fn pipeline(more: &str) -> String {
    format!(
        r#""secrets": ["TOKEN"], "steps": [{{ "name": "make", "commands": ["cp word made"] }}],
        "preview": {{ "image": "host", "commands": ["WORD=$(cat made)", "export WORD", "exec perl service.pl"],
            "port": 8080, "health_path": "/up" {more} }}"#
    )
}

/// Ports that nobody has just now, and that no other test of this process gets.
pub(crate) fn ports() -> (u16, String) {
    let first = TcpListener::bind("127.0.0.1:0").expect("a port").local_addr().expect("its address").port();
    let first = first.min(65_000);
    (first, format!("{first}-{}", first + 20))
}

pub(crate) async fn set() -> Option<Scene> {
    if !can_serve() {
        return None;
    }
    let scene = Scene::set().await?;
    let value = SecretValue { value: Secret("hunter2-hunter2".into()) };
    let _: SecretName = scene.client.give(Method::PUT, "secrets/TOKEN", &value).await.expect("set");
    Some(scene)
}

pub(crate) async fn get(url: &str) -> String {
    reqwest::get(url).await.expect("an answer").text().await.expect("text")
}

pub(crate) async fn destroy(scene: &Scene, preview: &Preview) {
    let request = scene.client.request(Method::DELETE, &format!("previews/{}", preview.id));
    let _: Preview = scene.client.send(request).await.expect("destroyed");
}

/// A stack whose worker has `args` besides, with a preview that runs.
pub(crate) async fn running(args: &[&str], restart: bool, more: &str) -> Option<(Scene, Uuid, Preview)> {
    let mut scene = set().await?;
    scene.apply(&pipeline(more)).await;
    scene.start_worker_with(&[&["--preview-ports", &ports().1], args].concat(), restart);
    let build = scene.submit().await;
    let running = scene.preview(build, |preview| preview.status == State::Running).await;
    Some((scene, build, running))
}

/// Nothing of the preview runs, is bound, mounted or logged any more.
pub(crate) fn is_gone(scene: &Scene, build: Uuid, port: u16) {
    is_quiet(scene, build, port);
    assert!(!fs::exists(scene.site(build).join("preview/log")).expect("looked"));
}

/// The same, but for its log.
pub(crate) fn is_quiet(scene: &Scene, build: Uuid, port: u16) {
    assert!(TcpListener::bind(("127.0.0.1", port)).is_ok());
    let site = scene.site(build);
    assert_eq!(leftovers::processes(&site), Vec::<u32>::new());
    assert_eq!(leftovers::mounts(&site), 0);
    assert_eq!(scene.groups_of(build), Vec::<PathBuf>::new());
}

/// The processes of the preview that were called by this verb.
pub(crate) fn called(scene: &Scene, build: Uuid, verb: &str) -> Vec<i32> {
    let program = scene.stack.dir().join("builds/.bin/callboard-worker").display().to_string();
    let beginning = [&program, verb, "--build", &build.to_string()].join("\0");
    let arguments = |pid: &u32| fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    let all = leftovers::processes(scene.stack.dir()).into_iter();
    all.filter(|pid| arguments(pid).starts_with(beginning.as_bytes()))
        .map(|pid| i32::try_from(pid).expect("fits"))
        .collect()
}

pub(crate) fn end(pid: i32) {
    kill(Pid::from_raw(pid), Signal::SIGKILL).expect("killed");
}

#[tokio::test]
async fn a_preview_runs_from_its_builds_workspace_is_reached_and_leaves_nothing_when_it_is_destroyed() {
    let Some((scene, build, running)) = running(&[], false, "").await else { return };
    let (url, port) = (running.url.clone().expect("an address"), running.port.expect("a port"));
    assert_eq!(url, format!("http://127.0.0.1:{port}/"));
    assert_eq!(get(&format!("{url}once")).await, "hello from first\n");
    scene.until_log_says(&running, "listening with ***\nasked for /up\n").await;
    destroy(&scene, &running).await;
    let gone = scene.preview(build, |preview| preview.status == State::Destroyed).await;
    assert_eq!(gone.port, None);
    is_gone(&scene, build, port);
    scene.end_but_for_directories().await;
}

#[tokio::test]
async fn a_worker_that_is_killed_is_missed_by_no_user_of_a_preview() {
    let Some((scene, build, before)) = running(&[], true, "").await else { return };
    let (url, port) = (before.url.clone().expect("an address"), before.port.expect("a port"));
    let mut user = BufReader::new(TcpStream::connect(("127.0.0.1", port)).await.expect("connected"));
    user.write_all(b"GET /echo HTTP/1.1\r\n\r\n").await.expect("said");
    let mut said = String::new();
    while said != "\r\n" {
        said.clear();
        user.read_line(&mut said).await.expect("heard");
    }
    let worker = scene.stack.worker().and_then(|worker| worker.pid()).expect("a worker");
    end(worker);
    for word in ["while it is down", "and after"] {
        user.write_all(format!("{word}\n").as_bytes()).await.expect("said");
        said.clear();
        user.read_line(&mut said).await.expect("heard");
        assert_eq!(said, format!("{word}\n"));
        assert_eq!(get(&url).await, "hello from first\n");
        scene.until_worker_is_ready(2).await;
    }
    // The new one has told the board how it is, and was told what it is.
    let keeper = called(&scene, build, "keep");
    assert_eq!(keeper.len(), 1);
    let after = scene.preview(build, |preview| preview.status == State::Running).await;
    assert_eq!((&after.url, after.version), (&before.url, before.version));
    destroy(&scene, &after).await;
    scene.preview(build, |preview| preview.status == State::Destroyed).await;
    assert_eq!(user.read_line(&mut said).await.unwrap_or(0), 0, "its users see its end");
    is_gone(&scene, build, port);
    scene.end_but_for_directories().await;
}

#[tokio::test]
async fn a_keeper_that_is_killed_ends_its_preview_which_failed_and_is_cleaned() {
    let Some((scene, build, before)) = running(&[], false, "").await else { return };
    called(&scene, build, "keep").into_iter().for_each(end);
    let failed = scene.preview(build, |preview| preview.status == State::Failed && preview.port.is_none()).await;
    assert_eq!(failed.stage, Some(Stage::Run));
    assert!(failed.message.as_deref().is_some_and(|why| why.contains("was killed")), "{failed:?}");
    destroy(&scene, &failed).await;
    scene.preview(build, |preview| preview.status == State::Destroyed).await;
    is_gone(&scene, build, before.port.expect("a port"));
    scene.end_but_for_directories().await;
}

#[tokio::test]
async fn a_keeper_that_died_with_its_worker_is_found_missing_by_the_next() {
    let Some((scene, build, _)) = running(&[], true, "").await else { return };
    let worker = scene.stack.worker().and_then(|worker| worker.pid()).expect("a worker");
    end(worker);
    called(&scene, build, "keep").into_iter().for_each(end);
    called(&scene, build, "guard").into_iter().for_each(end);
    let failed = scene.preview(build, |preview| preview.status == State::Failed && preview.port.is_none()).await;
    assert_eq!(failed.stage, Some(Stage::Recovery), "{failed:?}");
    assert_eq!(leftovers::mounts(&scene.site(build)), 0);
    scene.end_but_for_directories().await;
}

#[tokio::test]
async fn a_service_that_dies_fails_its_preview_and_its_log_stays_until_it_is_destroyed() {
    let Some((scene, build, before)) = running(&[], false, r#", "retain_failed": true"#).await else { return };
    let (url, port) = (before.url.clone().expect("an address"), before.port.expect("a port"));
    reqwest::get(format!("{url}die")).await.ok();
    let failed = scene.preview(build, |preview| preview.status == State::Failed && preview.port.is_none()).await;
    assert_eq!((failed.stage, failed.retain_failed), (Some(Stage::Run), true));
    assert_eq!(failed.message.as_deref(), Some("the service ended with exit code 137"));
    let shown: Preview = scene.client.get(&format!("previews/{}", failed.id)).await.expect("read");
    let log = shown.log_tail.expect("a log");
    assert!(log.contains("listening with ***\n") && !log.contains("hunter2"), "{log}");
    assert!(TcpListener::bind(("127.0.0.1", port)).is_ok());
    let site = scene.site(build);
    assert_eq!(leftovers::processes(&site), Vec::<u32>::new());
    let kept = fs::read_to_string(site.join("preview/log")).expect("the whole log");
    assert!(kept.contains("listening with ***\n") && !kept.contains("hunter2"), "{kept}");
    assert!(site.join("workspace/made").exists());
    destroy(&scene, &failed).await;
    scene.preview(build, |preview| preview.status == State::Destroyed).await;
    is_gone(&scene, build, port);
    assert!(site.join("workspace/made").exists(), "its directory stays as long as its row");
    scene.end_but_for_directories().await;
}

#[tokio::test]
async fn a_service_that_never_answers_fails_at_its_start() {
    let Some(mut scene) = set().await else { return };
    scene.apply(&pipeline("").replace("/up", "/sick")).await;
    scene.start_worker_with(&["--preview-ports", &ports().1, "--preview-start-timeout", "1"], false);
    let build = scene.submit().await;
    let failed = scene.preview(build, |preview| preview.status == State::Failed && preview.port.is_none()).await;
    assert_eq!(failed.stage, Some(Stage::Start));
    assert_eq!(failed.message.as_deref(), Some("/sick did not answer within 1 s: status 503"));
    scene.apply(&pipeline("").replace("exec perl service.pl", "exit 7")).await;
    let build = scene.submit().await;
    let failed = scene.preview(build, |preview| preview.status == State::Failed && preview.port.is_none()).await;
    assert_eq!(failed.stage, Some(Stage::Start));
    assert_eq!(failed.message.as_deref(), Some("the service ended with exit code 7 before /up answered"));
    assert_eq!(leftovers::processes(&scene.stack.dir().join("builds").join(build.to_string())), Vec::<u32>::new());
    scene.end_but_for_directories().await;
}

#[tokio::test]
async fn with_every_port_taken_a_preview_waits_visibly_and_starts_when_one_comes_free() {
    let Some(mut scene) = set().await else { return };
    scene.apply(&pipeline("")).await;
    let stranger = TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = stranger.local_addr().expect("its address").port();
    scene.start_worker_with(&["--preview-ports", &format!("{port}-{port}")], false);
    let build = scene.submit().await;
    let waits = scene.preview(build, |preview| preview.waiting_for == Some(WaitingFor::Port)).await;
    assert_eq!((waits.status, waits.port), (State::Starting, None));
    drop(stranger);
    let running = scene.preview(build, |preview| preview.status == State::Running).await;
    assert_eq!(running.port, Some(port));
    let next = scene.submit().await;
    let waits = scene.preview(next, |preview| preview.waiting_for == Some(WaitingFor::Port)).await;
    destroy(&scene, &waits).await;
    scene.preview(next, |preview| preview.status == State::Destroyed).await;
    destroy(&scene, &running).await;
    scene.preview(build, |preview| preview.status == State::Destroyed).await;
    is_gone(&scene, next, port);
    scene.end_but_for_directories().await;
}

#[tokio::test]
async fn one_that_is_destroyed_while_it_starts_never_runs() {
    let Some(mut scene) = set().await else { return };
    scene.apply(&pipeline("").replace("/up", "/sick")).await;
    scene.start_worker_with(&["--preview-ports", &ports().1], false);
    let build = scene.submit().await;
    let starting = scene.preview(build, |preview| preview.port.is_some()).await;
    assert_eq!(starting.status, State::Starting);
    destroy(&scene, &starting).await;
    let gone = scene.preview(build, |preview| preview.status == State::Destroyed).await;
    assert_eq!(gone.started_at, None);
    is_gone(&scene, build, starting.port.expect("a port"));
    scene.end_but_for_directories().await;
}

#[tokio::test]
async fn a_preview_whose_time_is_over_is_ended_by_its_host() {
    let Some((scene, build, running)) = running(&[], false, r#", "ttl_seconds": 3"#).await else { return };
    scene.preview(build, |preview| preview.status == State::Destroyed).await;
    is_gone(&scene, build, running.port.expect("a port"));
    scene.end_but_for_directories().await;
}

#[tokio::test]
async fn a_host_without_previews_says_so() {
    let Some(mut scene) = set().await else { return };
    scene.apply(&pipeline("")).await;
    scene.start_worker_with(&["--no-previews"], false);
    let build = scene.submit().await;
    let failed = scene.preview(build, |preview| preview.status == State::Failed).await;
    assert_eq!(failed.stage, Some(Stage::Unsupported));
    scene.end_but_for_directories().await;
}

#[tokio::test]
async fn what_ends_with_its_stack_is_told_to_the_board_before() {
    let Some((mut scene, build, running)) = running(&[], false, "").await else { return };
    scene.stack.stop_worker().await;
    is_quiet(&scene, build, running.port.expect("a port"));
    let failed = scene.preview(build, |preview| preview.status == State::Failed).await;
    assert_eq!(failed.stage, Some(Stage::Recovery));
    assert_eq!(failed.message.as_deref(), Some("it ended with the worker of its host, which was stopped"));
    scene.end_but_for_directories().await;
}

/// Calls `callboard-worker recover` on the stack's builds root; what it said.
async fn recover(scene: &Scene) -> String {
    let dir = scene.stack.dir();
    let mut command = tokio::process::Command::new(localstack::worker::binary().expect("the worker"));
    command.args(["recover", "--isolation", "bubblewrap", "--api-url", &scene.stack.url(), "--token-file"]);
    command.arg(dir.join("worker.token")).arg("--builds-root").arg(dir.join("builds"));
    let output = command.args(["--kill-grace-ms", "500"]).output().await.expect("run");
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{said}");
    said
}

#[tokio::test]
async fn recover_keeps_what_lives_ends_what_does_not_and_is_safe_twice_at_once_and_beside_a_worker() {
    let Some((scene, build, running)) = running(&[], false, "").await else { return };
    let (url, port) = (running.url.clone().expect("an address"), running.port.expect("a port"));
    let beside = recover(&scene).await;
    assert!(beside.contains("a live worker has this builds root"), "{beside}");
    assert_eq!(get(&url).await, "hello from first\n");
    end(scene.stack.worker().and_then(|worker| worker.pid()).expect("a worker"));
    scene.until_no_worker_lives().await;
    let keeper = called(&scene, build, "keep");
    tokio::join!(recover(&scene), recover(&scene));
    assert_eq!((called(&scene, build, "keep"), get(&url).await.as_str()), (keeper.clone(), "hello from first\n"));
    let kept = scene.preview(build, |preview| preview.status == State::Running).await;
    assert_eq!(kept.version, running.version);
    keeper.into_iter().for_each(end);
    recover(&scene).await;
    let failed = scene.preview(build, |preview| preview.status == State::Failed && preview.port.is_none()).await;
    assert_eq!(failed.stage, Some(Stage::Recovery));
    is_quiet(&scene, build, port);
    destroy(&scene, &failed).await;
    recover(&scene).await;
    scene.preview(build, |preview| preview.status == State::Destroyed).await;
    is_gone(&scene, build, port);
    recover(&scene).await;
    scene.end_but_for_directories().await;
}

#[tokio::test]
async fn recover_ends_what_was_destroyed_while_no_worker_was_there() {
    let Some((scene, build, running)) = running(&[], false, "").await else { return };
    end(scene.stack.worker().and_then(|worker| worker.pid()).expect("a worker"));
    scene.until_no_worker_lives().await;
    destroy(&scene, &running).await;
    recover(&scene).await;
    scene.preview(build, |preview| preview.status == State::Destroyed).await;
    is_gone(&scene, build, running.port.expect("a port"));
    scene.end_but_for_directories().await;
}

#[tokio::test]
async fn a_database_that_is_killed_is_missed_by_no_preview() {
    let Some((scene, build, running)) = running(&[], false, "").await else { return };
    let url = running.url.clone().expect("an address");
    let database = scene.stack.postgres().and_then(|postgres| postgres.pid()).expect("a database");
    end(database);
    assert_eq!(get(&url).await, "hello from first\n");
    scene.until_database_answers().await;
    let after = scene.preview(build, |preview| preview.status == State::Running).await;
    assert_eq!((&after.url, after.version), (&running.url, running.version));
    destroy(&scene, &after).await;
    scene.preview(build, |preview| preview.status == State::Destroyed).await;
    is_gone(&scene, build, running.port.expect("a port"));
    scene.end_but_for_directories().await;
}

#[tokio::test]
async fn a_build_of_another_end_keeps_nothing() {
    let Some(mut scene) = set().await else { return };
    scene.apply(&pipeline("").replace("cp word made", "false")).await;
    scene.start_worker_with(&["--preview-ports", &ports().1], false);
    let build = scene.submit().await;
    assert_eq!(scene.ended(build).await.status, protocol::Status::Failed);
    scene.end().await;
}

#[tokio::test]
async fn a_step_reaches_neither_a_previews_port_nor_its_service() {
    let Some((scene, build, running)) = running(&[], false, "").await else { return };
    let (url, service) = (running.url.clone().expect("an address"), "http://127.0.0.1:8080/");
    let tries: Vec<String> = [url.as_str(), service]
        .iter()
        .flat_map(|url| {
            let outright = format!("if curl -sf --max-time 5 --noproxy '*' {url}; then exit 1; fi");
            let by_proxy = format!("if curl -sf --max-time 5 --noproxy '' -x $http_proxy {url}; then exit 2; fi");
            [outright, by_proxy]
        })
        .collect();
    let steps = serde_json::json!([{ "name": "try", "commands": tries }]);
    scene.apply(&format!("\"steps\": {steps}")).await;
    let stranger = scene.submit().await;
    let ended = scene.ended(stranger).await;
    let log = scene.log(stranger).await;
    assert_eq!(ended.status, protocol::Status::Success, "{log}");
    assert!(log.contains("is not a public address"), "{log}");
    assert_eq!(get(&url).await, "hello from first\n");
    destroy(&scene, &running).await;
    scene.preview(build, |preview| preview.status == State::Destroyed).await;
    scene.end_but_for_directories().await;
}
