//! What calls are answered, whatever runs.

use crate::stand::{Stand, container, quick, with};
use fake_ecs::{Settings, Throttle};
use serde_json::{Value, json};

fn names(answer: &Value) -> Vec<&str> {
    answer["taskArns"].as_array().unwrap().iter().map(|arn| arn.as_str().unwrap()).collect()
}

#[tokio::test]
async fn a_client_token_makes_a_task_once() {
    let Some(stand) = Stand::new(quick()).await else { return };
    let definition = stand.register(&[container("main", "exit 0")]).await;
    let request = |token: &str| with(Stand::request(&definition), json!({ "clientToken": token, "startedBy": "me" }));
    let (first, again) = (stand.run(request("a")).await, stand.run(request("a")).await);
    assert_eq!(first, again);
    let other = stand.run(request("b")).await;
    assert_ne!(first, other);
    let error = stand.ask("RunTask", with(request("a"), json!({ "startedBy": "you" }))).await.unwrap().unwrap_err();
    assert_eq!([&error["__type"], &error["resourceIds"][0]], ["ConflictException", first.as_str()]);
    // In another cluster it is another request.
    let elsewhere = stand.run(with(request("a"), json!({ "cluster": "default" }))).await;
    assert!(elsewhere.contains("/default/"), "{elsewhere}");
    for task in [&first, &other] {
        stand.until_status(task, "STOPPED").await;
    }
    stand.fake.close().await.unwrap();
}

#[tokio::test]
async fn definitions_have_revisions_that_can_be_taken_back() {
    let Some(stand) = Stand::new(quick()).await else { return };
    let main = [container("main", "exit 0")];
    let (first, second) = (stand.register(&main).await, stand.register(&main).await);
    assert!(first.ends_with(":task-definition/tried:1") && second.ends_with("/tried:2"), "{first} {second}");
    let named = |name: &str| json!({ "taskDefinition": name });
    let latest = stand.call("DescribeTaskDefinition", named("tried")).await;
    assert_eq!(
        [&latest["taskDefinition"]["revision"], &latest["taskDefinition"]["status"]],
        [&json!(2), &json!("ACTIVE")]
    );
    assert_eq!(latest["taskDefinition"]["containerDefinitions"][0]["command"], json!(["exit 0"]));
    let gone = stand.call("DeregisterTaskDefinition", named("tried:2")).await;
    assert_eq!(gone["taskDefinition"]["status"], "INACTIVE");
    assert_eq!(stand.call("DescribeTaskDefinition", named("tried")).await["taskDefinition"]["revision"], 1);
    assert_eq!(stand.refused("RunTask", Stand::request(&second)).await, "ClientException");
    assert_eq!(stand.refused("DescribeTaskDefinition", named("other")).await, "ClientException");
    assert_eq!(stand.refused("DeregisterTaskDefinition", named("tried")).await, "ClientException");
    stand.close().await;
}

#[tokio::test]
async fn a_run_is_refused_for_what_it_must_not_say() {
    let Some(stand) = Stand::new(quick()).await else { return };
    let good = Stand::request(&stand.register(&[container("main", "exit 0")]).await);
    let long = |length: usize| json!({ "containerOverrides": [{ "name": "main", "command": ["x".repeat(length)] }] });
    for (said, kind) in [
        (json!({ "startedBy": "x".repeat(37) }), "InvalidParameterException"),
        (json!({ "startedBy": "a b" }), "InvalidParameterException"),
        (json!({ "clientToken": "x".repeat(65) }), "InvalidParameterException"),
        (json!({ "count": 11 }), "InvalidParameterException"),
        (json!({ "count": 0 }), "InvalidParameterException"),
        (json!({ "overrides": long(8192) }), "InvalidParameterException"),
        (json!({ "overrides": { "containerOverrides": [{ "name": "other" }] } }), "InvalidParameterException"),
        (json!({ "networkConfiguration": null }), "InvalidParameterException"),
        (json!({ "networkConfiguration": { "awsvpcConfiguration": { "subnets": [] } } }), "InvalidParameterException"),
        (json!({ "capacityProviderStrategy": [{ "capacityProvider": "FARGATE_SPOT" }] }), "InvalidParameterException"),
        (json!({ "enableExecuteCommand": true }), "InvalidParameterException"),
        (json!({ "cluster": "other" }), "ClusterNotFoundException"),
        (json!({ "taskDefinition": "other" }), "ClientException"),
        (json!({ "unheard": 1 }), "SerializationException"),
    ] {
        assert_eq!(stand.refused("RunTask", with(good.clone(), said.clone())).await, kind, "{said}");
    }
    let at_most = json!({ "startedBy": "x".repeat(36), "overrides": long(8100), "clientToken": "x".repeat(64) });
    let task = stand.run(with(good, at_most)).await;
    stand.until_status(&task, "STOPPED").await;
    stand.close().await;
}

