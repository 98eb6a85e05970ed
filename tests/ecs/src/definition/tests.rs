//! What definitions may be.

use super::Definition;
use serde_json::{Value, json};

/// One that Fargate takes, with what it knows.
fn taken() -> Value {
    json!({
        "family": "build-1_a",
        "networkMode": "awsvpc",
        "requiresCompatibilities": ["FARGATE"],
        "cpu": "512",
        "memory": "1 GB",
        "executionRoleArn": "arn:aws:iam::123456789012:role/pull",
        "ephemeralStorage": { "sizeInGiB": 21 },
        "runtimePlatform": { "cpuArchitecture": "X86_64" },
        "volumes": [{ "name": "workspace" }, { "name": "control", "host": {} }],
        "containerDefinitions": [
            {
                "name": "runner",
                "image": "runner:1",
                "stopTimeout": 120,
                "user": "10001:10001",
                "readonlyRootFilesystem": true,
                "linuxParameters": { "capabilities": { "drop": ["ALL"], "add": ["SYS_PTRACE"] }, "initProcessEnabled": true },
                "healthCheck": { "command": ["CMD", "true"], "interval": 5 },
                "logConfiguration": { "logDriver": "awslogs" },
            },
            {
                "name": "room",
                "image": "room:1",
                "essential": false,
                "dependsOn": [{ "containerName": "runner", "condition": "START" }],
                "mountPoints": [{ "sourceVolume": "workspace", "containerPath": "/workspace" }],
                "ulimits": [{ "name": "nofile", "softLimit": 1024, "hardLimit": 2048 }],
            },
        ],
    })
}

/// Reads `taken` with `value` at `at`; the refusal's message has to contain `why`, and there must be none if that is empty.
#[track_caller]
fn check(at: &str, value: Value, why: &str) {
    let mut body = taken();
    let (parent, name) = at.rsplit_once('/').expect("a pointer");
    let parent = body.pointer_mut(parent).expect("what it points at");
    match parent.as_array_mut() {
        Some(list) => list.push(value.clone()),
        None => parent[name] = value.clone(),
    }
    let said = Definition::read(&body).err().map(|refusal| refusal.message).unwrap_or_default();
    assert!(said.contains(why) && said.is_empty() == why.is_empty(), "{at} = {value}: {said}");
}

const RUNNER: &str = "/containerDefinitions/0/";
const ROOM: &str = "/containerDefinitions/1/";

#[test]
fn what_fargate_takes_is_taken() {
    check("/family", json!("other"), "");
    let plain = json!({ "family": "plain", "containerDefinitions": [{ "name": "a", "image": "b", "memory": 6 }] });
    assert!(Definition::read(&plain).is_ok());
}

#[test]
fn a_definition_is_refused_for_what_no_task_may_be() {
    check("/family", json!("a.b"), "family name");
    check("/family", json!("a".repeat(256)), "family name");
    check("/containerDefinitions", json!([]), "cannot be empty");
    check("/containerDefinitions/-", json!({ "name": "room", "image": "x" }), "unique");
    check(&format!("{RUNNER}essential"), json!(false), "essential");
    check(&format!("{ROOM}name"), json!("a b"), "container name");
    check("/volumes/-", json!({ "name": "workspace" }), "Volume names");
    check(&format!("{ROOM}mountPoints/-"), json!({ "sourceVolume": "lost", "containerPath": "/a" }), "unknown volume");
    check(&format!("{ROOM}ulimits/-"), json!({ "name": "files", "softLimit": 1, "hardLimit": 1 }), "ulimits");
    check(&format!("{ROOM}memory"), json!(5), "too small");
    check(&format!("{ROOM}memory"), json!(1025), "more than the task's");
    check(&format!("{ROOM}startTimeout"), json!(1), "startTimeout");
    check(&format!("{RUNNER}healthCheck/interval"), json!(4), "interval");
    check(&format!("{RUNNER}healthCheck/command"), json!(["true"]), "CMD");
    let many: Vec<_> = (0..11).map(|number| json!({ "name": format!("c{number}"), "image": "x" })).collect();
    check("/containerDefinitions", json!(many), "Too many");
    check("/containerDefinitions", json!(many[..10]), "");
}

#[test]
fn what_the_fake_does_not_know_is_not_passed_over() {
    check("/proxyConfiguration", json!({}), "proxyConfiguration");
    check(&format!("{ROOM}secrets"), json!([]), "secrets");
    check(&format!("{ROOM}linuxParameters"), json!({ "other": 1 }), "other");
    check(&format!("{ROOM}essential"), json!("yes"), "boolean");
}

#[test]
fn dependencies_are_known_can_be_met_and_lead_nowhere_back() {
    let depends = |name: &str, condition: &str| json!({ "containerName": name, "condition": condition });
    let at = format!("{ROOM}dependsOn/-");
    check(&at, depends("nobody", "START"), "no container");
    check(&at, depends("runner", "COMPLETE"), "essential");
    check(&at, depends("runner", "SUCCESS"), "essential");
    check(&at, depends("runner", "HEALTHY"), "");
    check(&at, depends("room", "START"), "circle");
    check(&format!("{RUNNER}dependsOn"), json!([depends("room", "START")]), "circle");
    check(&format!("{RUNNER}dependsOn"), json!([depends("room", "HEALTHY")]), "healthCheck");
}

#[test]
fn fargate_refuses_what_its_machines_do_not_do() {
    check("/networkMode", json!("host"), "awsvpc");
    check("/networkMode", json!("none"), "awsvpc");
    check("/cpu", json!("1024"), "No Fargate configuration");
    check("/cpu", Value::Null, "task level");
    check("/ephemeralStorage/sizeInGiB", json!(20), "ephemeralStorage");
    check("/ipcMode", json!("host"), "ipcMode");
    check("/volumes/-", json!({ "name": "bind", "host": { "sourcePath": "/etc" } }), "sourcePath");
    check("/volumes/-", json!({ "name": "docker", "dockerVolumeConfiguration": {} }), "dockerVolumeConfiguration");
    check(&format!("{ROOM}privileged"), json!(true), "privileged");
    check(&format!("{ROOM}dockerSecurityOptions"), json!(["no-new-privileges"]), "dockerSecurityOptions");
    check(&format!("{ROOM}extraHosts"), json!([]), "extraHosts");
    check(&format!("{ROOM}stopTimeout"), json!(121), "stopTimeout");
    check(&format!("{RUNNER}linuxParameters/capabilities/add"), json!(["NET_ADMIN"]), "SYS_PTRACE");
    for (name, value) in [("tmpfs", json!([{}])), ("devices", json!([{}])), ("sharedMemorySize", json!(64))] {
        check(&format!("{RUNNER}linuxParameters/{name}"), value, name);
    }
}

#[test]
fn elsewhere_than_on_fargate_more_is_taken() {
    let mut body = taken();
    body["requiresCompatibilities"] = json!(["EC2"]);
    body["containerDefinitions"][1]["dockerSecurityOptions"] = json!(["no-new-privileges"]);
    body["containerDefinitions"][1]["stopTimeout"] = json!(600);
    assert!(Definition::read(&body).is_ok());
    // Machines of one's own would do it; the fake does not pretend to.
    body["containerDefinitions"][1]["privileged"] = json!(true);
    assert!(Definition::read(&body).unwrap_err().message.contains("fake"));
}
