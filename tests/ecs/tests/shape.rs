//! The same calls made to moto's server, and all answers held beside the SDK's own model of them: a wrong shape would else be found on
//! an account only.

use crate::skipped::skip;
use crate::stand::{Stand, call, container, http, quick, with};
use serde_json::{Value, json};
use std::net::TcpListener;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

/// Prints the model of ECS that the Python SDK has.
const MODEL: &str = "import botocore.loaders, json; print(json.dumps(botocore.loaders.Loader().load_service_model('ecs', 'service-2')))";

fn python() -> String {
    std::env::var_os("CALLBOARD_PYTHON").and_then(|name| name.into_string().ok()).unwrap_or_else(|| "python3".into())
}

/// Calls with their bodies, as a worker makes them, and the answers; a task's ARN is that of the one that was run.
async fn answers(url: &str, subnet: &str) -> Vec<(&'static str, Value)> {
    let http = http();
    let ask = async |action, body| match call(&http, url, action, &body).await {
        Some(Ok(answer)) => (action, answer),
        other => panic!("{action} at {url}: {other:?}"),
    };
    let room = with(
        container("room", "sleep 1"),
        json!({ "memory": 64, "essential": false, "mountPoints": [{ "sourceVolume": "shared", "containerPath": "/shared" }] }),
    );
    // moto counts a container's own memory, and wants to be told of security groups.
    let main = with(container("main", "exit 0"), json!({ "memory": 64 }));
    let definition = with(crate::stand::definition(&[main, room]), json!({ "volumes": [{ "name": "shared" }] }));
    let registered = ask("RegisterTaskDefinition", definition).await;
    let arn = registered.1["taskDefinition"]["taskDefinitionArn"].clone();
    let described = ask("DescribeTaskDefinition", json!({ "taskDefinition": "tried" })).await;
    let request = with(
        Stand::request(arn.as_str().unwrap()),
        json!({
            "networkConfiguration": { "awsvpcConfiguration": { "subnets": [subnet], "securityGroups": [] } },
            "count": 1,
            "clientToken": "2b1f0a9e-0000-4000-8000-000000000001",
            "startedBy": "2b1f0a9e-0000-4000-8000-000000000002",
            "enableExecuteCommand": false,
            "overrides": { "containerOverrides": [{ "name": "main", "environment": [{ "name": "A", "value": "b" }] }] },
        }),
    );
    let run = ask("RunTask", request).await;
    let task = run.1["tasks"][0]["taskArn"].clone();
    let of = json!({ "cluster": "callboard", "tasks": [task] });
    let running = ask("DescribeTasks", of.clone()).await;
    let listed =
        ask("ListTasks", json!({ "cluster": "callboard", "startedBy": "2b1f0a9e-0000-4000-8000-000000000002" })).await;
    let stopped = ask("StopTask", json!({ "cluster": "callboard", "task": task, "reason": "told to" })).await;
    tokio::time::sleep(Duration::from_secs(3)).await;
    let ended = ask("DescribeTasks", of).await;
    let gone = ask("DeregisterTaskDefinition", json!({ "taskDefinition": arn })).await;
    vec![registered, described, run, running, listed, stopped, ended, gone]
}

struct Moto(Child);

impl Drop for Moto {
    fn drop(&mut self) {
        self.0.kill().ok();
        self.0.wait().ok();
    }
}

