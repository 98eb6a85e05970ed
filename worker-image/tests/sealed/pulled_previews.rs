//! Previews in an image of a registry that asks for a login: a real daemon pulls it for them, with what the pipeline named for that registry.

use crate::back_ends::{ask, containers};
use crate::board::{job, step};
use crate::pulls::{WRONG, set_up, tells_nothing};
use crate::registry::{Asks, Gives, PASSWORD, Registry, USER};
use crate::{Board, Forge, Worker};
use callboard_worker::proc;
use protocol::Status;
use protocol::preview::{PreviewReport, PreviewRun};
use rules::preview::{Order, Seen, Stage};
use serde_json::json;
use std::fs;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use uuid::Uuid;

/// Says which image it is in and what it sees.
const SERVICE: [&str; 2] = ["(cat /mark; /bin/busybox env) >seen", "exec /bin/busybox httpd -f -p \"127.0.0.1:$PORT\""];

struct Scene {
    board: Board,
    worker: Worker,
    registry: Registry,
    build: Uuid,
    _forge: Forge,
}

/// A build that has succeeded, whose preview is being started with this password.
async fn starting(asks: Asks, password: &str) -> Option<Scene> {
    let (board, forge, worker, registry) = set_up(asks, Gives::All).await?;
    let mut run = json!({ "image": registry.image(), "commands": SERVICE, "port": 8080, "health_path": "/seen" });
    let mut job = job(&forge.url(), vec![step("make", &["true"])]);
    job.preview = Some(serde_json::from_value(run.clone()).unwrap());
    run["registry_secrets"] = json!({ registry.name(): format!("{USER}:{password}") });
    let run: PreviewRun = serde_json::from_value(run).unwrap();
    board.heard().preview = Some((Order::Start, run));
    let build = board.offer(job);
    assert_eq!(board.report(build).await.status, Status::Success, "{}", board.log());
    Some(Scene { board, worker, registry, build, _forge: forge })
}

impl Scene {
    async fn is(&self, state: Seen) -> PreviewReport {
        let found = |report: &PreviewReport| report.state == state && (state == Seen::Running || report.port.is_none());
        self.board
            .until(&format!("a preview that is {state}"), |heard| {
                heard.previews.get(&self.build).filter(|report| found(report)).cloned()
            })
            .await
    }

    fn tells_nothing(&self) {
        for process in proc::all() {
            tells_nothing("an argument", &process.args.join(" "));
        }
        tells_nothing("the worker's log", &self.worker.log());
        let kept = self.worker.root.join(self.build.to_string()).join("preview");
        for file in fs::read_dir(kept).unwrap().map(|entry| entry.unwrap().path()) {
            // A socket can't be read.
            tells_nothing(&file.display().to_string(), &fs::read_to_string(&file).unwrap_or_default());
        }
    }

    async fn leaves_nothing(self) {
        self.board.heard().preview = None;
        self.worker.is_tidy();
        ask("DELETE", &format!("/images/{}?force=1", self.registry.image()));
    }
}

async fn seen(port: u16) -> String {
    let mut service = TcpStream::connect(("127.0.0.1", port)).await.unwrap();
    service.write_all(b"GET /seen HTTP/1.0\r\n\r\n").await.unwrap();
    let mut said = String::new();
    service.read_to_string(&mut said).await.unwrap();
    said
}

#[tokio::test(flavor = "multi_thread")]
async fn a_previews_image_is_pulled_with_a_login_that_its_service_does_not_see() {
    for asks in [Asks::Basic, Asks::Bearer] {
        let Some(scene) = starting(asks, PASSWORD).await else { return };
        let running = scene.is(Seen::Running).await;
        let said = seen(running.port.unwrap()).await;
        assert!(said.contains(&scene.registry.name()) && said.contains("CALLBOARD_PREVIEW=true"), "{said}");
        tells_nothing("the service", &said);
        let all = containers(&scene.worker.root);
        assert_eq!(all.len(), 2, "its own, and its network's");
        for container in all {
            tells_nothing("inspect", &ask("GET", &format!("/containers/{container}/json")).to_string());
        }
        scene.tells_nothing();
        scene.board.heard().preview.as_mut().unwrap().0 = Order::Destroy;
        scene.is(Seen::Destroyed).await;
        scene.leaves_nothing().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_preview_whose_login_is_wrong_fails_at_its_start_and_says_so_without_it() {
    let Some(scene) = starting(Asks::Bearer, WRONG).await else { return };
    let failed = scene.is(Seen::Failed).await;
    let message = failed.message.unwrap();
    assert_eq!(failed.stage, Some(Stage::Start), "{message}");
    assert!(message.contains("did not take the secret"), "{message}");
    tells_nothing("the message", &message);
    scene.tells_nothing();
    scene.leaves_nothing().await;
}
