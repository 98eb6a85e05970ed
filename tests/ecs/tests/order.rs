//! dependsOn, with real containers.

use crate::stand::{Stand, container, definition, part, quick, with};
use serde_json::{Value, json};

/// A container that is not essential and mounts what all share.
fn aside(name: &str, script: &str) -> Value {
    with(shared(container(name, script)), json!({ "essential": false }))
}

fn shared(container: Value) -> Value {
    with(container, json!({ "mountPoints": [{ "sourceVolume": "shared", "containerPath": "/shared" }] }))
}

fn after(container: Value, name: &str, condition: &str) -> Value {
    with(container, json!({ "dependsOn": [{ "containerName": name, "condition": condition }] }))
}

async fn run(stand: &Stand, containers: &[Value]) -> Value {
    let whole = with(definition(containers), json!({ "volumes": [{ "name": "shared" }] }));
    let task = stand.run(Stand::request(&stand.register_whole(whole).await)).await;
    stand.until_status(&task, "STOPPED").await
}

#[tokio::test]
async fn a_container_waits_for_one_that_must_succeed() {
    let Some(stand) = Stand::new(quick()).await else { return };
    let first = aside("first", "sleep 1; echo made >/shared/word");
    let main = after(shared(container("main", "cat /shared/word")), "first", "SUCCESS");
    // In the definition it stands before what it waits for.
    let stopped = run(&stand, &[main, first]).await;
    assert_eq!(part(&stopped, "main")["exitCode"], 0);
    assert_eq!(stand.fake.output(stopped["taskArn"].as_str().unwrap(), "main").await, "made\n");
    stand.close().await;
}

#[tokio::test]
async fn a_container_that_waits_for_success_in_vain_ends_the_task() {
    let Some(stand) = Stand::new(quick()).await else { return };
    let main = after(container("main", "exit 0"), "first", "SUCCESS");
    let stopped = run(&stand, &[aside("first", "exit 4"), main]).await;
    assert_eq!(
        [part(&stopped, "first")["exitCode"].clone(), part(&stopped, "main")["exitCode"].clone()],
        [json!(4), Value::Null]
    );
    assert_eq!(stopped["stopCode"], "TaskFailedToStart");
    assert_eq!(stopped.get("startedAt"), None);
    stand.close().await;
}

#[tokio::test]
async fn a_container_waits_for_the_end_of_another_however_it_ends() {
    let Some(stand) = Stand::new(quick()).await else { return };
    let main = after(shared(container("main", "cat /shared/word")), "first", "COMPLETE");
    let stopped = run(&stand, &[aside("first", "echo made >/shared/word; exit 4"), main]).await;
    assert_eq!(part(&stopped, "main")["exitCode"], 0);
    stand.close().await;
}

#[tokio::test]
async fn a_container_waits_until_another_is_healthy() {
    let Some(stand) = Stand::new(quick()).await else { return };
    let check = json!({ "command": ["CMD", "/bin/sh", "-c", "echo asked >/shared/word"], "interval": 5, "timeout": 2 });
    let first =
        with(aside("first", "trap 'exit 0' TERM; while :; do sleep 0.1; done"), json!({ "healthCheck": check }));
    let main = after(shared(container("main", "cat /shared/word")), "first", "HEALTHY");
    let stopped = run(&stand, &[first, main]).await;
    assert_eq!(part(&stopped, "main")["exitCode"], 0);
    assert_eq!(part(&stopped, "first")["healthStatus"], "HEALTHY");
    stand.close().await;
}
