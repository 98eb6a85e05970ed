//! What the SDK makes of our words, seen from the other end of the wire.

use super::*;
use crate::isolation::ecs::launch::Home;
use crate::isolation::ecs::settings::{Fit, Settings};
use crate::isolation::ecs::stub::job;
use aws_sdk_ecs::config::{Credentials, Region};
use axum::Router;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use serde_json::{Value, json};
use std::sync::{Arc, Mutex};

type Said = Arc<Mutex<Vec<(String, Value)>>>;

/// An ECS that answers everything with this, and keeps what it was asked.
async fn ecs(status: u16, answer: Value) -> (Sdk, Said) {
    let said = Said::default();
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let hear = move |State(said): State<Said>, headers: HeaderMap, body: String| {
        let target = headers["x-amz-target"].to_str().unwrap().to_owned();
        said.lock().unwrap().push((target, serde_json::from_str(&body).unwrap()));
        let answer = (StatusCode::from_u16(status).unwrap(), answer.to_string());
        async { answer }
    };
    let routes = Router::new().fallback(hear).with_state(Arc::clone(&said));
    tokio::spawn(async move { axum::serve(listener, routes).await.unwrap() });
    let https = aws_smithy_http_client::Builder::new().tls_provider(Provider::Rustls(CryptoMode::Ring)).build_https();
    let config = aws_config::defaults(BehaviorVersion::latest())
        .http_client(https)
        .region(Region::new("eu-central-1"))
        .credentials_provider(Credentials::new("key", "secret", None, None, "test"))
        .endpoint_url(url)
        .retry_config(RetryConfig::disabled())
        .timeout_config(timeouts())
        .load()
        .await;
    (Sdk::over(&config, "builds"), said)
}

fn asked(said: &Said) -> (String, Value) {
    let said = said.lock().unwrap();
    assert_eq!(said.len(), 1, "each call is made once");
    said[0].clone()
}

fn launch(fit: &Fit) -> Launch {
    Launch::of(fit, &Home::example(), &job(), 1, "arn:definition".into(), 1)
}

#[tokio::test]
async fn a_task_is_run_with_a_token_and_no_way_in() {
    let (sdk, said) = ecs(200, json!({ "tasks": [{ "taskArn": "arn:task/1" }], "failures": [] })).await;
    let launch = launch(&Fit::example());
    assert_eq!(sdk.run(&launch).await, Ok(Ran::Task("arn:task/1".into())));
    let (target, body) = asked(&said);
    assert_eq!(target, "AmazonEC2ContainerServiceV20141113.RunTask");
    assert_eq!((&body["clientToken"], &body["startedBy"]), (&json!(launch.client_token), &json!(launch.started_by)));
    assert_eq!((&body["enableExecuteCommand"], &body["launchType"]), (&json!(false), &json!("FARGATE")));
    assert_eq!(body.get("propagateTags"), None);
    let network = json!({ "subnets": ["subnet-1"], "securityGroups": ["sg-1"], "assignPublicIp": "DISABLED" });
    assert_eq!(body["networkConfiguration"]["awsvpcConfiguration"], network);
    let overrides = &body["overrides"]["containerOverrides"];
    assert_eq!((overrides.as_array().unwrap().len(), &overrides[0]["name"]), (1, &json!("runner")));
    assert_eq!(body["overrides"].as_object().unwrap().len(), 1, "neither a role nor a size of its own");
}

#[tokio::test]
async fn a_capacity_provider_stands_in_the_place_of_the_launch_type() {
    let failures = json!([{ "arn": "arn:instance/1", "reason": "RESOURCE:MEMORY" }]);
    let (sdk, said) = ecs(200, json!({ "tasks": [], "failures": failures })).await;
    let settings = Settings { capacity_provider: Some("FARGATE_SPOT".into()), ..Fit::example().settings };
    assert_eq!(sdk.run(&launch(&settings.fit().unwrap())).await, Ok(Ran::Failed("RESOURCE:MEMORY".into())));
    let (_, body) = asked(&said);
    assert_eq!(body.get("launchType"), None);
    let strategy = json!([{ "capacityProvider": "FARGATE_SPOT", "weight": 1, "base": 0 }]);
    assert_eq!(body["capacityProviderStrategy"], strategy);
}

