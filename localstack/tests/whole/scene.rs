//! A stack with one repository and one worker.

use crate::skipped;
use localstack::client::Client;
use localstack::git_https::GitHttps;
use localstack::{Options, Stack, leftovers, worker};
use protocol::build::Build;
use protocol::preview::{Preview, Previews};
use reqwest::Method;
use rules::Timing;
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;
use tempfile::TempDir;
use uuid::Uuid;

/// What the pipelines of the tests preview.
const SERVICE: &str = include_str!("service.pl");

/// It.
pub(crate) struct Scene {
    pub(crate) dir: TempDir,
    pub(crate) stack: Stack,
    pub(crate) git: GitHttps,
    pub(crate) client: Client,
}

fn git(repository: &Path, args: &[&str]) {
    let identity = ["-c", "user.name=a", "-c", "user.email=a@example.com"];
    let status = Command::new("git").arg("-C").arg(repository).args(identity).args(args).status();
    assert!(status.expect("git runs").success(), "git {args:?}");
}

/// Serves the repository of these tests, which it makes in `dir`.
pub(crate) async fn serve(dir: &Path) -> GitHttps {
    let repository = dir.join("source");
    fs::create_dir(&repository).expect("made");
    fs::write(repository.join("word"), "first\n").expect("written");
    fs::write(repository.join("service.pl"), SERVICE).expect("written");
    git(&repository, &["init", "--quiet", "--initial-branch=main"]);
    git(&repository, &["add", "."]);
    git(&repository, &["commit", "--quiet", "-m", "first"]);
    GitHttps::serve(&repository, dir).await.expect("served")
}

