//! Builds in tasks of an ECS that is a fake, but whose containers are real: the worker's own process, the runner and the shim of its
//! own image, a real git server. Needs the feature `ecs`, a daemon and `./tests/image`.

use crate::back_ends::{HOST_IMAGE, socket};
use crate::board::{Board, job, step};
use crate::fleet::{command, eventually};
use crate::forge::Forge;
use crate::image::image;
use fake_ecs::{Fake, Fault, Network, Settings, serve};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use protocol::preview::PreviewRun;
use protocol::worker::{Complete, Job, Secret};
use protocol::{CancelReason, EndReason, Status};
use rules::preview::{Order, Seen, Stage};
use serde_json::json;
use std::collections::BTreeSet;
use std::fs::{self, File};
use std::path::Path;
use std::process::Child;
use tempfile::TempDir;

/// A step that says something when it is asked to end.
const LAST_WORDS: &str = "trap 'echo last words; exit' TERM; echo running; while :; do sleep 0.1; done";

struct Scene {
    image: String,
    board: Board,
    forge: Forge,
    fake: Fake,
    worker: Child,
    directory: TempDir,
}

/// All that a build needs; or the calling test is skipped.
async fn scene() -> Option<Scene> {
    let image = image()?;
    let (board, forge, directory) =
        (Board::start_for(HOST_IMAGE).await, Forge::start().await, tempfile::tempdir().unwrap());
    let port = |address: &str| address.rsplit(':').next().unwrap().parse().unwrap();
    let network = Network::Ports(vec![port(&board.url), port(&forge.address)]);
    let fake = serve(&socket()?, Settings { network, ..Settings::default() }).await.unwrap();
    let worker =
        start(&image, (&board, &forge, &fake), &directory.path().join("builds"), &directory.path().join("log"));
    Some(Scene { image, board, forge, fake, worker, directory })
}

/// A worker that holds its builds in the tasks of a fake.
fn start(image: &str, (board, forge, fake): (&Board, &Forge, &Fake), root: &Path, log: &Path) -> Child {
    let mut command = command(board, forge, root, "run");
    command.args(["--slots", "4", "--isolation", "ecs", "--accept", "network", "--ecs-cluster", "callboard"]);
    command.args(["--ecs-subnets", "subnet-1", "--ecs-security-groups", "sg-1", "--ecs-runner-image", image]);
    command
        .env("AWS_ENDPOINT_URL_ECS", fake.url())
        .env("AWS_REGION", "eu-central-1")
        .env("AWS_EC2_METADATA_DISABLED", "true");
    command.env("AWS_ACCESS_KEY_ID", "of-the-test").env("AWS_SECRET_ACCESS_KEY", "of-the-test");
    command.stderr(File::options().append(true).create(true).open(log).unwrap()).spawn().unwrap()
}

impl Scene {
    fn job(&self, commands: &[&[&str]]) -> Job {
        let steps = commands.iter().enumerate().map(|(at, commands)| step(&format!("step-{at}"), commands));
        job(&self.forge.url(), steps.collect())
    }

    fn log(&self) -> String {
        fs::read_to_string(self.directory.path().join("log")).unwrap()
    }

    /// Ends the worker without a word.
    fn kill(&mut self) {
        self.worker.kill().unwrap();
        self.worker.wait().unwrap();
    }

    /// Another worker, on the disk of the one before or on one of its own.
    fn again(&mut self, disk: &str) {
        let (root, log) = (self.directory.path().join(disk), self.directory.path().join("log"));
        self.worker = start(&self.image, (&self.board, &self.forge, &self.fake), &root, &log);
    }

    /// The ARN of the build's task, once there is one.
    fn task(&self) -> String {
        eventually("a task", || self.tasks().pop_first())
    }

    /// The ARNs of all tasks that workers know.
    fn tasks(&self) -> BTreeSet<String> {
        let log = self.log();
        let told = log.split("ecs.task=\"").skip(1).filter_map(|rest| rest.split_once('"'));
        told.map(|(arn, _)| arn.to_owned()).collect()
    }

    fn calls(&self, action: &str) -> usize {
        self.fake.calls().iter().filter(|call| call.action == action).count()
    }

    async fn ends(&self, build: uuid::Uuid, status: Status, reason: Option<EndReason>) -> Complete {
        let report = self.board.report(build).await;
        assert_eq!(
            (report.status, report.end_reason),
            (status, reason),
            "{report:?}\n{}\n{}",
            self.board.log(),
            self.log()
        );
        report
    }

