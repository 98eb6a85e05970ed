//! A task from RunTask to STOPPED.

use crate::stand::{Stand, container, part, quick, with};
use fake_ecs::Settings;
use serde_json::json;

#[tokio::test]
async fn a_task_runs_and_tells_how_it_ended() {
    let Some(stand) = Stand::new(quick()).await else { return };
    let aside = with(container("aside", "exit 3"), json!({ "essential": false }));
    let task = stand.run_containers(&[container("main", "sleep 1; echo done; exit 7"), aside]).await;
    let stopped = stand.until_status(&task, "STOPPED").await;
    assert_eq!([&part(&stopped, "main")["exitCode"], &part(&stopped, "aside")["exitCode"]], [7, 3]);
    assert_eq!(part(&stopped, "main")["lastStatus"], "STOPPED");
    assert_eq!([&stopped["stopCode"], &stopped["desiredStatus"]], ["EssentialContainerExited", "STOPPED"]);
    assert_eq!(stopped["stoppedReason"], "Essential container in task exited");
    assert_eq!(stand.fake.output(&task, "main").await, "done\n");
    stand.close().await;
}

#[tokio::test]
async fn its_instants_are_in_order_and_have_fractions() {
    let Some(stand) = Stand::new(quick()).await else { return };
    let task = stand.run_containers(&[container("main", "sleep 1")]).await;
    let stopped = stand.until_status(&task, "STOPPED").await;
    let names =
        ["createdAt", "pullStartedAt", "pullStoppedAt", "startedAt", "stoppingAt", "executionStoppedAt", "stoppedAt"];
    let instants: Vec<_> =
        names.iter().map(|name| stopped[*name].as_f64().unwrap_or_else(|| panic!("{name}"))).collect();
    assert!(instants.is_sorted(), "{instants:?}");
    assert!(instants[0] > 1e9 && instants[0] < 1e10, "seconds: {instants:?}");
    assert!(instants.iter().any(|instant| instant.fract() != 0.0), "{instants:?}");
    stand.close().await;
}

#[tokio::test]
async fn it_goes_through_every_state() {
    let Some(stand) = Stand::new(quick()).await else { return };
    let request = Stand::request(&stand.register(&[container("main", "sleep 1")]).await);
    let begun = stand.call("RunTask", request).await;
    assert_eq!([&begun["tasks"][0]["lastStatus"], &begun["tasks"][0]["desiredStatus"]], ["PROVISIONING", "RUNNING"]);
    let task = begun["tasks"][0]["taskArn"].as_str().unwrap();
    let stopped = stand.until_status(task, "STOPPED").await;
    assert_eq!(stopped["desiredStatus"], "STOPPED");
    let states = ["PROVISIONING", "PENDING", "RUNNING", "STOPPING", "DEPROVISIONING", "STOPPED"];
    assert_eq!(stand.fake.states(task), states);
    stand.close().await;
}

#[tokio::test]
async fn a_new_task_is_not_seen_for_a_while() {
    let Some(stand) = Stand::new(Settings { invisible_ms: u64::MAX, ..quick() }).await else { return };
    let task = stand.run_containers(&[container("main", "exit 0")]).await;
    let found = stand.describe(&task).await;
    assert_eq!(found["failures"][0], json!({ "arn": task, "reason": "MISSING" }));
    assert_eq!(found["tasks"], json!([]));
    let stop = json!({ "cluster": "callboard", "task": task });
    assert_eq!(stand.refused("StopTask", stop).await, "InvalidParameterException");
    for wanted in ["RUNNING", "STOPPED"] {
        let list = json!({ "cluster": "callboard", "desiredStatus": wanted });
        assert_eq!(stand.call("ListTasks", list).await["taskArns"], json!([]));
    }
    stand.fake.change(|settings| settings.invisible_ms = 0);
    stand.until_status(&task, "STOPPED").await;
    stand.close().await;
}

#[tokio::test]
async fn a_stopped_task_is_forgotten_after_a_while() {
    let Some(stand) = Stand::new(quick()).await else { return };
    let task = stand.run_containers(&[container("main", "exit 0")]).await;
    stand.until_status(&task, "STOPPED").await;
    stand.fake.change(|settings| settings.stopped_kept_ms = 0);
    assert_eq!(stand.describe(&task).await["failures"][0]["reason"], "MISSING");
    stand.close().await;
}

#[tokio::test]
async fn many_run_at_once_and_leave_nothing() {
    let Some(stand) = Stand::new(quick()).await else { return };
    let after = json!({ "essential": false, "dependsOn": [{ "containerName": "runner", "condition": "START" }] });
    let rooms = (0..9).map(|number| with(container(&format!("room-{number}"), "sleep 1"), after.clone()));
    let containers: Vec<_> = std::iter::once(container("runner", "sleep 3")).chain(rooms).collect();
    let request = with(Stand::request(&stand.register(&containers).await), json!({ "count": 3 }));
    let answer = stand.call("RunTask", request).await;
    for task in answer["tasks"].as_array().unwrap() {
        let stopped = stand.until_status(task["taskArn"].as_str().unwrap(), "STOPPED").await;
        assert_eq!(stopped["containers"].as_array().unwrap().len(), 10);
        assert_eq!(part(&stopped, "runner")["exitCode"], 0, "{stopped}");
    }
    stand.close().await;
}
