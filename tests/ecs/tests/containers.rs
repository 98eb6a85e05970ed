//! What a container is and may.

use crate::stand::{Stand, container, part, quick, with};
use fake_ecs::{Network, Settings};
use serde_json::{Value, json};
use std::io::{Read as _, Write as _};
use std::net::TcpListener;

/// What one container wrote, of a task that is run with `overrides`.
async fn output(stand: &Stand, main: Value, overrides: Value) -> String {
    let request = with(Stand::request(&stand.register(&[main]).await), json!({ "overrides": overrides }));
    let task = stand.run(request).await;
    stand.until_status(&task, "STOPPED").await;
    stand.fake.output(&task, "main").await
}

#[tokio::test]
async fn it_is_as_its_definition_says() {
    let Some(stand) = Stand::new(quick()).await else { return };
    let script = "id -u; id -g; pwd; touch /not 2>/dev/null || echo read-only; grep CapEff /proc/self/status; ulimit -n; grep processes /proc/self/limits; cat /proc/1/comm";
    let said = json!({
        "user": "10001:10002",
        "workingDirectory": "/usr",
        "readonlyRootFilesystem": true,
        "linuxParameters": { "capabilities": { "drop": ["ALL"] }, "initProcessEnabled": true },
        "ulimits": [{ "name": "nproc", "softLimit": 100, "hardLimit": 200 }],
    });
    let written = output(&stand, with(container("main", script), said), json!({})).await;
    let lines: Vec<_> = written.lines().collect();
    assert_eq!(&lines[..4], ["10001", "10002", "/usr", "read-only"]);
    assert_eq!(lines[4].split_whitespace().last(), Some("0000000000000000"));
    assert!(lines[5].parse::<u32>().unwrap() <= 65_535, "{written}");
    assert_eq!(lines[6].split_whitespace().skip(2).take(2).collect::<Vec<_>>(), ["100", "200"]);
    assert!(lines[7].contains("init"), "{written}");
    stand.close().await;
}

#[tokio::test]
async fn an_override_adds_variables_and_replaces_them_and_the_command() {
    let Some(stand) = Stand::new(quick()).await else { return };
    let variables = |pairs: &[(&str, &str)]| -> Value {
        pairs.iter().map(|(name, value)| json!({ "name": name, "value": value })).collect()
    };
    let main = with(container("main", "exit 1"), json!({ "environment": variables(&[("KEPT", "a"), ("GIVEN", "b")]) }));
    let over = json!({
        "name": "main",
        "command": ["echo $KEPT $GIVEN $ADDED $AWS_EXECUTION_ENV ${AWS_CONTAINER_CREDENTIALS_RELATIVE_URI-none}"],
        "environment": variables(&[("GIVEN", "c"), ("ADDED", "d")]),
    });
    let written = output(&stand, main, json!({ "containerOverrides": [over] })).await;
    assert_eq!(written, "a c d AWS_ECS_FARGATE none\n");
    stand.close().await;
}

#[tokio::test]
async fn one_that_takes_too_much_memory_is_killed_and_says_so() {
    let Some(stand) = Stand::new(quick()).await else { return };
    // A line without an end is held in memory.
    let main = with(container("main", "exec sort /dev/zero"), json!({ "memory": 32 }));
    let task = stand.run_containers(&[main]).await;
    let stopped = stand.until_status(&task, "STOPPED").await;
    let main = part(&stopped, "main");
    assert_eq!(main["exitCode"], 137, "{stopped}");
    assert_eq!(main["reason"], "OutOfMemoryError: Container killed due to memory usage");
    assert_eq!(stopped["stopCode"], "EssentialContainerExited");
    stand.close().await;
}

#[tokio::test]
async fn one_that_can_not_start_says_why() {
    let Some(stand) = Stand::new(quick()).await else { return };
    let broken = with(container("broken", ""), json!({ "entryPoint": ["/no/such/program"], "essential": false }));
    let task = stand.run_containers(&[container("main", "sleep 1"), broken.clone()]).await;
    let stopped = stand.until_status(&task, "STOPPED").await;
    assert_eq!(stopped["stopCode"], "EssentialContainerExited");
    let found = part(&stopped, "broken");
    assert!(found["reason"].as_str().unwrap().starts_with("CannotStartContainerError: "), "{stopped}");
    assert_eq!(found.get("exitCode"), None);
    let task = stand.run_containers(&[with(broken, json!({ "essential": true }))]).await;
    let stopped = stand.until_status(&task, "STOPPED").await;
    assert_eq!(stopped["stopCode"], "TaskFailedToStart");
    assert!(stopped["stoppedReason"].as_str().unwrap().starts_with("CannotStartContainerError: "), "{stopped}");
    stand.close().await;
}

#[tokio::test]
async fn those_of_a_task_share_a_network() {
    let Some(stand) = Stand::new(quick()).await else { return };
    let server = with(container("server", "echo here | nc -l -p 8080"), json!({ "essential": false }));
    let script = "until nc 127.0.0.1 8080 2>/dev/null </dev/null; do sleep 0.1; done";
    let task = stand.run_containers(&[container("main", script), server]).await;
    stand.until_status(&task, "STOPPED").await;
    assert_eq!(stand.fake.output(&task, "main").await, "here\n");
    stand.close().await;
}

/// Answers one connection with a word.
fn listening() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        stream.read_exact(&mut [0; 4]).unwrap();
        stream.write_all(b"pong\n").unwrap();
    });
    port
}

#[tokio::test]
async fn they_reach_the_ports_that_are_named_and_no_others() {
    let (near, far) = (listening(), listening());
    let Some(stand) = Stand::new(Settings { network: Network::Ports(vec![near]), ..quick() }).await else { return };
    let script = format!(
        "echo ping | nc 127.0.0.1 {near}; nc 127.0.0.1 {far} </dev/null 2>/dev/null || echo nobody; ls /sys/class/net"
    );
    let written = output(&stand, container("main", &script), json!({})).await;
    assert_eq!(written.lines().take(2).collect::<Vec<_>>(), ["pong", "nobody"], "{written}");
    stand.close().await;
}
