//! Volumes of a task.

use crate::stand::{IMAGE, Stand, container, definition, docker, part, quick, with};
use serde_json::{Value, json};
use std::process::Command;

fn client(args: &[&str]) {
    let host = format!("unix://{}", docker().unwrap().display());
    let done = Command::new("docker").args(["--host", &host]).args(args).output().unwrap();
    assert!(done.status.success(), "docker {args:?}: {}", String::from_utf8_lossy(&done.stderr));
}

/// An image with a file in `/kit`, of which it says `VOLUME`, and one in `/plain`; both are user 10001's.
fn image(name: &str) -> String {
    let tag = format!("callboard-test-ecs:{name}");
    let made = format!("callboard-test-ecs-{name}");
    let script = "for at in /kit /plain; do mkdir $at; echo from the image >$at/word; chown -R 10001:10001 $at; done";
    client(&["run", "--name", &made, "--network", "none", IMAGE, "/bin/sh", "-c", script]);
    client(&["commit", "--change", "VOLUME /kit", &made, &tag]);
    client(&["rm", &made]);
    tag
}

fn mounted(container: Value, at: &str, read_only: bool) -> Value {
    let point = json!({ "sourceVolume": "shared", "containerPath": at, "readOnly": read_only });
    with(container, json!({ "mountPoints": [point] }))
}

async fn run(stand: &Stand, containers: &[Value]) -> Value {
    let whole = with(definition(containers), json!({ "volumes": [{ "name": "shared" }] }));
    let task = stand.run(Stand::request(&stand.register_whole(whole).await)).await;
    stand.until_status(&task, "STOPPED").await
}

async fn output(stand: &Stand, task: &Value, name: &str) -> String {
    stand.fake.output(task["taskArn"].as_str().unwrap(), name).await
}

#[tokio::test]
async fn a_volume_begins_with_what_the_image_declares_at_its_path() {
    let Some(stand) = Stand::new(quick()).await else { return };
    let image = json!({ "image": image("declared"), "user": "10001:10001", "readonlyRootFilesystem": true });
    let filler = mounted(container("filler", "echo more >/kit/more; sleep 2"), "/kit", false);
    let depends = json!({ "dependsOn": [{ "containerName": "filler", "condition": "START" }], "essential": false });
    let script =
        "until [ -e /see/more ]; do sleep 0.1; done; cat /see/word; touch /see/not 2>/dev/null || echo read-only";
    let reader = with(mounted(container("reader", script), "/see", true), depends);
    let stopped = run(&stand, &[with(filler, image), reader]).await;
    assert_eq!(output(&stand, &stopped, "reader").await, "from the image\nread-only\n");
    stand.close().await;
}

#[tokio::test]
async fn a_volume_at_another_path_is_empty_and_roots() {
    let Some(stand) = Stand::new(quick()).await else { return };
    let script = "ls /plain; touch /plain/not 2>/dev/null || echo not mine";
    let image = json!({ "image": image("plain"), "user": "10001:10001" });
    let stopped = run(&stand, &[with(mounted(container("main", script), "/plain", false), image)]).await;
    assert_eq!(output(&stand, &stopped, "main").await, "not mine\n");
    assert_eq!(part(&stopped, "main")["exitCode"], 0);
    stand.close().await;
}

#[tokio::test]
async fn each_task_has_its_own() {
    let Some(stand) = Stand::new(quick()).await else { return };
    let main = mounted(container("main", "ls /shared; touch /shared/left"), "/shared", false);
    for _ in 0..2 {
        let stopped = run(&stand, std::slice::from_ref(&main)).await;
        assert_eq!(output(&stand, &stopped, "main").await, "");
    }
    stand.close().await;
}
