//! `callboard up` as a process with everything that is its own, and a user of a preview.

use crate::previews::{can_serve, pipeline, ports};
use crate::scene::serve;
use crate::skipped::skip;
use localstack::client::Client;
use localstack::git_https::GitHttps;
use localstack::{leftovers, tokens, worker};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use protocol::preview::{Preview, Previews};
use protocol::worker::Secret;
use protocol::workspace::{SecretName, SecretValue};
use reqwest::Method;
use rules::preview::State;
use std::fs::{self, File};
use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;
use std::process::Stdio;
use std::time::Duration;
use tempfile::TempDir;
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::TcpStream;
use tokio::process::{Child, Command};
use uuid::Uuid;

const LOOK_EVERY: Duration = Duration::from_millis(50);
/// So often, and no longer.
const LOOKS_MAX: u32 = 1200;

pub(crate) struct Up {
    dir: TempDir,
    git: GitHttps,
    port: u16,
    preview_ports: String,
    process: Child,
    client: Client,
}

impl Up {
    /// One that is up. `None`, said out loud, where no sandbox works.
    pub(crate) async fn set() -> Option<Self> {
        if !can_serve() {
            return None;
        }
        let dir = tempfile::Builder::new().prefix("callboard-test.").tempdir().expect("a directory");
        fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o711)).expect("open to others");
        let is_known = std::env::var_os("CALLBOARD_TEST_SANDBOX").is_some();
        if !is_known && let Err(why) = worker::doctor(dir.path()).await {
            skip("sandbox", &why.to_string());
            return None;
        }
        let (git, (port, _), (_, preview_ports)) = (serve(dir.path()).await, ports(), ports());
        let process = up(&dir, &git, port, &preview_ports).await;
        let said = tokens::read(&dir.path().join("board").join(tokens::FILE)).expect("its tokens");
        let client = Client::new(format!("http://127.0.0.1:{port}"), said["CALLBOARD_API_TOKEN"].clone());
        Some(Self { dir, git, port, preview_ports, process, client: client.expect("a client") })
    }

    /// Again, on the same directory and port.
    pub(crate) async fn start(&mut self) {
        self.process = up(&self.dir, &self.git, self.port, &self.preview_ports).await;
    }

    fn board(&self) -> PathBuf {
        self.dir.path().join("board")
    }

    /// A preview that runs.
    pub(crate) async fn running(&self) -> Preview {
        let value = SecretValue { value: Secret("hunter2-hunter2".into()) };
        let _: SecretName = self.client.give(Method::PUT, "secrets/TOKEN", &value).await.expect("set");
        let spec = format!(r#"{{ "repository": "{}", {} }}"#, self.git.url(), pipeline(""));
        self.client
            .apply("p", &serde_json::from_str(&spec).expect("a pipeline of the test itself"))
            .await
            .expect("applied");
        let build = self.client.submit("p").await.expect("submitted").id;
        self.preview(build, |preview| preview.status == State::Running).await
    }

    /// The preview of a build, once it is as it should be.
    pub(crate) async fn preview(&self, build: Uuid, enough: impl Fn(&Preview) -> bool) -> Preview {
        let mut last = None;
        for _ in 0..LOOKS_MAX {
            let found: Option<Previews> = self.client.get(&format!("previews?build={build}")).await.ok();
            last = found.and_then(|found| found.previews.into_iter().next());
            if let Some(preview) = last.take_if(|preview| enough(preview)) {
                return preview;
            }
            tokio::time::sleep(LOOK_EVERY).await;
        }
        panic!("the preview of {build} did not get there: {last:?}; the worker said:\n{}", self.log())
    }

    pub(crate) async fn destroy(&self, preview: &Preview) {
        let request = self.client.request(Method::DELETE, &format!("previews/{}", preview.id));
        let _: Preview = self.client.send(request).await.expect("destroyed");
    }

    fn log(&self) -> String {
        fs::read_to_string(self.board().join("worker.log")).unwrap_or_default()
    }

    /// Waits for so many workers to have been ready.
    pub(crate) async fn until_worker_is_ready(&self, times: usize) {
        self.until("a worker that is ready", || self.log().matches("worker ready").count() >= times).await;
    }

    pub(crate) async fn until_nothing_runs(&self) {
        self.until("the end of all", || leftovers::processes(&self.board()).is_empty()).await;
    }

    async fn until(&self, what: &str, is_so: impl Fn() -> bool) {
        for _ in 0..LOOKS_MAX {
            if is_so() {
                return;
            }
            tokio::time::sleep(LOOK_EVERY).await;
        }
        panic!("{what} did not come: {:?}; the worker said:\n{}", leftovers::processes(&self.board()), self.log())
    }

    /// The stack, its worker and its Postgres.
    pub(crate) fn processes(&self) -> Vec<i32> {
        let verb = |pid: u32| {
            let arguments = fs::read_to_string(format!("/proc/{pid}/cmdline")).unwrap_or_default();
            arguments.split('\0').nth(1).unwrap_or_default().to_owned()
        };
        let is_postgres =
            |pid: u32| fs::read_link(format!("/proc/{pid}/exe")).is_ok_and(|exe| exe.ends_with("postgres"));
        let found = leftovers::processes(&self.board()).into_iter();
        let found = found.filter(|pid| ["up", "run"].contains(&verb(*pid).as_str()) || is_postgres(*pid));
        found.map(|pid| i32::try_from(pid).expect("fits")).collect()
    }

    /// The worker's processes that were called by this verb.
    pub(crate) fn called(&self, verb: &str) -> Vec<u32> {
        let beginning = [&self.board().join("builds/.bin/callboard-worker").display().to_string(), verb].join("\0");
        let is_so = |pid: &u32| {
            fs::read(format!("/proc/{pid}/cmdline")).is_ok_and(|said| said.starts_with(beginning.as_bytes()))
        };
        leftovers::processes(&self.board()).into_iter().filter(is_so).collect()
    }

    fn signal(&self, signal: Signal) {
        let pid = self.process.id().and_then(|pid| i32::try_from(pid).ok()).expect("it runs");
        kill(Pid::from_raw(pid), signal).expect("signalled");
    }

    /// Kills the stack's own process alone.
    pub(crate) fn kill(&self) {
        self.signal(Signal::SIGKILL);
    }

    pub(crate) async fn has_ended(&mut self) {
        self.process.wait().await.expect("waited for");
    }

    /// Stops it in order; nothing may be left.
    pub(crate) async fn stop(mut self) {
        self.signal(Signal::SIGTERM);
        self.has_ended().await;
        assert_eq!(leftovers::processes(self.dir.path()), Vec::<u32>::new());
        assert_eq!(leftovers::mounts(self.dir.path()), 0);
    }
}