#[tokio::test]
async fn other_calls_are_refused_too() {
    let Some(stand) = Stand::new(quick()).await else { return };
    let many: Vec<_> = (0..101).map(|number| number.to_string()).collect();
    let parameter = "InvalidParameterException";
    assert_eq!(stand.refused("DescribeTasks", json!({ "tasks": many })).await, parameter);
    assert_eq!(stand.call("DescribeTasks", json!({ "tasks": many[..100] })).await["failures"][99]["reason"], "MISSING");
    assert_eq!(stand.refused("DescribeTasks", json!({ "tasks": [] })).await, parameter);
    assert_eq!(stand.refused("StopTask", json!({ "task": "none" })).await, parameter);
    assert_eq!(stand.refused("ListTasks", json!({ "maxResults": 101 })).await, parameter);
    assert_eq!(stand.refused("ListTasks", json!({ "startedBy": "a", "family": "b" })).await, parameter);
    assert_eq!(stand.refused("CreateService", json!({})).await, "UnknownOperationException");
    stand.close().await;
}

#[tokio::test]
async fn tasks_are_listed_by_who_started_them_and_in_pages() {
    let Some(stand) = Stand::new(quick()).await else { return };
    let definition = stand.register(&[container("main", "trap 'exit 0' TERM; while :; do sleep 0.1; done")]).await;
    let mine = stand.run(with(Stand::request(&definition), json!({ "startedBy": "me" }))).await;
    let answer = stand.call("RunTask", with(Stand::request(&definition), json!({ "count": 2 }))).await;
    let other: Vec<_> =
        answer["tasks"].as_array().unwrap().iter().map(|task| task["taskArn"].as_str().unwrap()).collect();
    let list = |said: Value| stand.call("ListTasks", with(json!({ "cluster": "callboard" }), said));
    assert_eq!(names(&list(json!({ "startedBy": "me" })).await), [&mine]);
    assert_eq!(names(&list(json!({ "family": "tried" })).await).len(), 3);
    assert_eq!(names(&list(json!({ "family": "other" })).await).len(), 0);
    let first = list(json!({ "maxResults": 2 })).await;
    let rest = list(json!({ "maxResults": 2, "nextToken": first["nextToken"] })).await;
    assert_eq!([names(&first).len(), names(&rest).len()], [2, 1]);
    assert_eq!(rest.get("nextToken"), None);
    stand.stop(&mine).await;
    assert_eq!(names(&list(json!({ "startedBy": "me" })).await).len(), 0);
    assert_eq!(names(&list(json!({ "startedBy": "me", "desiredStatus": "STOPPED" })).await), [&mine]);
    for task in other {
        stand.stop(task).await;
        stand.until_status(task, "STOPPED").await;
    }
    stand.until_status(&mine, "STOPPED").await;
    stand.close().await;
}

