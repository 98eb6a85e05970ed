//! A worker that holds previews, a repository that it builds from, and the service that they start, which can be started by hand as well.

use crate::board::Board;
use anyhow::{Context as _, bail, ensure};
use localstack::client::Client;
use localstack::git_https::GitHttps;
use localstack::worker;
use protocol::preview::Previews;
use rules::preview::State;
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::{Duration, Instant};
use tempfile::TempDir;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::process::Command;
use tokio::time::sleep;
use uuid::Uuid;

/// The service of the tests' previews.
const SERVICE: &str = include_str!("../../../../../../localstack/tests/whole/service.pl");
const PATIENCE: Duration = Duration::from_secs(60);

pub(super) struct Host {
    dir: TempDir,
    _git: GitHttps,
    client: Client,
    worker: worker::Worker,
}

impl Host {
    pub(super) async fn start(board: &Board<'_>) -> anyhow::Result<Self> {
        let dir = tempfile::Builder::new().prefix("callboard-bench.").tempdir()?;
        fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o711))?;
        let git = GitHttps::serve(&repository(dir.path()).await?, dir.path()).await?;
        let url = format!("http://{}", board.server.address);
        let client = Client::new(url.clone(), board.server.api.clone())?;
        let spec = serde_json::json!({
            "repository": git.url(),
            "steps": [{ "name": "make", "commands": ["true"] }],
            "preview": { "commands": ["exec perl service.pl"], "env": { "TOKEN": "none", "WORD": "none" },
                "port": 8080, "health_path": "/up", "ttl_seconds": 3600 },
        });
        client.apply("previewed", &serde_json::from_value(spec)?).await?;
        let options = worker::Options {
            api_url: url,
            dir: dir.path().to_owned(),
            ca_bundle: Some(git.authority().to_owned()),
            egress_allow: vec![git.egress()],
            accept: ["memory", "processes", "cpu", "disk"].map(str::to_owned).into(),
            slots: 2,
            restart: false,
            extra: Vec::new(),
        };
        let worker = worker::Worker::start(options, &board.server.worker)?;
        Ok(Self { dir, _git: git, client, worker })
    }

    /// A build whose preview runs.
    pub(super) async fn preview(&self) -> anyhow::Result<Uuid> {
        let (build, begun) = (self.client.submit("previewed").await?.id, Instant::now());
        while begun.elapsed() < PATIENCE {
            let found: Previews = self.client.get(&format!("previews?build={build}")).await?;
            match found.previews.first().map(|preview| preview.status) {
                Some(State::Running) => return Ok(build),
                Some(State::Starting) | None => sleep(Duration::from_millis(20)).await,
                Some(other) => bail!("a preview is {other:?}: {:?}", found.previews),
            }
        }
        bail!("no preview in time; the worker says:\n{}", fs::read_to_string(self.dir.path().join("worker.log"))?)
    }

    /// From the service's start to its first answer, without anything around it.
    pub(super) async fn by_hand(&self) -> anyhow::Result<Duration> {
        let port = std::net::TcpListener::bind("127.0.0.1:0")?.local_addr()?.port();
        let mut command = Command::new("perl");
        command.arg("service.pl").current_dir(self.dir.path().join("source")).env("PORT", port.to_string());
        command.env("TOKEN", "none").env("WORD", "none").stdout(Stdio::null()).kill_on_drop(true);
        let begun = Instant::now();
        let _service = command.spawn().context("perl can't be run")?;
        while !answers(port).await {
            ensure!(begun.elapsed() < PATIENCE, "the service does not answer");
            sleep(Duration::from_millis(1)).await;
        }
        Ok(begun.elapsed())
    }

    pub(super) async fn end(self) -> anyhow::Result<()> {
        self.worker.stop().await;
        let left = localstack::leftovers::processes(self.dir.path());
        ensure!(left.is_empty(), "the worker left {left:?}");
        Ok(())
    }
}

async fn answers(port: u16) -> bool {
    let asking = async {
        let mut service = TcpStream::connect(("127.0.0.1", port)).await?;
        service.write_all(b"GET /up HTTP/1.1\r\n\r\n").await?;
        let mut answer = Vec::new();
        service.read_to_end(&mut answer).await?;
        Ok::<_, std::io::Error>(answer.starts_with(b"HTTP/1.1 200"))
    };
    asking.await.unwrap_or(false)
}

async fn repository(dir: &Path) -> anyhow::Result<PathBuf> {
    let repository = dir.join("source");
    fs::create_dir(&repository)?;
    fs::write(repository.join("service.pl"), SERVICE)?;
    for args in
        [&["init", "--quiet", "--initial-branch=main"][..], &["add", "."], &["commit", "--quiet", "-m", "first"]]
    {
        let identity = ["-c", "user.name=a", "-c", "user.email=a@example.com"];
        let status = Command::new("git").arg("-C").arg(&repository).args(identity).args(args).status().await?;
        ensure!(status.success(), "git {args:?}");
    }
    Ok(repository)
}
