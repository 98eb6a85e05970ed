//! What is measured: a `callboard up` of its own, as people run it.

use anyhow::{Context as _, bail};
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;
use tokio::io::{AsyncBufReadExt as _, BufReader};
use tokio::process::{Child, Command};

/// Whether calls that wait are answered together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Combine {
    /// One statement round a call, as on Lambda.
    Off,
    /// As the one-machine stack does.
    On,
}

/// A running process; killed when dropped.
pub struct Server {
    child: Child,
    /// Where it listens.
    pub address: SocketAddr,
    /// A worker's token.
    pub worker: String,
    /// An operator's token.
    pub operator: String,
    /// A token of the workspace that every stack has.
    pub api: String,
}

impl Server {
    /// Starts one over a database. Its directory must not be in use.
    pub async fn start(dir: &Path, database_url: &str, combine: Combine) -> anyhow::Result<Self> {
        std::fs::create_dir_all(dir)?;
        let program = std::env::current_exe()?.with_file_name("callboard");
        let log = std::fs::File::create(dir.join("server.log"))?;
        let mut child = Command::new(&program)
            .args(["up", "--no-worker", "--port", "0", "--dir"])
            .arg(dir)
            .env("DATABASE_URL", database_url)
            .env("CALLBOARD_BATCH_MAX", if combine == Combine::On { "64" } else { "1" })
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(log)
            .kill_on_drop(true)
            .spawn()
            .with_context(|| format!("{} can't be run", program.display()))?;
        let stdout = child.stdout.take().context("its output is piped")?;
        let address = tokio::time::timeout(Duration::from_secs(60), address(stdout)).await??;
        let env = localstack::tokens::read(&dir.join(localstack::tokens::FILE))?;
        let token = |name: &str| said(&env, name);
        let (worker, operator) = (token("CALLBOARD_WORKER_TOKEN")?, token("CALLBOARD_OPERATOR_TOKEN")?);
        Ok(Self { child, address, worker, operator, api: token("CALLBOARD_API_TOKEN")? })
    }

    /// Its process.
    pub fn pid(&self) -> anyhow::Result<i32> {
        let id = self.child.id().context("the server ended")?;
        Ok(i32::try_from(id)?)
    }

    /// Stops it, and waits until it is gone.
    pub async fn stop(mut self) -> anyhow::Result<()> {
        let pid = nix::unistd::Pid::from_raw(self.pid()?);
        nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGTERM)?;
        let status = tokio::time::timeout(Duration::from_secs(30), self.child.wait()).await??;
        if status.success() { Ok(()) } else { bail!("the server ended with {status}") }
    }
}

fn said(env: &BTreeMap<String, String>, name: &str) -> anyhow::Result<String> {
    env.get(name).cloned().with_context(|| format!("callboard.env has no {name}"))
}

/// The address that it says it listens on. What else it says is of no interest, but must be read.
async fn address(stdout: tokio::process::ChildStdout) -> anyhow::Result<SocketAddr> {
    let mut lines = BufReader::new(stdout).lines();
    while let Some(line) = lines.next_line().await? {
        let Some((_, rest)) = line.split_once("http://") else { continue };
        let address = rest.split([',', ' ', '/']).next().unwrap_or_default().parse()?;
        tokio::spawn(async move { while let Ok(Some(_)) = lines.next_line().await {} });
        return Ok(address);
    }
    bail!("the server ended before it said where it listens; see its log")
}
