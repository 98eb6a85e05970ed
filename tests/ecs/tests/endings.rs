//! How tasks are stopped.

use crate::stand::{Stand, container, definition, part, quick, with};
use fake_ecs::{Fault, Settings};
use serde_json::{Value, json};

/// Says that it hears, and ends when it is asked, with a code of its own.
const POLITE: &str = "trap 'echo asked; exit 9' TERM; echo up; while :; do sleep 0.1; done";
/// Does not hear.
const DEAF: &str = "trap '' TERM; while :; do sleep 0.1; done";

/// A container that is given all the time that it may want.
fn patient(name: &str, script: &str) -> Value {
    with(container(name, script), json!({ "stopTimeout": 120 }))
}

#[tokio::test]
async fn a_task_is_asked_to_end_and_killed_after_its_patience() {
    let Some(stand) = Stand::new(quick()).await else { return };
    let deaf = with(container("deaf", DEAF), json!({ "essential": false, "stopTimeout": 1 }));
    let task = stand.run_containers(&[patient("main", POLITE), deaf]).await;
    stand.until_written(&task, "main", "up").await;
    stand.stop(&task).await;
    let stopped = stand.until_status(&task, "STOPPED").await;
    assert_eq!([&part(&stopped, "main")["exitCode"], &part(&stopped, "deaf")["exitCode"]], [9, 137]);
    assert_eq!([&stopped["stopCode"], &stopped["stoppedReason"]], ["UserInitiated", "told to"]);
    let again = stand.call("StopTask", json!({ "cluster": "callboard", "task": task, "reason": "again" })).await;
    assert_eq!(again["task"]["stoppedReason"], "told to");
    stand.close().await;
}

#[tokio::test]
async fn a_task_that_has_not_started_stops_without_containers() {
    let Some(stand) = Stand::new(Settings { provisioning_ms: 60_000, ..quick() }).await else { return };
    let task = stand.run_containers(&[patient("main", POLITE)]).await;
    stand.stop(&task).await;
    let stopped = stand.until_status(&task, "STOPPED").await;
    assert_eq!(part(&stopped, "main").get("exitCode"), None);
    assert_eq!([stopped.get("startedAt"), stopped.get("executionStoppedAt")], [None, None]);
    stand.close().await;
}

#[tokio::test]
async fn an_essential_containers_end_stops_the_others() {
    let Some(stand) = Stand::new(quick()).await else { return };
    let mounts = json!({ "mountPoints": [{ "sourceVolume": "shared", "containerPath": "/shared" }] });
    let main = with(container("main", "until [ -e /shared/up ]; do sleep 0.1; done"), mounts.clone());
    let script = "trap 'exit 9' TERM; touch /shared/up; while :; do sleep 0.1; done";
    let other = with(with(patient("other", script), mounts), json!({ "essential": false }));
    let whole = with(definition(&[main, other]), json!({ "volumes": [{ "name": "shared" }] }));
    let task = stand.run(Stand::request(&stand.register_whole(whole).await)).await;
    let stopped = stand.until_status(&task, "STOPPED").await;
    assert_eq!(part(&stopped, "other")["exitCode"], 9);
    assert_eq!(stopped["stopCode"], "EssentialContainerExited");
    stand.close().await;
}

#[tokio::test]
async fn a_container_is_asked_to_end_after_those_that_depend_on_it() {
    let Some(stand) = Stand::new(quick()).await else { return };
    // Each writes when it is asked; a room takes its time. Who reads it all at the end is the runner.
    let script = |name: &str, then: &str| {
        format!("trap 'echo {name} >>/order/said; {then}; exit 0' TERM; echo up; while :; do sleep 0.1; done")
    };
    let mounts = json!([{ "sourceVolume": "order", "containerPath": "/order" }]);
    let runner = with(patient("runner", &script("runner", "cat /order/said")), json!({ "mountPoints": mounts }));
    let depends = json!([{ "containerName": "runner", "condition": "START" }]);
    let room =
        with(patient("room", &script("room", "sleep 1")), json!({ "mountPoints": mounts, "dependsOn": depends }));
    let room = with(room, json!({ "essential": false }));
    let whole = with(definition(&[runner, room]), json!({ "volumes": [{ "name": "order" }] }));
    let task = stand.run(Stand::request(&stand.register_whole(whole).await)).await;
    for name in ["runner", "room"] {
        stand.until_written(&task, name, "up").await;
    }
    stand.stop(&task).await;
    stand.until_status(&task, "STOPPED").await;
    assert_eq!(stand.fake.output(&task, "runner").await, "up\nroom\nrunner\n");
    stand.close().await;
}

#[tokio::test]
async fn a_spot_interruption_asks_as_a_stop_does() {
    let Some(stand) = Stand::new(quick()).await else { return };
    let task = stand.run_containers(&[patient("main", POLITE)]).await;
    stand.until_written(&task, "main", "up").await;
    stand.fake.inject(Fault::SpotInterruption { task: task.clone() }).unwrap();
    let stopped = stand.until_status(&task, "STOPPED").await;
    assert_eq!(
        [&stopped["stopCode"], &stopped["stoppedReason"]],
        ["SpotInterruption", "Your Spot Task was interrupted."]
    );
    assert_eq!(part(&stopped, "main")["exitCode"], 9);
    stand.close().await;
}

#[tokio::test]
async fn of_a_lost_machine_nobody_tells_exit_codes() {
    let Some(stand) = Stand::new(quick()).await else { return };
    let task = stand.run_containers(&[patient("main", DEAF)]).await;
    stand.until_status(&task, "RUNNING").await;
    // Also while it is being stopped, and waits for who does not hear.
    stand.stop(&task).await;
    stand.fake.inject(Fault::HostLost { task: task.clone() }).unwrap();
    let stopped = stand.until_status(&task, "STOPPED").await;
    assert_eq!(part(&stopped, "main").get("exitCode"), None);
    // Why it was to stop is what was said first.
    assert_eq!(stopped["stopCode"], "UserInitiated");
    stand.close().await;
    let Some(stand) = Stand::new(quick()).await else { return };
    assert!(stand.fake.inject(Fault::HostLost { task: "nobody".into() }).is_err());
    stand.close().await;
}
