//! `callboard preview` against a preview that runs, as a person uses it.

use crate::previews::{get, is_gone, ports, running};
use crate::scene::Scene;
use protocol::preview::Preview;
use rules::preview::State;
use std::path::PathBuf;
use std::process::{Command, Output};

/// The command, which lies beside the tests.
fn callboard(scene: &Scene, args: &[&str]) -> Output {
    let tests = std::env::current_exe().expect("a path");
    let program: PathBuf = tests.ancestors().nth(2).expect("the target directory").join("callboard");
    let tokens = scene.stack.tokens();
    let mut command = Command::new(program);
    command.env("CALLBOARD_URL", scene.stack.url()).env("CALLBOARD_API_TOKEN", &tokens.api);
    command.env("CALLBOARD_OPERATOR_TOKEN", &tokens.operator).current_dir(scene.dir.path());
    command.args(args).output().expect("the command runs: `./tests/run` builds it")
}

/// What it printed, where it ended well.
fn said(scene: &Scene, args: &[&str]) -> String {
    let output = callboard(scene, args);
    assert_eq!(output.status.code(), Some(0), "{args:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).expect("text")
}

#[tokio::test(flavor = "multi_thread")]
async fn a_person_lists_opens_extends_reads_and_destroys_a_preview() {
    let metrics = format!("127.0.0.1:{}", ports().0);
    let Some((scene, build, shown)) = running(&["--metrics-addr", &metrics], false, "").await else { return };
    let (id, url) = (shown.id.to_string(), shown.url.clone().expect("an address"));

    let list = said(&scene, &["preview", "list", "--status", "running"]);
    assert!(list.contains(&id) && list.contains(&url), "{list}");
    assert_eq!(said(&scene, &["preview", "open", &id]), format!("{url}\n"));
    assert_eq!(get(&format!("{}once", said(&scene, &["preview", "open", &id]).trim())).await, "hello from first\n");

    let counted = get(&format!("http://{metrics}/metrics")).await;
    assert!(counted.contains("callboard_worker_previews{state=\"running\"} 1\n"), "{counted}");
    assert!(counted.contains("callboard_worker_preview_ports_used 1\n"), "{counted}");

    assert!(said(&scene, &["preview", "extend", &id, "--for", "3h"]).contains("lives"));
    let extended: Preview = serde_json::from_str(&said(&scene, &["preview", "show", &id, "--json"])).expect("JSON");
    assert!(extended.version > shown.version && extended.expires_at > shown.expires_at, "{extended:?}");
    let version = shown.version.to_string();
    let late = callboard(&scene, &["preview", "destroy", &id, "--if-version", &version]);
    assert_eq!(late.status.code(), Some(5), "it has another version by now");

    scene.until_log_says(&shown, "asked for /up\n").await;
    let log = said(&scene, &["preview", "logs", &id]);
    assert!(log.contains("listening with ***\n"), "{log}");

    assert_eq!(said(&scene, &["preview", "reconcile"]), "0 mended; ports leased now: 1\n");

    assert!(said(&scene, &["preview", "destroy", &id]).contains("is destroyed"));
    scene.preview(build, |preview| preview.status == State::Destroyed).await;
    is_gone(&scene, build, shown.port.expect("a port"));
    let gone = callboard(&scene, &["preview", "open", &id]);
    let why = String::from_utf8(gone.stderr).expect("text");
    assert!(gone.status.code() == Some(2) && gone.stdout.is_empty() && why.contains("destroyed"), "{why}");
    scene.end_but_for_directories().await;
}