impl Scene {
    /// `None`, said out loud, where no sandbox works.
    pub(crate) async fn set() -> Option<Self> {
        let dir = tempfile::Builder::new().prefix("callboard-test.").tempdir().expect("a directory");
        fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o711)).expect("open to others");
        let is_known = std::env::var_os("CALLBOARD_TEST_SANDBOX").is_some();
        if !is_known && let Err(why) = worker::doctor(dir.path()).await {
            skipped::skip("sandbox", &why.to_string());
            return None;
        }
        let git = serve(dir.path()).await;
        let (heartbeat_every, reap_every) = (Duration::from_millis(300), Duration::from_secs(1));
        let timing = Timing {
            heartbeat_every,
            reap_every,
            preview_cleanup_every: reap_every,
            preview_sync_every: Duration::from_millis(500),
            ..Timing::default()
        };
        let options = Options { dir: dir.path().join("board"), port: 0, database_url: None, timing: Some(timing) };
        let stack = Stack::start(options).await.expect("a stack");
        let client = Client::new(stack.url(), stack.tokens().api.clone()).expect("a client");
        Some(Self { dir, stack, git, client })
    }

    pub(crate) fn start_worker(&mut self) {
        self.start_worker_with(&[], false);
    }

    /// With arguments of the test's own; one that dies is followed by another if it is to `restart`.
    pub(crate) fn start_worker_with(&mut self, args: &[&str], restart: bool) {
        let options = worker::Options {
            api_url: self.stack.url(),
            dir: self.stack.dir().to_owned(),
            ca_bundle: Some(self.git.authority().to_owned()),
            egress_allow: vec![self.git.egress()],
            accept: vec!["memory".into(), "processes".into(), "cpu".into(), "disk".into()],
            slots: 1,
            restart,
            extra: ["--kill-grace-ms", "500"].iter().chain(args).map(|arg| (*arg).to_owned()).collect(),
        };
        self.stack.start_worker(options).expect("a worker");
    }

    /// Sets the pipeline `p` up; `rest` is all but its repository.
    pub(crate) async fn apply(&self, rest: &str) {
        let spec = format!(r#"{{ "repository": "{}", {rest} }}"#, self.git.url());
        let spec = serde_json::from_str(&spec).expect("a pipeline of the test itself");
        self.client.apply("p", &spec).await.expect("applied");
    }

    pub(crate) async fn submit(&self) -> Uuid {
        self.client.submit("p").await.expect("submitted").id
    }

    pub(crate) async fn post(&self, id: Uuid, what: &str) -> Build {
        let request = self.client.request(Method::POST, &format!("builds/{id}/{what}"));
        self.client.send(request).await.expect("answered")
    }

    pub(crate) async fn until(&self, id: Uuid, enough: impl Fn(&Build) -> bool) -> Build {
        for _ in 0..1200 {
            let build = self.client.build(id).await.expect("read");
            if enough(&build) {
                return build;
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        panic!("build {id} did not get there: {:?}", self.client.build(id).await)
    }

    pub(crate) async fn ended(&self, id: Uuid) -> Build {
        self.until(id, |build| build.status.is_final()).await
    }

    pub(crate) async fn log(&self, id: Uuid) -> String {
        let page = self.client.log(id, 0).await.expect("read");
        assert!(page.complete, "the log of an ended build is complete");
        page.chunks.iter().map(|chunk| String::from_utf8(chunk.bytes().expect("bytes")).expect("text")).collect()
    }

    /// A step is counted, although nothing of what it is called, runs or stands in names a path of this host. Its build's phase
    /// is told before its program runs.
    pub(crate) async fn sees_the_step(&self, arguments: &str) {
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

    /// The directories of builds.
    pub(crate) fn sites(&self) -> Vec<PathBuf> {
        let entries = fs::read_dir(self.stack.dir().join("builds")).expect("there").flatten();
        let of_builds = entries.filter(|entry| Uuid::try_parse(&entry.file_name().to_string_lossy()).is_ok());
        of_builds.map(|entry| entry.path()).collect()
    }

    /// The directory of a build, whether it is there or not.
    pub(crate) fn site(&self, build: Uuid) -> PathBuf {
        self.stack.dir().join("builds").join(build.to_string())
    }

    /// The control groups of a build.
    pub(crate) fn groups_of(&self, build: Uuid) -> Vec<PathBuf> {
        let parents = fs::read_to_string(self.stack.dir().join("builds/.groups")).unwrap_or_default();
        let entries = parents.lines().flat_map(|parent| fs::read_dir(parent).into_iter().flatten().flatten());
        let its = entries.filter(|entry| entry.file_name().to_string_lossy().starts_with(&build.to_string()));
        its.map(|entry| entry.path()).collect()
    }

    /// Waits for the worker to have been ready so often.
    pub(crate) async fn until_worker_is_ready(&self, times: usize) {
        let is_ready = || async { self.worker_log().matches("worker ready").count() >= times };
        self.until_it_is_so("a worker that is ready", is_ready).await;
    }

    pub(crate) async fn until_no_worker_lives(&self) {
        self.until_it_is_so("no worker", || async { self.stack.worker().and_then(worker::Worker::pid).is_none() })
            .await;
    }

    pub(crate) async fn until_database_answers(&self) {
        self.until_it_is_so("an answer", || async { self.client.workspace().await.is_ok() }).await;
    }

    /// Waits until a preview's log, as the board has it, says this.
    pub(crate) async fn until_log_says(&self, preview: &Preview, text: &str) {
        let says = || async {
            let path = format!("previews/{}", preview.id);
            let shown: Preview = self.client.get(&path).await.expect("read");
            shown.log_tail.is_some_and(|log| log.contains(text))
        };
        self.until_it_is_so(text, says).await;
    }

    async fn until_it_is_so<F: Future<Output = bool>>(&self, what: &str, is_so: impl Fn() -> F) {
        for _ in 0..1200 {
            if is_so().await {
                return;
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        panic!("{what} did not come; the worker said:\n{}", self.worker_log())
    }

    /// The preview of a build, once it is as it should be.
    pub(crate) async fn preview(&self, build: Uuid, enough: impl Fn(&Preview) -> bool) -> Preview {
        let mut last = None;
        for _ in 0..1200 {
            let found: Previews = self.client.get(&format!("previews?build={build}")).await.expect("read");
            last = found.previews.into_iter().next();
            if let Some(preview) = last.take_if(|preview| enough(preview)) {
                return preview;
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        panic!("the preview of {build} did not get there: {last:?}; the worker said:\n{}", self.worker_log())
    }

    pub(crate) fn worker_log(&self) -> String {
        fs::read_to_string(self.stack.dir().join("worker.log")).unwrap_or_default()
    }

    /// Stops all; nothing may be left, of any build first.
    pub(crate) async fn end(mut self) {
        self.stack.stop_worker().await;
        assert_eq!(self.sites(), Vec::<PathBuf>::new());
        self.end_but_for_directories().await;
    }

    /// The same, but for directories that are kept.
    pub(crate) async fn end_but_for_directories(mut self) {
        self.stack.stop_worker().await;
        self.stack.stop().await.expect("stopped");
        assert_eq!(leftovers::processes(self.dir.path()), Vec::<u32>::new());
        assert_eq!(leftovers::mounts(self.dir.path()), 0);
    }
}