#[tokio::test]
async fn too_many_calls_are_throttled_and_counted() {
    let throttle = Throttle { burst: 2.0, per_second: 0.001 };
    let settings = Settings { throttles: [("ListTasks".to_owned(), throttle)].into(), ..quick() };
    let Some(stand) = Stand::new(settings).await else { return };
    for _ in 0..2 {
        stand.call("ListTasks", json!({})).await;
    }
    assert_eq!(stand.refused("ListTasks", json!({})).await, "ThrottlingException");
    let calls = stand.fake.calls();
    assert_eq!(calls.iter().map(|call| call.answer.as_str()).collect::<Vec<_>>(), ["ok", "ok", "ThrottlingException"]);
    assert!(calls.is_sorted_by_key(|call| call.at_ms));
    stand.close().await;
}

#[tokio::test]
async fn what_was_put_into_definitions_and_overrides_can_be_searched() {
    let Some(stand) = Stand::new(quick()).await else { return };
    let definition = stand.register(&[container("main", "echo in-the-definition")]).await;
    let over = json!({ "containerOverrides": [{ "name": "main", "environment": [{ "name": "A", "value": "in-the-override" }] }] });
    let task = stand.run(with(Stand::request(&definition), json!({ "overrides": over }))).await;
    stand.until_status(&task, "STOPPED").await;
    let given = stand.fake.given();
    let of =
        |word: &str| given.iter().filter(|it| it.text.contains(word)).map(|it| it.action.as_str()).collect::<Vec<_>>();
    assert_eq!(of("in-the-definition"), ["RegisterTaskDefinition"]);
    assert_eq!(of("in-the-override"), ["RunTask"]);
    assert!(of("nowhere").is_empty());
    stand.close().await;
}

#[tokio::test]
async fn only_tasks_of_services_are_protected() {
    let settings = Settings { service_tasks: vec!["worker".into()], ..quick() };
    let Some(stand) = Stand::new(settings).await else { return };
    let task = stand.run_containers(&[container("main", "exit 0")]).await;
    let ask = json!({ "cluster": "callboard", "tasks": ["worker", task, "none"], "protectionEnabled": true });
    let answer = stand.call("UpdateTaskProtection", with(ask.clone(), json!({ "expiresInMinutes": 5 }))).await;
    assert_eq!(answer["protectedTasks"][0]["protectionEnabled"], true);
    assert!(answer["protectedTasks"][0]["expirationDate"].is_number());
    let reasons: Vec<_> = answer["failures"].as_array().unwrap().iter().map(|failure| &failure["reason"]).collect();
    assert_eq!(reasons, ["TASK_NOT_VALID", "MISSING"]);
    let of = json!({ "cluster": "callboard", "tasks": ["worker"] });
    assert_eq!(stand.call("GetTaskProtection", of.clone()).await["protectedTasks"][0]["protectionEnabled"], true);
    stand.call("UpdateTaskProtection", with(ask.clone(), json!({ "protectionEnabled": false }))).await;
    assert_eq!(stand.call("GetTaskProtection", of).await["protectedTasks"][0]["protectionEnabled"], false);
    let long = with(ask, json!({ "expiresInMinutes": 2881 }));
    assert_eq!(stand.refused("UpdateTaskProtection", long).await, "InvalidParameterException");
    stand.until_status(&task, "STOPPED").await;
    stand.close().await;
}

#[tokio::test]
async fn tags_are_shown_to_who_asks_for_them() {
    let Some(stand) = Stand::new(quick()).await else { return };
    let task = stand.run_containers(&[container("main", "exit 0")]).await;
    let tags = json!([{ "key": "build", "value": "1" }]);
    stand.call("TagResource", json!({ "resourceArn": task, "tags": tags })).await;
    let asked = json!({ "cluster": "callboard", "tasks": [task], "include": ["TAGS"] });
    assert_eq!(stand.call("DescribeTasks", asked).await["tasks"][0]["tags"], tags);
    assert_eq!(stand.describe(&task).await["tasks"][0]["tags"], json!([]));
    stand.until_status(&task, "STOPPED").await;
    stand.close().await;
}
