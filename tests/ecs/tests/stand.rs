//! A fake with a client of its own.

use crate::skipped::skip;
use fake_ecs::{Fake, Settings, serve};
use serde_json::{Value, json};
use std::path::PathBuf;
use std::time::Duration;

pub(crate) const IMAGE: &str = "callboard-test:busybox";
/// How long anything may take, on a machine that is busy.
const PATIENCE: Duration = Duration::from_secs(90);

pub(crate) struct Stand {
    pub(crate) fake: Fake,
    http: reqwest::Client,
}

/// The daemon's socket; without one the calling test is skipped.
pub(crate) fn docker() -> Option<PathBuf> {
    let socket = std::env::var_os("CALLBOARD_TEST_DOCKER").map(PathBuf::from);
    if socket.is_none() {
        let why = std::env::var_os("CALLBOARD_TEST_DOCKER_WHY").and_then(|why| why.into_string().ok());
        skip("docker", &why.unwrap_or_else(|| "run the tests by ./tests/run ecs, or by ./tests/docker".into()));
    }
    socket
}

/// Nothing takes longer than it must, and all is seen at once.
pub(crate) fn quick() -> Settings {
    Settings { invisible_ms: 0, provisioning_ms: 0, pulling_ms: 0, deprovisioning_ms: 0, ..Settings::default() }
}

pub(crate) fn http() -> reqwest::Client {
    rustls::crypto::ring::default_provider().install_default().ok();
    reqwest::Client::builder().no_proxy().tls_certs_only([]).timeout(PATIENCE).build().unwrap()
}

/// A call in AWS JSON 1.1: its result, or the error's body. `None` if no answer came.
pub(crate) async fn call(
    http: &reqwest::Client,
    url: &str,
    action: &str,
    body: &Value,
) -> Option<Result<Value, Value>> {
    let request = http
        .post(url)
        .header("content-type", "application/x-amz-json-1.1")
        .header("x-amz-target", format!("AmazonEC2ContainerServiceV20141113.{action}"))
        // Which service it is for is in the signature, which is what moto goes by.
        .header(
            "authorization",
            "AWS4-HMAC-SHA256 Credential=test/20260101/us-east-1/ecs/aws4_request, SignedHeaders=host, Signature=0",
        )
        .body(body.to_string());
    let response = request.send().await.ok()?;
    let is_right = response.status().is_success();
    let bytes = response.bytes().await.ok()?;
    let body = serde_json::from_slice(&bytes).unwrap_or_else(|_| json!(String::from_utf8_lossy(&bytes)));
    Some(if is_right { Ok(body) } else { Err(body) })
}

/// A container of busybox that runs a script.
pub(crate) fn container(name: &str, script: &str) -> Value {
    json!({ "name": name, "image": IMAGE, "entryPoint": ["/bin/sh", "-c"], "command": [script], "stopTimeout": 2 })
}

/// A definition for Fargate, of these containers.
pub(crate) fn definition(containers: &[Value]) -> Value {
    json!({
        "family": "tried",
        "networkMode": "awsvpc",
        "requiresCompatibilities": ["FARGATE"],
        "cpu": "256",
        "memory": "512",
        "containerDefinitions": containers,
    })
}

/// `base` with the fields of `more`.
pub(crate) fn with(mut base: Value, more: Value) -> Value {
    for (name, value) in more.as_object().unwrap() {
        base[name] = value.clone();
    }
    base
}

impl Stand {
    /// A fake, or the calling test is skipped.
    pub(crate) async fn new(settings: Settings) -> Option<Self> {
        let docker = docker()?;
        Some(Self { fake: serve(&docker, settings).await.unwrap(), http: http() })
    }

    pub(crate) async fn ask(&self, action: &str, body: Value) -> Option<Result<Value, Value>> {
        call(&self.http, &self.fake.url(), action, &body).await
    }

    pub(crate) async fn call(&self, action: &str, body: Value) -> Value {
        self.ask(action, body).await.expect("an answer").unwrap()
    }

    /// The type of the error that a call is answered with.
    pub(crate) async fn refused(&self, action: &str, body: Value) -> String {
        let error = self.ask(action, body).await.expect("an answer").unwrap_err();
        error["__type"].as_str().unwrap().to_owned()
    }

    pub(crate) async fn register(&self, containers: &[Value]) -> String {
        self.register_whole(definition(containers)).await
    }

    pub(crate) async fn register_whole(&self, definition: Value) -> String {
        let registered = self.call("RegisterTaskDefinition", definition).await;
        registered["taskDefinition"]["taskDefinitionArn"].as_str().unwrap().to_owned()
    }

    /// A RunTask of a definition.
    pub(crate) fn request(definition: &str) -> Value {
        json!({
            "cluster": "callboard",
            "taskDefinition": definition,
            "launchType": "FARGATE",
            "networkConfiguration": { "awsvpcConfiguration": { "subnets": ["subnet-1"] } },
        })
    }

    /// Runs a task; its ARN.
    pub(crate) async fn run(&self, request: Value) -> String {
        let answer = self.call("RunTask", request).await;
        answer["tasks"][0]["taskArn"].as_str().unwrap_or_else(|| panic!("no task: {answer}")).to_owned()
    }

    /// Registers containers and runs them as one task.
    pub(crate) async fn run_containers(&self, containers: &[Value]) -> String {
        self.run(Self::request(&self.register(containers).await)).await
    }

    pub(crate) async fn describe(&self, task: &str) -> Value {
        self.call("DescribeTasks", json!({ "cluster": "callboard", "tasks": [task] })).await
    }

    /// The task, or null if it is not there, once it is as `is_it` wants it.
    pub(crate) async fn until(&self, task: &str, is_it: impl Fn(&Value) -> bool) -> Value {
        let waited = async {
            loop {
                let found = self.describe(task).await.pointer("/tasks/0").cloned().unwrap_or_default();
                if is_it(&found) {
                    return found;
                }
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        };
        match tokio::time::timeout(PATIENCE, waited).await {
            Ok(found) => found,
            Err(_) => panic!("it does not come to that: {}", self.describe(task).await),
        }
    }

    pub(crate) async fn until_status(&self, task: &str, status: &str) -> Value {
        self.until(task, |task| {
            let now = &task["lastStatus"];
            assert!(now == status || now != "STOPPED", "it stopped: {task}");
            now == status
        })
        .await
    }

    /// Waits until a container has written a word: it is as far as that.
    pub(crate) async fn until_written(&self, task: &str, container: &str, word: &str) {
        let waited = async {
            while !self.fake.output(task, container).await.contains(word) {
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        };
        assert!(tokio::time::timeout(PATIENCE, waited).await.is_ok(), "{container} does not write {word}");
    }

    pub(crate) async fn stop(&self, task: &str) {
        self.call("StopTask", json!({ "cluster": "callboard", "task": task, "reason": "told to" })).await;
    }

    /// Ends it; nothing may be left of tasks that have stopped by themselves.
    pub(crate) async fn close(self) {
        let left = self.fake.left().await.unwrap();
        assert_eq!(left, fake_ecs::Left::default(), "left behind");
        self.fake.close().await.unwrap();
    }
}

/// A container of a task, by its name.
pub(crate) fn part<'a>(task: &'a Value, name: &str) -> &'a Value {
    task["containers"].as_array().unwrap().iter().find(|part| part["name"] == name).unwrap()
}