#[tokio::test]
async fn a_definition_seals_each_container_and_has_no_role() {
    let arn = "arn:task-definition/x:1";
    let (sdk, said) = ecs(200, json!({ "taskDefinition": { "taskDefinitionArn": arn } })).await;
    assert_eq!(sdk.register(&Definition::of(&Fit::example(), &["rust:1"])).await, Ok(arn.into()));
    let (_, body) = asked(&said);
    assert_eq!((body.get("taskRoleArn"), &body["networkMode"]), (None, &json!("awsvpc")));
    assert_eq!((&body["cpu"], &body["memory"]), (&json!("1024"), &json!("4096")));
    assert_eq!(body["requiresCompatibilities"], json!(["FARGATE"]));
    let containers = body["containerDefinitions"].as_array().unwrap();
    assert_eq!(containers.len(), 3);
    for container in containers {
        assert_eq!(container["linuxParameters"]["capabilities"], json!({ "drop": ["ALL"] }), "{container}");
        let sealed = (&container["readonlyRootFilesystem"], &container["user"], container.get("privileged"));
        assert_eq!(sealed, (&json!(true), &json!("10001:10001"), None), "{container}");
        assert_eq!(container.get("environment"), None, "{container}");
    }
    assert_eq!(containers[1]["dependsOn"], json!([{ "containerName": "runner", "condition": "START" }]));
    assert_eq!(containers[1]["entryPoint"], json!(["/run/callboard/bin/shim"]));
    assert_eq!(containers[0].get("entryPoint"), None, "the image's own");
}

#[tokio::test]
async fn a_definition_that_is_not_there_is_no_error() {
    let (sdk, _) =
        ecs(400, json!({ "__type": "ClientException", "message": "Unable to describe task definition." })).await;
    assert_eq!(sdk.definition("callboard-x").await, Ok(None));
}

#[tokio::test]
async fn a_task_is_told_as_it_was_seen() {
    let task = json!({
        "taskArn": "arn:task/1", "lastStatus": "STOPPED", "stopCode": "SpotInterruption", "stoppedReason": "why", "startedBy": "b",
        "createdAt": 1.5, "executionStoppedAt": 61.5, "stoppedAt": 90,
        "containers": [{ "name": "runner", "exitCode": 137, "reason": "OutOfMemoryError: x" }, { "name": "step-1" }],
    });
    let failures = json!([{ "arn": "arn:task/2", "reason": "MISSING" }, { "arn": "arn:task/3", "reason": "INTERNAL" }]);
    let (sdk, _) = ecs(200, json!({ "tasks": [task], "failures": failures })).await;
    let described = sdk.describe(&["arn:task/1".into(), "arn:task/2".into()]).await.unwrap();
    assert_eq!(described.missing, ["arn:task/2"]);
    let seen = &described.tasks[0];
    assert_eq!((seen.created_at_ms, seen.ended_at_ms), (Some(1500), Some(61_500)));
    assert_eq!(
        (seen.stop_code.as_deref(), seen.room("runner").unwrap().exit_code),
        (Some("SpotInterruption"), Some(137))
    );
}

#[tokio::test]
async fn a_refusal_is_known_from_a_throttle() {
    let refused = json!({ "__type": "ClusterNotFoundException", "message": "Cluster not found." });
    let (sdk, _) = ecs(400, refused).await;
    assert!(matches!(sdk.list(None).await, Err(Trouble::Refused(why)) if why.contains("Cluster not found.")));
    let (sdk, said) = ecs(400, json!({ "__type": "ThrottlingException", "message": "Rate exceeded" })).await;
    assert!(matches!(sdk.stop("arn:task/1", "deadline").await, Err(Trouble::Throttled(_))));
    assert_eq!(asked(&said).1["reason"], "deadline");
}

#[test]
fn what_passes_is_asked_for_again() {
    let of = |status, code: &str, message: &str| std::mem::discriminant(&meaning(status, code, message));
    let (throttled, unanswered) = (Trouble::Throttled(String::new()), Trouble::Unanswered(String::new()));
    for (code, message) in [
        ("ThrottlingException", "Rate exceeded"),
        ("ClientException", "Tasks provisioning capacity limit exceeded."),
        ("ClientException", "You've reached the limit on the number of vCPUs you can run concurrently"),
        ("ClientException", "Capacity is unavailable at this time."),
    ] {
        assert_eq!(of(400, code, message), std::mem::discriminant(&throttled), "{code} {message}");
    }
    assert_eq!(of(500, "ServerException", ""), std::mem::discriminant(&unanswered));
    assert_eq!(of(400, "ExpiredTokenException", ""), std::mem::discriminant(&unanswered));
    assert_eq!(of(400, "AccessDeniedException", "no"), std::mem::discriminant(&Trouble::Refused(String::new())));
}
