//! The process that is one build's way out, `callboard-worker egress`, and the worker's side of it.
//!
//! Connections, names that are looked up and the threads for that are a build's own, and so is their exhaustion. The process
//! runs as the build's user. Its standard input ends with the worker, and it ends with its standard input; on standard
//! output it says a line when it is ready, and one for each connection that it refuses.

use super::addresses::Allowed;
use super::proxy::{self, Reach, Refusals};
use crate::descriptors;
use crate::isolation::{Control, Ended, Running};
use crate::stdin;
use futures::future::BoxFuture;
use nix::unistd::setsid;
use std::fmt;
use std::io::{self, Write as _};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tokio::io::{AsyncBufReadExt as _, AsyncRead, AsyncReadExt as _, BufReader};
use tokio::process::{Child, Command};
use tokio::task::JoinSet;
use tokio::time::timeout;

/// What the process says when it listens.
const READY: &str = "ready";
/// How long it may take to begin.
const PATIENCE: Duration = Duration::from_secs(10);
/// How long it may take to end.
const END_PATIENCE: Duration = Duration::from_secs(2);
/// The same for one in a container.
const CONTAINER_PATIENCE: Duration = Duration::from_secs(10);
/// The most names that are looked up at once.
const LOOKUPS_MAX: usize = 32;
/// The longest line that is said.
const LINE_MAX_BYTES: usize = 500;

/// What a proxy is to be.
#[derive(Debug)]
pub struct Way<'a> {
    /// The worker's binary, where the build's user can start it.
    pub binary: &'a Path,
    /// The build, for people who look at the process list.
    pub build: String,
    /// Where to listen; nothing must be there.
    pub socket: PathBuf,
    /// What may be reached besides public addresses.
    pub allowed: &'a [Allowed],
    /// The resolver that it passes questions on to; the host's first if absent.
    pub resolver: Option<SocketAddr>,
    /// Whom it runs as, user and group; as the worker itself if absent.
    pub run_as: Option<u32>,
    /// The build's slot.
    pub slot: u32,
}

impl Way<'_> {
    /// What the process is called with, if its socket is to be at `socket`.
    #[must_use]
    pub fn args(&self, socket: &Path) -> Vec<String> {
        let mut args = ["egress", "--build", &self.build, "--socket"].map(str::to_owned).to_vec();
        args.push(socket.to_string_lossy().into_owned());
        args.extend(self.allowed.iter().flat_map(|allowed| ["--allow".to_owned(), allowed.to_string()]));
        args.extend(self.resolver.iter().flat_map(|resolver| ["--resolver".to_owned(), resolver.to_string()]));
        args
    }
}

/// A running proxy; it ends, with all its connections, at the latest when this is dropped.
#[derive(Debug)]
pub struct Proxy {
    process: Process,
    hearing: JoinSet<()>,
    /// Whether its end is no surprise.
    ends: Arc<AtomicBool>,
}

impl Proxy {
    /// Starts a proxy; what it refuses is told to `refusals`.
    ///
    /// # Errors
    ///
    /// If it can't be started, or can't listen.
    pub async fn start(way: Way<'_>, refusals: Refusals) -> io::Result<Self> {
        let mut command = Command::new(way.binary);
        command.args(way.args(&way.socket));
        if let Some(id) = way.run_as {
            command.uid(id).gid(id);
        }
        command.env_clear().current_dir("/").kill_on_drop(true);
        let mut process = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn()?;
        let said = process.stdout.take().ok_or(io::ErrorKind::BrokenPipe)?;
        Self::heard(Process::Own(process), said, refusals).await
    }

    /// The same in a container.
    ///
    /// # Errors
    ///
    /// If it can't listen.
    pub async fn contained(running: Running, refusals: Refusals) -> io::Result<Self> {
        let Running { stdout, control, ended, .. } = running;
        Self::heard(Process::Contained { control, ended }, stdout, refusals).await
    }

    async fn heard(
        process: Process,
        said: impl AsyncRead + Send + Unpin + 'static,
        refusals: Refusals,
    ) -> io::Result<Self> {
        let mut said = BufReader::new(said);
        let first = timeout(PATIENCE, line(&mut said)).await.map_err(|_| io::ErrorKind::TimedOut)??;
        if first.as_deref() != Some(READY) {
            return Err(io::Error::other(first.unwrap_or_else(|| "the proxy did not start".into())));
        }
        let (mut hearing, ends) = (JoinSet::new(), Arc::new(AtomicBool::new(false)));
        let is_expected = Arc::clone(&ends);
        hearing.spawn(async move {
            while let Ok(Some(line)) = line(&mut said).await {
                refusals(line);
            }
            if !is_expected.load(Ordering::Relaxed) {
                refusals("network: the proxy of this build broke; nothing can be reached any more".into());
            }
        });
        Ok(Self { process, hearing, ends })
    }

    /// Ends it, and waits until it is gone and its last word was heard.
    pub async fn end(self) {
        let Self { process, mut hearing, ends } = self;
        ends.store(true, Ordering::Relaxed);
        match process {
            Process::Own(mut process) => {
                drop(process.stdin.take());
                timeout(END_PATIENCE, hearing.join_next()).await.ok();
                if timeout(END_PATIENCE, process.wait()).await.is_err() {
                    process.kill().await.ok();
                }
            }
            Process::Contained { control, ended } => {
                control.kill();
                timeout(CONTAINER_PATIENCE, ended).await.ok();
            }
        }
    }
}

/// The proxy itself.
enum Process {
    Own(Child),
    Contained { control: Arc<dyn Control>, ended: BoxFuture<'static, Ended> },
}

impl fmt::Debug for Process {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Own(process) => process.fmt(f),
            Self::Contained { control, .. } => control.fmt(f),
        }
    }
}

async fn line(from: &mut BufReader<impl AsyncRead + Unpin>) -> io::Result<Option<String>> {
    let mut line = String::new();
    let length = from.take(2 * LINE_MAX_BYTES as u64).read_line(&mut line).await?;
    Ok((length > 0).then(|| line.trim_end().to_owned()))
}

/// The whole life of the process `callboard-worker egress`, which may have so many descriptors.
///
/// # Errors
///
/// If it can't listen. That is said on standard output as well.
pub fn serve(socket: &Path, allowed: Vec<Allowed>, resolver: Option<SocketAddr>, descriptors: u64) -> io::Result<()> {
    // Ctrl-C in the worker's terminal is not for it.
    setsid().ok();
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_all().max_blocking_threads(LOOKUPS_MAX).build()?;
    runtime.block_on(async {
        let refusals: Refusals = Arc::new(|line| say(&line));
        let reach = Reach { allowed, resolver };
        let proxy = proxy::Listening::start(socket, reach, descriptors::connections(descriptors), refusals)
            .inspect_err(|error| say(&error.to_string()))?;
        say(READY);
        stdin::end()?.await.ok();
        drop(proxy);
        Ok::<(), io::Error>(())
    })?;
    // A name that is still looked up is nobody's any more.
    runtime.shutdown_background();
    Ok(())
}

fn say(line: &str) {
    let line = &line[..line.floor_char_boundary(LINE_MAX_BYTES)];
    writeln!(io::stdout().lock(), "{}", line.replace(['\n', '\r'], " ")).ok();
}
