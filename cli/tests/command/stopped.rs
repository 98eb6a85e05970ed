//! `callboard up` whose process stands still for a while, as on a machine that sleeps: its sweeps go on.

use crate::up::{callboard, directory, signal, started, up};
use localstack::client::Client;
use localstack::tokens;
use nix::sys::signal::Signal;
use protocol::{EndReason, Status};
use serde_json::{Value, json};
use std::path::Path;
use std::process::{Child, Command};
use std::time::Duration;
use uuid::Uuid;

const REAP_EVERY: Duration = Duration::from_secs(1);
/// Longer than a lease and its grace too: the first sweep afterwards is one after an outage, and ends nothing yet.
const STOPPED: Duration = Duration::from_secs(5);
const LOOK_EVERY: Duration = Duration::from_millis(50);
/// So often, and no longer.
const LOOKS_MAX: u32 = 1200;

/// Ends with the test, however that ends.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        self.0.kill().and_then(|()| self.0.wait()).ok();
    }
}

/// A board without a worker, but with one that takes builds and is never heard again.
struct Board {
    url: String,
    worker: String,
    client: Client,
}

impl Board {
    async fn of(dir: &Path) -> Self {
        let said = tokens::read(&dir.join(tokens::FILE)).expect("its tokens");
        let (url, worker) = (said["CALLBOARD_URL"].clone(), said["CALLBOARD_WORKER_TOKEN"].clone());
        let client = Client::new(url.clone(), said["CALLBOARD_API_TOKEN"].clone()).expect("a client");
        let spec = json!({ "repository": "https://git.example/a.git", "steps": [{ "name": "a", "commands": ["b"] }] });
        client.apply("p", &serde_json::from_value(spec).expect("a pipeline")).await.expect("applied");
        Self { url, worker, client }
    }

    /// A build whose worker is lost.
    async fn taken(&self) -> Uuid {
        let build = self.client.submit("p").await.expect("submitted").id;
        let claim = json!({ "claim_id": Uuid::new_v4(), "worker": {
            "name": "w1", "version": "test", "host_id": "h1", "isolation": ["bubblewrap"] } });
        let http = reqwest::Client::builder().no_proxy().build().expect("a client");
        let asked = http.post(format!("{}/internal/worker/claim", self.url)).bearer_auth(&self.worker).json(&claim);
        let job: Value = asked.send().await.expect("answered").json().await.expect("a build");
        assert_eq!(job["build_id"], build.to_string());
        build
    }

    async fn sees_the_end_of(&self, build: Uuid) {
        for _ in 0..LOOKS_MAX {
            let seen = self.client.build(build).await.expect("read");
            if seen.status.is_final() {
                assert_eq!((seen.status, seen.end_reason), (Status::Failed, Some(EndReason::WorkerLost)));
                return;
            }
            tokio::time::sleep(LOOK_EVERY).await;
        }
        panic!("no sweep ended {build}");
    }
}

fn swept_often(mut command: Command) -> Command {
    let settings =
        [("LEASE", 2000), ("LEASE_GRACE", 1000), ("HEARTBEAT_EVERY", 300), ("KILL_GRACE", 0), ("FENCE_MARGIN", 0)];
    for (name, ms) in settings.into_iter().chain([("REAP_EVERY", REAP_EVERY.as_millis())]) {
        command.env(format!("CALLBOARD_{name}_MS"), ms.to_string());
    }
    command
}

#[tokio::test]
async fn sweeps_go_on_after_the_process_was_stopped_for_longer_than_their_period() {
    let root = directory(0o711);
    let dir = root.path().join("board");
    let (child, _said) = started(swept_often(up(callboard(), &dir)));
    let mut running = Running(child);
    let board = Board::of(&dir).await;
    let before = board.taken().await;
    signal(&running.0, Signal::SIGSTOP);
    // Nothing but time itself tells a process that it stood still.
    tokio::time::sleep(STOPPED).await;
    signal(&running.0, Signal::SIGCONT);
    board.sees_the_end_of(before).await;
    let after = board.taken().await;
    board.sees_the_end_of(after).await;
    signal(&running.0, Signal::SIGTERM);
    assert_eq!(running.0.wait().expect("ended").code(), Some(0));
    assert_eq!(localstack::leftovers::processes(&dir), Vec::<u32>::new());
}