/// moto's server, or `None` if it does not start.
async fn moto() -> Option<(Moto, String)> {
    let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let args = ["-m", "moto.server", "-H", "127.0.0.1", "-p", &port.to_string()].map(str::to_owned);
    let mut server = Moto(Command::new(python()).args(args).stdout(Stdio::null()).stderr(Stdio::null()).spawn().ok()?);
    let url = format!("http://127.0.0.1:{port}");
    let client = http();
    for _ in 0..300 {
        if server.0.try_wait().unwrap().is_some() {
            return None;
        }
        let cluster = json!({ "clusterName": "callboard" });
        if matches!(call(&client, &url, "CreateCluster", &cluster).await, Some(Ok(_))) {
            return Some((server, url));
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    None
}

/// A subnet that moto has: it makes an interface there.
async fn subnet(url: &str) -> String {
    let request = http()
        .post(url)
        .header("content-type", "application/x-www-form-urlencoded")
        .header(
            "authorization",
            "AWS4-HMAC-SHA256 Credential=test/20260101/us-east-1/ec2/aws4_request, SignedHeaders=host, Signature=0",
        )
        .body("Action=DescribeSubnets&Version=2016-11-15");
    let text = request.send().await.unwrap().text().await.unwrap();
    let found = text.split("<subnetId>").nth(1).and_then(|rest| rest.split('<').next());
    found.unwrap_or_else(|| panic!("moto has no subnet: {text}")).to_owned()
}

fn kind(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "boolean",
        Value::Number(_) => "number",
        Value::String(_) => "string",
        Value::Array(_) => "list",
        Value::Object(_) => "structure",
    }
}

/// Collects where both have something, and not of one kind.
fn compare(at: &str, ours: &Value, theirs: &Value, wrong: &mut Vec<String>) {
    match (ours, theirs) {
        (Value::Object(ours), Value::Object(theirs)) => {
            for (name, value) in ours {
                if let Some(other) = theirs.get(name) {
                    compare(&format!("{at}.{name}"), value, other, wrong);
                }
            }
        }
        (Value::Array(ours), Value::Array(theirs)) => {
            if let (Some(value), Some(other)) = (ours.first(), theirs.first()) {
                compare(&format!("{at}[0]"), value, other, wrong);
            }
        }
        // moto says null where AWS leaves a field out.
        (_, Value::Null) => {}
        (ours, theirs) if kind(ours) == kind(theirs) => {}
        (ours, theirs) => wrong.push(format!("{at}: {} and not {}", kind(ours), kind(theirs))),
    }
}

/// Collects what the shape `name` of the model does not have, or has of another kind.
fn check(model: &Value, name: &Value, at: &str, value: &Value, wrong: &mut Vec<String>) {
    let shape = &model["shapes"][name.as_str().unwrap_or_default()];
    let is_right = match (shape["type"].as_str().unwrap_or("nothing"), value) {
        ("structure", Value::Object(fields)) => {
            for (field, value) in fields {
                check(model, &shape["members"][field]["shape"], &format!("{at}.{field}"), value, wrong);
            }
            true
        }
        ("list", Value::Array(items)) => {
            for item in items {
                check(model, &shape["member"]["shape"], &format!("{at}[]"), item, wrong);
            }
            true
        }
        ("string", Value::String(word)) => {
            shape["enum"].as_array().is_none_or(|words| words.iter().any(|known| known.as_str() == Some(word)))
        }
        (kind, Value::Number(number)) => {
            kind == "timestamp" || kind == "double" || !number.is_f64() && ["integer", "long"].contains(&kind)
        }
        ("boolean", Value::Bool(_)) => true,
        _ => false,
    };
    if !is_right {
        wrong.push(format!("{at}: {value} is no {name}"));
    }
}

#[tokio::test]
async fn the_calls_have_the_shapes_that_motos_server_takes_and_answers() {
    let Some(stand) = Stand::new(quick()).await else { return };
    let Some((_moto, url)) = moto().await else {
        skip("moto", "python3 -m moto.server does not start; pip install 'moto[ecs,server]', or set CALLBOARD_PYTHON");
        return stand.close().await;
    };
    let (ours, theirs) = (answers(&stand.fake.url(), "subnet-1").await, answers(&url, &subnet(&url).await).await);
    let mut wrong = Vec::new();
    for ((action, ours), (_, theirs)) in ours.iter().zip(&theirs) {
        compare(action, ours, theirs, &mut wrong);
    }
    // There moto has numbers, and the SDK's model strings.
    wrong.retain(|what| !(what.contains(".containers[0].cpu:") || what.contains(".containers[0].memory:")));
    assert_eq!(wrong, Vec::<String>::new());
    stand.fake.close().await.unwrap();
}

#[tokio::test]
async fn the_answers_are_those_of_the_sdks_model() {
    let Some(stand) = Stand::new(quick()).await else { return };
    let printed = Command::new(python()).args(["-c", MODEL]).output().ok();
    let Some(model) = printed.and_then(|printed| serde_json::from_slice::<Value>(&printed.stdout).ok()) else {
        skip(
            "botocore",
            "python3 has no botocore, which holds the model of ECS; pip install botocore, or set CALLBOARD_PYTHON",
        );
        return stand.close().await;
    };
    let mut wrong = Vec::new();
    for (action, answer) in answers(&stand.fake.url(), "subnet-1").await {
        check(&model, &model["operations"][action]["output"]["shape"], action, &answer, &mut wrong);
    }
    assert_eq!(wrong, Vec::<String>::new());
    stand.fake.close().await.unwrap();
}
