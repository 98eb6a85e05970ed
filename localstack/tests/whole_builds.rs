//! Whole builds on a whole stack: real Postgres, real functions, the real worker, real sandboxes, a repository over https.

#[path = "../../tests/skipped.rs"]
mod skipped;

use localstack::client::Client;
use localstack::git_https::GitHttps;
use localstack::{Options, Stack, leftovers, worker};
use protocol::build::{Build, StepStatus};
use protocol::worker::Secret;
use protocol::workspace::{SecretName, SecretValue};
use protocol::{EndReason, Status};
use reqwest::Method;
use rules::Timing;
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::Command;
use std::time::Duration;
use tempfile::TempDir;
use uuid::Uuid;

/// A stack with one repository and one worker.
struct Scene {
    dir: TempDir,
    stack: Stack,
    git: GitHttps,
    client: Client,
}

fn git(repository: &Path, args: &[&str]) {
    let identity = ["-c", "user.name=a", "-c", "user.email=a@example.com"];
    let status = Command::new("git").arg("-C").arg(repository).args(identity).args(args).status();
    assert!(status.expect("git runs").success(), "git {args:?}");
}

impl Scene {
    /// `None`, said out loud, where no sandbox works.
    async fn set() -> Option<Self> {
        let dir = tempfile::Builder::new().prefix("callboard-test.").tempdir().expect("a directory");
        fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o711)).expect("open to others");
        if let Err(why) = worker::doctor(dir.path()).await {
            skipped::skip("sandbox", &why.to_string());
            return None;
        }
        let repository = dir.path().join("source");
        fs::create_dir(&repository).expect("made");
        fs::write(repository.join("word"), "first\n").expect("written");
        git(&repository, &["init", "--quiet", "--initial-branch=main"]);
        git(&repository, &["add", "."]);
        git(&repository, &["commit", "--quiet", "-m", "first"]);
        let git = GitHttps::serve(&repository, dir.path()).await.expect("served");
        let (heartbeat_every, reap_every) = (Duration::from_millis(300), Duration::from_secs(1));
        let timing = Timing { heartbeat_every, reap_every, ..Timing::default() };
        let options = Options { dir: dir.path().join("board"), port: 0, database_url: None, timing: Some(timing) };
        let stack = Stack::start(options).await.expect("a stack");
        let client = Client::new(stack.url(), stack.tokens().api.clone()).expect("a client");
        Some(Self { dir, stack, git, client })
    }

    fn start_worker(&mut self) {
        let options = worker::Options {
            api_url: self.stack.url(),
            dir: self.stack.dir().to_owned(),
            ca_bundle: Some(self.git.authority().to_owned()),
            egress_allow: vec![self.git.egress()],
            accept: vec!["memory".into(), "processes".into(), "cpu".into(), "disk".into()],
            slots: 1,
            restart: false,
            extra: ["--kill-grace-ms", "500"].map(str::to_owned).into(),
        };
        self.stack.start_worker(options).expect("a worker");
    }

    /// Sets the pipeline `p` up; `rest` is all but its repository.
    async fn apply(&self, rest: &str) {
        let spec = format!(r#"{{ "repository": "{}", {rest} }}"#, self.git.url());
        let spec = serde_json::from_str(&spec).expect("a pipeline of the test itself");
        self.client.apply("p", &spec).await.expect("applied");
    }

    async fn submit(&self) -> Uuid {
        self.client.submit("p").await.expect("submitted").id
    }

    async fn post(&self, id: Uuid, what: &str) -> Build {
        let request = self.client.request(Method::POST, &format!("builds/{id}/{what}"));
        self.client.send(request).await.expect("answered")
    }

    async fn until(&self, id: Uuid, enough: impl Fn(&Build) -> bool) -> Build {
        for _ in 0..1200 {
            let build = self.client.build(id).await.expect("read");
            if enough(&build) {
                return build;
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        panic!("build {id} did not get there: {:?}", self.client.build(id).await)
    }

    async fn ended(&self, id: Uuid) -> Build {
        self.until(id, |build| build.status.is_final()).await
    }

    async fn log(&self, id: Uuid) -> String {
        let page = self.client.log(id, 0).await.expect("read");
        assert!(page.complete, "the log of an ended build is complete");
        page.chunks.iter().map(|chunk| String::from_utf8(chunk.bytes().expect("bytes")).expect("text")).collect()
    }

    /// A step is counted, although nothing of what it is called, runs or stands in names a path of this host. Its build's phase
    /// is told before its program runs.
    async fn sees_the_step(&self, arguments: &str) {
        for _ in 0..1200 {
            let steps: Vec<u32> = leftovers::processes(self.dir.path())
                .into_iter()
                .filter(|pid| fs::read(format!("/proc/{pid}/cmdline")).is_ok_and(|found| found == arguments.as_bytes()))
                .collect();
            if !steps.is_empty() {
                let sandboxed = leftovers::sandboxed();
                assert!(steps.iter().all(|pid| sandboxed.contains(pid)), "{steps:?}");
                return;
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        panic!("no process {arguments:?} is counted: {:?}", leftovers::processes(self.dir.path()))
    }

    /// Stops all; nothing may be left, of any build first.
    async fn end(mut self) {
        self.stack.stop_worker().await;
        let entries = fs::read_dir(self.stack.dir().join("builds")).expect("there").flatten();
        let of_builds = entries.filter(|entry| Uuid::try_parse(&entry.file_name().to_string_lossy()).is_ok());
        assert_eq!(of_builds.count(), 0);
        self.stack.stop().await.expect("stopped");
        assert_eq!(leftovers::processes(self.dir.path()), Vec::<u32>::new());
        assert_eq!(leftovers::mounts(self.dir.path()), 0);
    }
}

#[tokio::test]
async fn a_build_runs_its_steps_at_the_exact_commit_with_its_secret_masked() {
    let Some(mut scene) = Scene::set().await else { return };
    let value = SecretValue { value: Secret("hunter2-hunter2".into()) };
    let _: SecretName = scene.client.give(Method::PUT, "secrets/TOKEN", &value).await.expect("set");
    let steps = r#""secrets": ["TOKEN"], "steps": [
        { "name": "read", "commands": ["cat word", "echo \"$CALLBOARD_COMMIT\"", "echo $TOKEN", "test $TOKEN = hunter2-hunter2"] },
        { "name": "fail", "commands": ["exit 7"] },
        { "name": "never", "commands": ["true"] }]"#;
    // The value stands in a command too, which the log repeats: masked there as well.
    scene.apply(steps).await;
    scene.start_worker();
    let id = scene.submit().await;
    let build = scene.ended(id).await;
    let log = scene.log(id).await;
    assert_eq!((build.status, build.end_reason), (Status::Failed, Some(EndReason::StepFailed)), "{log}");
    let steps: Vec<_> = build.steps.iter().map(|step| (step.status, step.exit_code)).collect();
    let expected = [(StepStatus::Success, Some(0)), (StepStatus::Failed, Some(7)), (StepStatus::Skipped, None)];
    assert_eq!(steps, expected);
    assert!(log.contains("first\n") && log.contains(build.commit.as_deref().expect("a commit")), "{log}");
    assert!(!log.contains("hunter2-hunter2"), "{log}");
    let again = scene.post(id, "retry").await.id;
    let second = scene.ended(again).await;
    assert_eq!((second.retry_of, second.commit), (Some(id), build.commit));
    scene.end().await;
}

#[tokio::test]
async fn a_running_build_is_cancelled_and_one_that_waits_never_starts() {
    let Some(mut scene) = Scene::set().await else { return };
    scene.apply(r#""steps": [{ "name": "long", "commands": ["trap '' TERM; sleep 600 & wait; sleep 600"] }]"#).await;
    scene.start_worker();
    let (running, waiting) = (scene.submit().await, scene.submit().await);
    scene.until(running, |build| build.phase.as_deref() == Some("long")).await;
    scene.sees_the_step("sleep\x00600\x00").await;
    let cancelled = scene.post(waiting, "cancel").await;
    assert_eq!((cancelled.status, cancelled.charged_seconds), (Status::Cancelled, Some(0)));
    scene.post(running, "cancel").await;
    let ended = scene.ended(running).await;
    assert_eq!((ended.status, ended.end_reason), (Status::Cancelled, Some(EndReason::User)));
    scene.end().await;
}

#[tokio::test]
async fn a_deadline_times_a_build_out_and_it_pays_for_that_time() {
    let Some(mut scene) = Scene::set().await else { return };
    scene.apply(r#""timeout_seconds": 3, "steps": [{ "name": "long", "commands": ["sleep 600"] }]"#).await;
    scene.start_worker();
    let id = scene.submit().await;
    let build = scene.ended(id).await;
    assert_eq!((build.status, build.end_reason), (Status::TimedOut, Some(EndReason::Deadline)));
    assert_eq!((build.max_duration_seconds, build.charged_seconds), (Some(3), Some(3)));
    scene.end().await;
}

#[tokio::test]
async fn a_worker_that_is_stopped_reports_its_build_and_the_board_goes_on() {
    let Some(mut scene) = Scene::set().await else { return };
    scene.apply(r#""steps": [{ "name": "long", "commands": ["sleep 600"] }]"#).await;
    scene.start_worker();
    let id = scene.submit().await;
    scene.until(id, |build| build.phase.as_deref() == Some("long")).await;
    scene.stack.stop_worker().await;
    let build = scene.client.build(id).await.expect("read");
    assert_eq!((build.status, build.end_reason), (Status::Failed, Some(EndReason::WorkerShutdown)));
    scene.end().await;
}
