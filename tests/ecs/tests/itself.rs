//! The program, and what it tells over HTTP.

use crate::stand::{call, container, definition, docker, http, with};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::{Value, json};
use std::io::{BufRead as _, BufReader};
use std::process::{Command, Stdio};
use std::time::Duration;

/// The names of a task's containers that Docker knows.
fn containers(task: &str) -> Vec<String> {
    let host = format!("unix://{}", docker().unwrap().display());
    let id = task.rsplit('/').next().unwrap();
    let args = ["--host", &host, "ps", "-a", "--format", "{{.Names}}", "--filter", &format!("name={id}")];
    let said = Command::new("docker").args(args).output().unwrap();
    String::from_utf8(said.stdout).unwrap().lines().map(str::to_owned).collect()
}

#[tokio::test]
async fn the_program_serves_tells_and_takes_all_with_it() {
    let Some(docker) = docker() else { return };
    let mut program = Command::new(env!("CARGO_BIN_EXE_callboard-fake-ecs"));
    let mut program = program.arg("--docker").arg(docker).stdout(Stdio::piped()).spawn().unwrap();
    let mut url = String::new();
    BufReader::new(program.stdout.take().unwrap()).read_line(&mut url).unwrap();
    let (url, client) = (url.trim().to_owned(), http());
    let get = async |path: &str| -> Value {
        let answer = client.get(format!("{url}{path}")).send().await.unwrap().text().await.unwrap();
        serde_json::from_str(&answer).unwrap_or(Value::String(answer))
    };
    let settings = with(get("/_settings").await, json!({ "clusters": ["other"], "invisible_ms": 0 }));
    let put =
        client.put(format!("{url}/_settings")).header("content-type", "application/json").body(settings.to_string());
    assert_eq!(put.send().await.unwrap().status(), 204);
    let main = container("main", "echo up; sleep 1000");
    call(&client, &url, "RegisterTaskDefinition", &definition(&[main])).await.unwrap().unwrap();
    let request = with(crate::stand::Stand::request("tried"), json!({ "cluster": "other" }));
    let run = call(&client, &url, "RunTask", &request).await.unwrap().unwrap();
    let task = run["tasks"][0]["taskArn"].as_str().unwrap();
    let id = task.rsplit('/').next().unwrap();
    while get(&format!("/_output/{id}/main")).await != json!("up\n") {
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    // Its own, and the one that holds the network.
    assert_eq!(get("/_left").await["containers"].as_array().unwrap().len(), 2);
    assert_eq!(containers(task).len(), 2);
    let actions: Vec<_> = get("/_calls").await.as_array().unwrap().iter().map(|call| call["action"].clone()).collect();
    assert_eq!(actions, ["RegisterTaskDefinition", "RunTask"]);
    assert!(get("/_given").await[0]["text"].as_str().unwrap().contains("sleep 1000"));
    kill(Pid::from_raw(i32::try_from(program.id()).unwrap()), Signal::SIGTERM).unwrap();
    assert!(program.wait().unwrap().success());
    assert_eq!(containers(task), Vec::<String>::new());
}