    /// No container is left, once ECS has cleared up.
    async fn is_tidy(&self) {
        for _ in 0..600 {
            let left = self.fake.left().await.unwrap();
            if left.containers.is_empty() && left.volumes.is_empty() {
                return;
            }
            tokio::time::sleep(std::time::Duration::from_millis(100)).await;
        }
        panic!("{:?}\n{}", self.fake.left().await.unwrap(), self.log());
    }
}

impl Drop for Scene {
    fn drop(&mut self) {
        if std::thread::panicking() {
            println!("the worker said:\n{}", self.log());
        }
        self.worker.kill().ok();
        self.worker.wait().ok();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_build_is_cloned_and_its_steps_run_in_a_task_of_their_own() {
    let Some(scene) = scene().await else { return };
    let mut job = scene.job(&[&["cat hello.txt; echo made > made"], &["cat made; echo \"$WORD and $SECRET\""]]);
    job.env = [("WORD".to_owned(), "tenants-word".to_owned())].into();
    job.secrets = [("SECRET".to_owned(), Secret("tenants-secret".into()))].into();
    let build = scene.board.offer(job);
    let report = scene.ends(build, Status::Success, None).await;
    let log = scene.board.log();
    for line in ["hello from the repository\n", "made\n", "tenants-word and ***\n"] {
        assert!(log.contains(line), "{line:?} in {log}");
    }
    assert_eq!((report.commit, report.logs_lost), (Some(scene.forge.commit.clone()), false));
    assert_eq!(report.last_seq, u64::try_from(scene.board.heard().chunks.len()).unwrap());
    assert_eq!(report.steps.iter().map(|step| step.exit_code).collect::<Vec<_>>(), [Some(0), Some(0)]);
    for given in scene.fake.given() {
        for theirs in ["tenants-word", "tenants-secret", "app.git", "hello.txt", "WORD"] {
            assert!(!given.text.contains(theirs), "{theirs} in {}", given.text);
        }
    }
    scene.is_tidy().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_step_that_fails_fails_the_build_and_the_next_is_skipped() {
    let Some(scene) = scene().await else { return };
    let build = scene.board.offer(scene.job(&[&["echo before; exit 3"], &["echo never"]]));
    let report = scene.ends(build, Status::Failed, Some(EndReason::StepFailed)).await;
    assert_eq!(report.steps.iter().map(|step| step.exit_code).collect::<Vec<_>>(), [Some(3), None]);
    assert!(scene.board.log().contains("before\n") && !scene.board.log().contains("never\n"), "{}", scene.board.log());
    scene.is_tidy().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_image_that_is_not_there_is_the_pipelines_trouble() {
    let Some(scene) = scene().await else { return };
    let mut job = scene.job(&[&["true"]]);
    job.steps[0].image = "registry.example/nowhere:1".into();
    let build = scene.board.offer(job);
    scene.ends(build, Status::Failed, Some(EndReason::ImageFailed)).await;
    scene.is_tidy().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cancelled_build_keeps_its_last_lines() {
    let Some(scene) = scene().await else { return };
    let build = scene.board.offer(scene.job(&[&[LAST_WORDS]]));
    scene.board.until_log("running\n").await;
    scene.board.heard().cancel = Some(CancelReason::User);
    scene.ends(build, Status::Cancelled, Some(EndReason::User)).await;
    assert!(scene.board.log().contains("last words\n"), "{}", scene.board.log());
    scene.is_tidy().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_worker_that_is_stopped_stops_its_tasks_and_says_so() {
    let Some(mut scene) = scene().await else { return };
    let build = scene.board.offer(scene.job(&[&[LAST_WORDS]]));
    scene.board.until_log("running\n").await;
    let pid = Pid::from_raw(i32::try_from(scene.worker.id()).unwrap());
    kill(pid, Signal::SIGTERM).unwrap();
    eventually("its draining", || scene.log().contains("draining").then_some(()));
    kill(pid, Signal::SIGTERM).unwrap();
    scene.ends(build, Status::Failed, Some(EndReason::WorkerShutdown)).await;
    assert!(scene.board.log().contains("last words\n"), "{}", scene.board.log());
    assert!(eventually("the worker's end", || scene.worker.try_wait().unwrap()).success(), "{}", scene.log());
    scene.is_tidy().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_task_whose_worker_was_killed_ends_when_the_board_says_that_its_build_has() {
    let Some(mut scene) = scene().await else { return };
    let build = scene.board.offer(scene.job(&[&["echo running; sleep 600"]]));
    scene.board.until_log("running\n").await;
    scene.kill();
    scene.board.heard().ended = Some(build);
    scene.is_tidy().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_machine_that_is_taken_away_is_a_lost_host() {
    let Some(scene) = scene().await else { return };
    let build = scene.board.offer(scene.job(&[&[LAST_WORDS]]));
    scene.board.until_log("running\n").await;
    scene.fake.inject(Fault::SpotInterruption { task: scene.task() }).unwrap();
    scene.ends(build, Status::Failed, Some(EndReason::HostLost)).await;
    assert!(scene.board.log().contains("last words\n"), "{}", scene.board.log());
    scene.is_tidy().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_killed_worker_left_is_stopped_by_the_next_once_the_board_has_taken_note_and_not_before() {
    let Some(mut scene) = scene().await else { return };
    let build = scene.board.offer(scene.job(&[&["echo running; sleep 600"]]));
    scene.board.until_log("running\n").await;
    scene.kill();
    scene.board.heard().unanswered = Some(build);
    scene.again("builds");
    eventually("a report that is not heard", || scene.log().contains("end not reported yet").then_some(()));
    assert_eq!(scene.calls("StopTask"), 0, "{}", scene.log());
    scene.board.heard().unanswered = None;
    scene.ends(build, Status::Failed, Some(EndReason::Recovery)).await;
    scene.is_tidy().await;
    assert!(scene.calls("StopTask") > 0, "{}", scene.log());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_worker_on_a_new_disk_stops_the_task_of_a_build_that_has_ended_and_of_no_other() {
    let Some(mut scene) = scene().await else { return };
    let goes_on = scene.board.offer(scene.job(&[&["echo running; sleep 600"]]));
    scene.board.until_log("running\n").await;
    let first = scene.task();
    scene.kill();
    scene.again("another-disk");
    let ended = scene.board.offer(scene.job(&[&["sleep 600"]]));
    scene.board.until("its runner", |heard| heard.fetched.get(&ended).cloned()).await;
    assert_eq!((scene.calls("StopTask"), scene.fake.states(&first).last()), (0, Some(&"RUNNING")), "{}", scene.log());
    scene.kill();
    // The board says it to the worker alone.
    scene.board.heard().reaped = Some(ended);
    scene.again("a-third-disk");
    eventually("its end", || scene.log().contains("stopped the task of a build that had ended").then_some(()));
    assert_eq!((scene.calls("StopTask"), scene.fake.states(&first).last()), (1, Some(&"RUNNING")), "{}", scene.log());
    scene.board.heard().ended = Some(goes_on);
    scene.is_tidy().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn builds_that_come_together_share_a_definition_and_have_a_task_each_whatever_ecs_does() {
    let Some(scene) = scene().await else { return };
    let run = || "RunTask".to_owned();
    for fault in [
        Fault::Throttled { action: run(), times: 2 },
        Fault::LostAnswer { action: run(), times: 1 },
        Fault::NotPlaced { reason: "RESOURCE:CPU".into(), times: 1 },
        Fault::ServerError { action: "DescribeTasks".into(), times: 1 },
    ] {
        scene.fake.inject(fault).unwrap();
    }
    let builds: Vec<_> = (0..4).map(|_| scene.board.offer(scene.job(&[&["true"]]))).collect();
    for build in builds {
        scene.ends(build, Status::Success, None).await;
    }
    assert_eq!((scene.calls("RegisterTaskDefinition"), scene.tasks().len()), (1, 4), "{}", scene.log());
    assert!(scene.calls("RunTask") > 6, "{:?}", scene.fake.calls());
    scene.is_tidy().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_preview_of_a_build_in_a_task_is_unsupported() {
    let Some(scene) = scene().await else { return };
    let run = json!({ "image": HOST_IMAGE, "commands": ["sleep 600"], "port": 8080, "health_path": "/" });
    let mut job = scene.job(&[&["true"]]);
    job.preview = Some(serde_json::from_value(run.clone()).unwrap());
    scene.board.heard().preview = Some((Order::Start, serde_json::from_value::<PreviewRun>(run).unwrap()));
    let build = scene.board.offer(job);
    scene.ends(build, Status::Success, None).await;
    let told =
        |heard: &crate::board::Heard| heard.previews.get(&build).filter(|told| told.state == Seen::Failed).cloned();
    let report = scene.board.until("a preview that failed", told).await;
    assert_eq!(report.stage, Some(Stage::Unsupported), "{report:?}");
    scene.is_tidy().await;
}
