//! Live previews, from their build's success until nothing of them is left.

use crate::scene::Scene;
use crate::skipped;
use localstack::leftovers;
use protocol::preview::Preview;
use protocol::worker::Secret;
use protocol::workspace::{SecretName, SecretValue};
use reqwest::Method;
use rules::preview::State;
use std::fs;
use std::net::TcpListener;
use std::path::Path;

/// Whether the service of these tests runs here; if not, the calling test is skipped.
fn can_serve() -> bool {
    let has_perl = Path::new("/usr/bin/perl").exists();
    if !has_perl {
        skipped::skip("perl", "the service of the tests is written in it");
    }
    has_perl
}

/// A pipeline whose preview is the service; `more` stands among the preview's fields.
fn pipeline(more: &str) -> String {
    format!(
        r#""secrets": ["TOKEN"], "steps": [{{ "name": "make", "commands": ["cp word made"] }}],
        "preview": {{ "image": "host", "commands": ["WORD=$(cat made)", "export WORD", "exec perl service.pl"],
            "port": 8080, "health_path": "/up" {more} }}"#
    )
}

/// Ports that nobody has just now, and that no other test of this process gets.
fn ports() -> (u16, String) {
    let first = TcpListener::bind("127.0.0.1:0").expect("a port").local_addr().expect("its address").port();
    let first = first.min(65_000);
    (first, format!("{first}-{}", first + 20))
}

async fn set() -> Option<Scene> {
    if !can_serve() {
        return None;
    }
    let scene = Scene::set().await?;
    let value = SecretValue { value: Secret("hunter2-hunter2".into()) };
    let _: SecretName = scene.client.give(Method::PUT, "secrets/TOKEN", &value).await.expect("set");
    Some(scene)
}

async fn get(url: &str) -> String {
    reqwest::get(url).await.expect("an answer").text().await.expect("text")
}

async fn destroy(scene: &Scene, preview: &Preview) {
    let request = scene.client.request(Method::DELETE, &format!("previews/{}", preview.id));
    let _: Preview = scene.client.send(request).await.expect("destroyed");
}

#[tokio::test]
async fn a_preview_runs_from_its_builds_workspace_is_reached_and_leaves_nothing_when_it_is_destroyed() {
    let Some(mut scene) = set().await else { return };
    scene.apply(&pipeline("")).await;
    scene.start_worker_with(&["--preview-ports", &ports().1], false);
    let build = scene.submit().await;
    let running = scene.preview(build, |preview| preview.status == State::Running).await;
    let (url, port) = (running.url.clone().expect("an address"), running.port.expect("a port"));
    assert_eq!(url, format!("http://127.0.0.1:{port}/"));
    assert_eq!(get(&url).await, "hello from first\n");
    destroy(&scene, &running).await;
    let gone = scene.preview(build, |preview| preview.status == State::Destroyed).await;
    assert_eq!(gone.port, None);
    assert!(TcpListener::bind(("127.0.0.1", port)).is_ok());
    let builds = scene.stack.dir().join("builds");
    let kept = leftovers::processes(&builds.join(build.to_string()));
    assert_eq!(kept, Vec::<u32>::new());
    assert!(!fs::exists(builds.join(build.to_string()).join("preview/log")).expect("looked"));
    scene.end_but_for_directories().await;
}
