//! A trace, from whoever submits a build to the log lines of the functions and of the worker (docs/decisions/0019).

use crate::scene::Scene;
use protocol::Status;
use protocol::build::Build;
use reqwest::Method;
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::io::Write;
use std::sync::{Arc, Mutex};
use tracing_subscriber::fmt::MakeWriter;

const GIVEN: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
const GIVEN_ID: &str = "0af7651916cd43dd8448eb211c80319c";

/// What the functions logged.
#[derive(Clone, Default)]
struct Lines(Arc<Mutex<Vec<u8>>>);

impl Write for Lines {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().expect("lines").write(bytes)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

impl MakeWriter<'_> for Lines {
    type Writer = Self;

    fn make_writer(&self) -> Self {
        self.clone()
    }
}

/// What was said about a build, in lines of which each must be in its trace.
fn said_about(build: &Build, log: &str) -> BTreeSet<String> {
    let id = build.id.to_string();
    let about = log.lines().filter(|line| line.contains(&id)).map(|line| {
        let line: Value = serde_json::from_str(line).unwrap_or_else(|error| panic!("{line}: {error}"));
        assert_eq!(line["span"]["trace.id"], GIVEN_ID, "{line}");
        let said = line["message"].as_str().or(line["fields"]["message"].as_str());
        said.expect("a message").to_owned()
    });
    about.collect()
}

#[tokio::test]
async fn a_callers_trace_is_in_every_log_line_of_the_functions_and_of_the_worker_about_its_build() {
    let lines = Lines::default();
    let json = tracing_subscriber::fmt().json().flatten_event(true).with_max_level(tracing::Level::DEBUG);
    json.with_writer(lines.clone()).try_init().expect("nobody else listens in this process");
    let Some(mut scene) = Scene::set().await else { return };
    scene.apply(r#""steps": [{ "name": "work", "commands": ["sleep 2; echo done"] }]"#).await;
    scene.start_worker_with(&["--log-format", "json"], false);
    let request = scene.client.request(Method::POST, "builds").header("traceparent", GIVEN);
    let submitted: Build = scene.client.send(request.json(&json!({ "pipeline": "p" }))).await.expect("submitted");
    let build = scene.ended(submitted.id).await;
    assert_eq!((build.status, build.trace_id.as_deref()), (Status::Success, Some(GIVEN_ID)));
    let log = String::from_utf8(lines.0.lock().expect("lines").clone()).expect("text");
    let of_functions = said_about(&build, &log);
    for message in ["build admitted", "build claimed", "lease renewed", "build ended"] {
        assert!(of_functions.contains(message), "{message} is not among {of_functions:?}");
    }
    let of_worker = said_about(&build, &scene.worker_log());
    for message in ["build claimed", "step started", "reporting the end", "build ended"] {
        assert!(of_worker.contains(message), "{message} is not among {of_worker:?}");
    }
    scene.end().await;
}
