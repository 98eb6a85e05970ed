//! What goes wrong on request.

use crate::stand::{IMAGE, Stand, container, part, quick, with};
use fake_ecs::Fault;
use serde_json::{Value, json};

#[tokio::test]
async fn an_image_that_can_not_be_pulled_ends_the_task_before_it_runs() {
    let Some(stand) = Stand::new(quick()).await else { return };
    let fails = async |containers: &[Value], name: &str| {
        let task = stand.run_containers(containers).await;
        let stopped = stand.until_status(&task, "STOPPED").await;
        assert_eq!(stopped["stopCode"], "TaskFailedToStart");
        for reason in [&stopped["stoppedReason"], &part(&stopped, name)["reason"]] {
            assert!(reason.as_str().unwrap().starts_with("CannotPullContainerError: "), "{stopped}");
        }
        assert_eq!([part(&stopped, "main").get("exitCode"), stopped.get("startedAt")], [None, None]);
    };
    let absent = json!({ "image": "registry.invalid/none:1", "essential": false });
    fails(&[container("main", "exit 0"), with(container("aside", "exit 0"), absent)], "aside").await;
    stand.fake.inject(Fault::Unpullable { image: IMAGE.into(), times: 1 }).unwrap();
    fails(&[container("main", "exit 0")], "main").await;
    let task = stand.run_containers(&[container("main", "exit 0")]).await;
    assert_eq!(part(&stand.until_status(&task, "STOPPED").await, "main")["exitCode"], 0);
    stand.close().await;
}

#[tokio::test]
async fn a_task_that_is_not_placed_is_a_failure_and_no_error() {
    let Some(stand) = Stand::new(quick()).await else { return };
    let request = Stand::request(&stand.register(&[container("main", "exit 0")]).await);
    let request = with(request, json!({ "clientToken": "once" }));
    stand.fake.inject(Fault::NotPlaced { reason: "RESOURCE:MEMORY".into(), times: 1 }).unwrap();
    let answer = stand.call("RunTask", request.clone()).await;
    assert_eq!([&answer["tasks"], &answer["failures"][0]["reason"]], [&json!([]), &json!("RESOURCE:MEMORY")]);
    let task = stand.run(request).await;
    stand.until_status(&task, "STOPPED").await;
    stand.close().await;
}

#[tokio::test]
async fn a_lost_answer_was_a_call_all_the_same() {
    let Some(stand) = Stand::new(quick()).await else { return };
    let request = Stand::request(&stand.register(&[container("main", "exit 0")]).await);
    let request = with(request, json!({ "clientToken": "once" }));
    stand.fake.inject(Fault::LostAnswer { action: "RunTask".into(), times: 1 }).unwrap();
    assert_eq!(stand.ask("RunTask", request.clone()).await, None);
    let task = stand.run(request).await;
    stand.until_status(&task, "STOPPED").await;
    let all = stand.call("ListTasks", json!({ "cluster": "callboard", "desiredStatus": "STOPPED" })).await;
    assert_eq!(all["taskArns"], json!([task]));
    let answers: Vec<_> =
        stand.fake.calls().into_iter().filter(|call| call.action == "RunTask").map(|call| call.answer).collect();
    assert_eq!(answers, ["lost", "ok"]);
    stand.close().await;
}

#[tokio::test]
async fn errors_come_as_often_as_they_were_told_to() {
    let Some(stand) = Stand::new(quick()).await else { return };
    let action = || "ListTasks".to_owned();
    stand.fake.inject(Fault::ServerError { action: action(), times: 2 }).unwrap();
    stand.fake.inject(Fault::Throttled { action: action(), times: 1 }).unwrap();
    let mut kinds = Vec::new();
    for _ in 0..4 {
        let answer = stand.ask("ListTasks", json!({})).await.unwrap();
        kinds.push(answer.err().map_or(Value::Null, |error| error["__type"].clone()));
    }
    assert_eq!(kinds, [json!("ServerException"), json!("ServerException"), json!("ThrottlingException"), Value::Null]);
    stand.close().await;
}

#[tokio::test]
async fn faults_come_over_http_too() {
    let Some(stand) = Stand::new(quick()).await else { return };
    let url = format!("{}/_faults", stand.fake.url());
    let told = json!({ "kind": "server_error", "action": "ListTasks", "times": 1 });
    let post =
        |body: Value| crate::stand::http().post(&url).header("content-type", "application/json").body(body.to_string());
    assert_eq!(post(told).send().await.unwrap().status(), 204);
    assert_eq!(stand.refused("ListTasks", json!({})).await, "ServerException");
    assert_eq!(post(json!({ "kind": "host_lost", "task": "nobody" })).send().await.unwrap().status(), 404);
    stand.close().await;
}