/// Keepers outlive a test that fails, but for this.
impl Drop for Up {
    fn drop(&mut self) {
        for pid in self.called("keep").into_iter().filter_map(|pid| i32::try_from(pid).ok()) {
            kill(Pid::from_raw(pid), Signal::SIGKILL).ok();
        }
    }
}

async fn up(dir: &TempDir, git: &GitHttps, port: u16, preview_ports: &str) -> Child {
    let (tests, path) = (std::env::current_exe().expect("a path"), dir.path().join("up.log"));
    let log = File::options().create(true).append(true).open(&path).expect("a log");
    let mut command = Command::new(tests.ancestors().nth(2).expect("the target directory").join("callboard"));
    command.args(["up", "--port", &port.to_string(), "--dir"]).arg(dir.path().join("board"));
    command.arg("--ca-bundle").arg(git.authority()).arg("--egress-allow").arg(git.egress());
    command
        .env_remove("DATABASE_URL")
        .env("CALLBOARD_PREVIEW_PORTS", preview_ports)
        .env("CALLBOARD_REAP_EVERY_MS", "1000");
    command.env("CALLBOARD_PREVIEW_SYNC_EVERY_MS", "500").env("CALLBOARD_HEARTBEAT_EVERY_MS", "300");
    command.current_dir("/").stdin(Stdio::null()).stdout(Stdio::piped());
    let mut process = command.stderr(log).kill_on_drop(true).spawn().expect("it runs: `./tests/run` builds it");
    let mut said = BufReader::new(process.stdout.take().expect("its output")).lines();
    loop {
        let Some(line) = said.next_line().await.expect("text") else {
            panic!("it ended before it was up: {}", fs::read_to_string(path).unwrap_or_default())
        };
        if line.contains("Ctrl-C") {
            // What else it says must be read.
            tokio::spawn(async move { while let Ok(Some(_)) = said.next_line().await {} });
            return process;
        }
    }
}

/// Somebody whose connection to a preview is open.
pub(crate) struct User(BufReader<TcpStream>);

impl User {
    pub(crate) async fn of(port: u16) -> Self {
        let mut user = BufReader::new(TcpStream::connect(("127.0.0.1", port)).await.expect("connected"));
        user.write_all(b"GET /echo HTTP/1.1\r\n\r\n").await.expect("said");
        let mut said = String::new();
        while said != "\r\n" {
            said.clear();
            user.read_line(&mut said).await.expect("heard");
        }
        Self(user)
    }

    pub(crate) async fn is_answered(&mut self, word: &str) {
        self.0.write_all(format!("{word}\n").as_bytes()).await.expect("said");
        let mut said = String::new();
        self.0.read_line(&mut said).await.expect("heard");
        assert_eq!(said, format!("{word}\n"));
    }

    pub(crate) async fn sees_its_end(mut self) {
        assert_eq!(self.0.read_line(&mut String::new()).await.unwrap_or(0), 0);
    }
}
