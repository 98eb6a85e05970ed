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
    let slow = Settings { provisioning_ms: 400, pulling_ms: 400, deprovisioning_ms: 400, ..quick() };
    let Some(stand) = Stand::new(slow).await else { return };
    let task = stand
        .run_containers(&[container("main", "trap 'sleep 1; exit 0' TERM; echo up; while :; do sleep 0.1; done")])
        .await;
    let first = stand.describe(&task).await;
    assert_eq!([&first["tasks"][0]["lastStatus"], &first["tasks"][0]["desiredStatus"]], ["PROVISIONING", "RUNNING"]);
    stand.until_status(&task, "PENDING").await;
    assert_eq!(part(&stand.until_status(&task, "RUNNING").await, "main")["lastStatus"], "RUNNING");
    stand.until_written(&task, "main", "up").await;
    stand.stop(&task).await;
    for status in ["STOPPING", "DEPROVISIONING", "STOPPED"] {
        assert_eq!(stand.until_status(&task, status).await["desiredStatus"], "STOPPED");
    }
    stand.close().await;
}

#[tokio::test]
async fn a_new_task_is_not_seen_for_a_while() {
    let Some(stand) = Stand::new(Settings { invisible_ms: 3000, ..quick() }).await else { return };
    let task = stand.run_containers(&[container("main", "exit 0")]).await;
    let found = stand.describe(&task).await;
    assert_eq!(
        [found["failures"][0]["reason"].as_str(), found["failures"][0]["arn"].as_str()],
        [Some("MISSING"), Some(&*task)]
    );
    assert_eq!(found["tasks"], json!([]));
    let stop = json!({ "cluster": "callboard", "task": task });
    assert_eq!(stand.refused("StopTask", stop).await, "InvalidParameterException");
    for wanted in ["RUNNING", "STOPPED"] {
        let list = json!({ "cluster": "callboard", "desiredStatus": wanted });
        assert_eq!(stand.call("ListTasks", list).await["taskArns"], json!([]));
    }
    stand.until_status(&task, "STOPPED").await;
    stand.close().await;
}

#[tokio::test]
async fn a_stopped_task_is_forgotten_after_a_while() {
    let Some(stand) = Stand::new(Settings { stopped_kept_ms: 500, ..quick() }).await else { return };
    let task = stand.run_containers(&[container("main", "exit 0")]).await;
    stand.until_status(&task, "STOPPED").await;
    stand.until(&task, serde_json::Value::is_null).await;
    assert_eq!(stand.describe(&task).await["failures"][0]["reason"], "MISSING");
    stand.close().await;
}
