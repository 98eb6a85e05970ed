//! Where the processes of these stories are, and how they are started.

use crate::skipped::skip;
use http::Method;
use localstack::git_https::GitHttps;
use localstack::{leftovers, worker};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::{Value, json};
use std::fs::{self, File};
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;
use tempfile::TempDir;
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader, Lines};
use tokio::net::TcpStream;
use tokio::process::{Child, ChildStdin, ChildStdout, Command};
use tokio::time::timeout;

/// What the pipeline previews.
const SERVICE: &str = include_str!("../../../../localstack/tests/whole/service.pl");
/// How long an answer may take.
const PATIENCE: Duration = Duration::from_secs(10);

pub(super) struct Scene {
    pub(super) dir: TempDir,
    git: GitHttps,
    port: u16,
    preview_ports: String,
}

impl Scene {
    /// `None`, said out loud, where no worker can run.
    pub(super) async fn set() -> Option<Self> {
        let dir = tempfile::Builder::new().prefix("callboard-test.").tempdir().expect("a directory");
        fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o711)).expect("open to others");
        if !Path::new("/usr/bin/perl").exists() {
            skip("perl", "the service of the tests is written in it");
            return None;
        }
        let is_known = std::env::var_os("CALLBOARD_TEST_SANDBOX").is_some();
        if !is_known && let Err(why) = worker::doctor(dir.path()).await {
            skip("sandbox", &why.to_string());
            return None;
        }
        let git = repository(dir.path()).await;
        let (port, first) = (free_port(), free_port().min(65_000));
        Some(Self { dir, git, port, preview_ports: format!("{first}-{}", first + 20) })
    }

    pub(super) fn pipeline(&self) -> Value {
        json!({
            "repository": self.git.url(),
            "steps": [{ "name": "make", "commands": ["cp word made"] }],
            "preview": {
                "commands": ["WORD=$(cat made)", "export WORD", "exec perl service.pl"],
                "env": { "TOKEN": "none" }, "port": 8080, "health_path": "/up", "ttl_seconds": 3600,
            },
        })
    }

    pub(super) fn builds_root(&self) -> PathBuf {
        self.dir.path().join("builds")
    }

    pub(super) fn keep_token(&self, token: &str) {
        fs::write(self.dir.path().join("token"), token).expect("written");
    }

    /// A worker that is not a stack's: its previews outlive it.
    pub(super) fn worker(&self) -> Child {
        let log = File::options().create(true).append(true).open(self.dir.path().join("worker.log")).expect("a log");
        let mut command = Command::new(worker::binary().expect("the worker"));
        command.args(["run", "--slots", "1", "--isolation", "bubblewrap", "--accept", "memory,processes,cpu,disk"]);
        command.args(["--kill-grace-ms", "500", "--preview-ports", &self.preview_ports]);
        command.arg("--api-url").arg(format!("http://127.0.0.1:{}", self.port));
        command.arg("--token-file").arg(self.dir.path().join("token")).arg("--builds-root").arg(self.builds_root());
        command.arg("--ca-bundle").arg(self.git.authority()).arg("--egress-allow").arg(self.git.egress());
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log).kill_on_drop(true).spawn().expect("it runs")
    }

    /// The functions, at the same address each time.
    pub(super) async fn functions(&self, database_url: &str) -> Functions {
        let mut command = Command::new(env!("CARGO_BIN_EXE_armed"));
        command.args([database_url, &self.port.to_string()]).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut process = command.stderr(Stdio::null()).kill_on_drop(true).spawn().expect("they run");
        let tell = process.stdin.take().expect("their input");
        let mut said = BufReader::new(process.stdout.take().expect("their output")).lines();
        assert_eq!(said.next_line().await.expect("text").as_deref(), Some("serving"));
        Functions { process, tell, said, port: self.port }
    }

    pub(super) fn log(&self) -> String {
        fs::read_to_string(self.dir.path().join("worker.log")).unwrap_or_default()
    }

    /// The worker's processes that were called in this way.
    pub(super) fn called(&self, arguments: &[&str]) -> Vec<u32> {
        let program = self.builds_root().join(".bin/callboard-worker").display().to_string();
        let beginning = [&[program.as_str()], arguments].concat().join("\0");
        let is_so = |pid: &u32| {
            fs::read(format!("/proc/{pid}/cmdline")).is_ok_and(|said| said.starts_with(beginning.as_bytes()))
        };
        leftovers::processes(self.dir.path()).into_iter().filter(is_so).collect()
    }
}

/// Keepers outlive a test that fails, but for this.
impl Drop for Scene {
    fn drop(&mut self) {
        for pid in self.called(&["keep"]).into_iter().filter_map(|pid| i32::try_from(pid).ok()) {
            kill(Pid::from_raw(pid), Signal::SIGKILL).ok();
        }
    }
}

pub(super) struct Functions {
    pub(super) process: Child,
    pub(super) tell: ChildStdin,
    pub(super) said: Lines<BufReader<ChildStdout>>,
    port: u16,
}

impl Functions {
    /// The status of an answer, if one comes.
    pub(super) async fn ask(&self, method: &Method, path: &str, token: &str) -> Option<u16> {
        let head = format!("{method} {path} HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {token}\r\n");
        let asking = async {
            let mut functions = TcpStream::connect(("127.0.0.1", self.port)).await.ok()?;
            let request = format!("{head}content-length: 0\r\nconnection: close\r\n\r\n");
            functions.write_all(request.as_bytes()).await.ok()?;
            let mut answer = String::new();
            functions.read_to_string(&mut answer).await.ok()?;
            answer.split(' ').nth(1)?.parse().ok()
        };
        timeout(PATIENCE, asking).await.ok()?
    }
}

async fn repository(dir: &Path) -> GitHttps {
    let repository = dir.join("source");
    fs::create_dir(&repository).expect("made");
    fs::write(repository.join("word"), "first\n").expect("written");
    fs::write(repository.join("service.pl"), SERVICE).expect("written");
    let git = async |args: &[&str]| {
        let identity = ["-c", "user.name=a", "-c", "user.email=a@example.com"];
        let status = Command::new("git").arg("-C").arg(&repository).args(identity).args(args).status().await;
        assert!(status.expect("git runs").success(), "git {args:?}");
    };
    git(&["init", "--quiet", "--initial-branch=main"]).await;
    git(&["add", "."]).await;
    git(&["commit", "--quiet", "-m", "first"]).await;
    GitHttps::serve(&repository, dir).await.expect("served")
}

fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").expect("a port").local_addr().expect("its address").port()
}
