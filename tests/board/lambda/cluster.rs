//! An ECS of the test's own: two calls of it, to whoever signs.

use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse as _, Response};
use axum::routing::post;
use axum::{Json, Router};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use tokio::sync::Semaphore;
use uuid::Uuid;

/// The name of the cluster.
pub(super) const NAME: &str = "arn:aws:ecs:us-east-1:123456789012:cluster/builds";

/// What it holds, and what was asked of it.
#[derive(Default)]
struct Desk {
    /// Tasks that run, by whom they were started.
    running: BTreeMap<String, Vec<String>>,
    /// Whose tasks were asked for, and which were stopped and why.
    listed: Vec<String>,
    stopped: Vec<(String, String)>,
    /// Actions that it refuses.
    refused: Vec<&'static str>,
}

#[derive(Clone)]
pub(super) struct Cluster {
    desk: Arc<Mutex<Desk>>,
    /// Each question takes one, and gives it back.
    pub(super) open: Arc<Semaphore>,
    /// How many questions have come.
    pub(super) asked: Arc<AtomicUsize>,
}

impl Cluster {
    pub(super) async fn start() -> (Self, String) {
        let cluster = Self { desk: Arc::default(), open: Arc::new(Semaphore::new(100)), asked: Arc::default() };
        let app = Router::new().route("/", post(answer)).with_state(cluster.clone());
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let url = format!("http://{}", listener.local_addr().expect("an address"));
        tokio::spawn(async move { axum::serve(listener, app).await });
        (cluster, url)
    }

    fn desk<T>(&self, look: impl FnOnce(&mut Desk) -> T) -> T {
        look(&mut self.desk.lock().expect("the desk"))
    }

    /// Runs a task of that name for a build.
    pub(super) fn run(&self, build: Uuid, task: &str) {
        self.desk(|desk| desk.running.entry(build.to_string()).or_default().push(task.to_owned()));
    }

    pub(super) fn refuse(&self, actions: &[&'static str]) {
        self.desk(|desk| desk.refused = actions.to_vec());
    }

    /// Whose tasks were asked for since this was last called, sorted.
    pub(super) fn listed(&self) -> Vec<String> {
        let mut listed = self.desk(|desk| std::mem::take(&mut desk.listed));
        listed.sort_unstable();
        listed
    }

    /// Which tasks were stopped since this was last called, sorted.
    pub(super) fn stopped(&self) -> Vec<String> {
        let mut stopped = self.desk(|desk| std::mem::take(&mut desk.stopped));
        stopped.sort_unstable();
        assert!(stopped.iter().all(|(_, reason)| reason.starts_with("Callboard has ended its build")), "{stopped:?}");
        stopped.into_iter().map(|(task, _)| task).collect()
    }
}

async fn answer(State(cluster): State<Cluster>, headers: HeaderMap, body: String) -> Response {
    let said = |name: &str| headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or("").to_owned();
    let signed = said("authorization");
    let scope = format!("/{}/us-east-1/ecs/aws4_request, ", said("x-amz-date").split('T').next().unwrap_or(""));
    if !signed.starts_with("AWS4-HMAC-SHA256 Credential=AKIDEXAMPLE/") || !signed.contains(&scope) {
        return refusal("IncompleteSignatureException");
    }
    cluster.asked.fetch_add(1, Ordering::SeqCst);
    let _open = cluster.open.acquire().await.expect("never closed");
    let body: Value = serde_json::from_str(&body).expect("JSON");
    assert_eq!(body["cluster"], NAME);
    let target = said("x-amz-target");
    let action = target.strip_prefix("AmazonEC2ContainerServiceV20141113.").expect("an action of ECS");
    cluster.desk(|desk| desk.answer(action, &body))
}

impl Desk {
    fn answer(&mut self, action: &str, body: &Value) -> Response {
        let text = |name: &str| body[name].as_str().expect("a text").to_owned();
        if action == "ListTasks" {
            assert_eq!(body.as_object().map(serde_json::Map::len), Some(2), "no filter beside startedBy: {body}");
            self.listed.push(text("startedBy"));
        }
        if self.refused.contains(&action) {
            return refusal("ThrottlingException");
        }
        match action {
            "ListTasks" => {
                let tasks = self.running.get(&text("startedBy")).cloned().unwrap_or_default();
                Json(json!({ "taskArns": tasks })).into_response()
            }
            "StopTask" => {
                let task = text("task");
                self.running.values_mut().for_each(|tasks| tasks.retain(|running| *running != task));
                self.stopped.push((task, text("reason")));
                Json(json!({ "task": {} })).into_response()
            }
            other => panic!("ECS was asked for {other}"),
        }
    }
}

fn refusal(kind: &str) -> Response {
    (StatusCode::BAD_REQUEST, Json(json!({ "__type": kind }))).into_response()
}
