//! One container from its creation to its end, as its guard drives it.

use super::daemon::{Daemon, words};
use crate::clock::Boot;
use crate::isolation::Exceeded;
use crate::isolation::ask::Said;
use crate::isolation::plan::{ContainerOrders, Plan};
use crate::proc;
use bollard::container::LogOutput;
use bollard::errors::Error;
use bollard::query_parameters::{
    AttachContainerOptionsBuilder, CreateContainerOptionsBuilder, StartContainerOptions, WaitContainerOptionsBuilder,
};
use futures::future::BoxFuture;
use futures::{FutureExt as _, Stream, StreamExt as _};
use nix::sys::signal::Signal;
use std::sync::atomic::{AtomicBool, AtomicI32, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;
use tokio::io::{AsyncWrite, AsyncWriteExt as _};
use tokio::net::unix::pipe::Sender;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::task::JoinHandle;
use tokio::time::{sleep, timeout};

/// How long a daemon that broke off may take to say how a container ended.
const AGAIN_FOR: Duration = Duration::from_secs(15);
const AGAIN_EVERY: Duration = Duration::from_millis(200);
/// How long the worker may take to read what the container had written. Nothing runs meanwhile.
const READ_PATIENCE: Duration = Duration::from_secs(30);

/// The shortest that daemons name containers by: 64 digits, of which they take 12 for the whole.
const NAME_MIN: usize = 12;

/// How a container ended.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Ran {
    /// Whether it came up.
    pub started: bool,
    /// The exit code of its first process.
    pub exit_code: Option<i32>,
    /// The limit that it met, if any.
    pub exceeded: Option<Exceeded>,
    /// What went wrong with the daemon.
    pub trouble: Option<String>,
}

/// A container.
pub struct Life {
    life: BoxFuture<'static, Ran>,
    /// The daemon's name for it, once it has made it.
    made: Arc<OnceLock<String>>,
    /// Whether the daemon was told to start it, and whether it has said that it did.
    told_to_start: Arc<AtomicBool>,
    started: Arc<AtomicBool>,
    first: Arc<AtomicI32>,
    /// To its first process; once gone, that ends.
    asking: Option<UnboundedSender<Said>>,
    reading: Arc<tokio::sync::Mutex<Option<JoinHandle<()>>>>,
}

impl Life {
    /// The container that `orders` describe; what it writes goes to `stdout` and `stderr`.
    #[must_use]
    pub fn new(daemon: Daemon, orders: ContainerOrders, stdout: Sender, stderr: Sender) -> Self {
        let (asking, asked) = unbounded_channel();
        let begun = Begun {
            daemon,
            made: Arc::default(),
            told_to_start: Arc::default(),
            started: Arc::default(),
            first: Arc::default(),
            reading: Arc::default(),
        };
        let Begun { made, told_to_start, started, first, reading, .. } = begun.clone();
        let life = async move {
            let started = Arc::clone(&begun.started);
            begun.live(orders, asked, (stdout, stderr)).await.unwrap_or_else(|error| Ran {
                started: started.load(Ordering::Relaxed),
                trouble: Some(words(&error)),
                ..Ran::default()
            })
        };
        Self { life: life.boxed(), made, told_to_start, started, first, asking: Some(asking), reading }
    }

    /// Waits until it has ended, or, if the daemon was not yet told to start it, until it is let go: not before the daemon has made
    /// what it was asked for, since what is not there yet can't be removed. One that runs may have done much by the time that the
    /// daemon says so. May be dropped and called again until then.
    pub async fn until_ended(&mut self) -> Ran {
        if self.asking.is_none() && self.made.get().is_some() && !self.told_to_start.load(Ordering::Relaxed) {
            return Ran::default();
        }
        (&mut self.life).await
    }

    /// Asks all its processes to end; says whether there are any.
    #[must_use]
    pub fn ask(&self) -> bool {
        self.is_started() && self.say(Said::End)
    }

    /// Lets it go on until then; past that it ends by itself, whoever hangs.
    pub fn renew(&self, until: Boot) {
        self.say(Said::Until(until));
    }

    fn say(&self, said: Said) -> bool {
        self.asking.as_ref().is_some_and(|asking| asking.send(said).is_ok())
    }

    /// Ends all its processes that this host knows, past the daemon, which may hang.
    pub fn kill_past_the_daemon(&self) {
        let Some(id) = self.made.get() else { return };
        let its = proc::all().into_iter().map(|process| process.pid).filter(|pid| is_in(*pid, id));
        its.for_each(|pid| proc::signal(pid, Signal::SIGKILL));
    }

    /// Closes its input, with which it ends.
    pub fn let_go(&mut self) {
        self.asking = None;
    }

    /// Whether the daemon has said that it started it.
    #[must_use]
    pub fn is_started(&self) -> bool {
        self.started.load(Ordering::Relaxed)
    }

    /// Says which process of this host its first is; none if that is not known.
    pub fn first(&self) -> impl Fn() -> Option<i32> + Send + 'static {
        let first = Arc::clone(&self.first);
        move || Some(first.load(Ordering::Relaxed)).filter(|pid| *pid > 1)
    }

    /// Waits until what it wrote is read, but not for ever.
    pub async fn until_read(self) {
        if let Some(mut reading) = self.reading.lock().await.take()
            && timeout(READ_PATIENCE, &mut reading).await.is_err()
        {
            reading.abort();
        }
    }
}

#[derive(Clone)]
struct Begun {
    daemon: Daemon,
    made: Arc<OnceLock<String>>,
    told_to_start: Arc<AtomicBool>,
    started: Arc<AtomicBool>,
    first: Arc<AtomicI32>,
    reading: Arc<tokio::sync::Mutex<Option<JoinHandle<()>>>>,
}

impl Begun {
    async fn live(
        self,
        orders: ContainerOrders,
        asked: UnboundedReceiver<Said>,
        (stdout, stderr): (Sender, Sender),
    ) -> Result<Ran, Error> {
        let (name, docker) = (orders.name.as_str(), &self.daemon.quick);
        let named = CreateContainerOptionsBuilder::default().name(name).build();
        let created = docker.create_container(Some(named), orders.body).await?;
        self.made.set(created.id).ok();
        if asked.is_closed() {
            return Ok(Ran::default());
        }
        let all = AttachContainerOptionsBuilder::default().stdin(true).stdout(true).stderr(true).stream(true).build();
        let attached = docker.attach_container(name, Some(all)).await?;
        *self.reading.lock().await = Some(tokio::spawn(carry(attached.output, stdout, stderr)));
        tokio::spawn(tell(attached.input, orders.plan, asked));
        self.told_to_start.store(true, Ordering::Relaxed);
        docker.start_container(name, None::<StartContainerOptions>).await?;
        self.started.store(true, Ordering::Relaxed);
        tokio::spawn(note_first(self.daemon.clone(), name.to_owned(), Arc::clone(&self.first)));
        let exit_code = self.exit_code(name).await?;
        let exceeded = if exit_code == 0 { None } else { self.exceeded(name).await };
        Ok(Ran { started: true, exit_code: Some(exit_code), exceeded, trouble: None })
    }

    async fn exit_code(&self, name: &str) -> Result<i32, Error> {
        let options = WaitContainerOptionsBuilder::default().condition("not-running").build();
        let said = self.daemon.patient.wait_container(name, Some(options)).next().await;
        match said {
            Some(Ok(ended)) => Ok(code(ended.status_code)),
            Some(Err(Error::DockerContainerWaitError { code: status, .. })) => Ok(code(status)),
            Some(Err(_)) | None => self.exit_code_at_last(name).await,
        }
    }

    /// A daemon that was started anew still knows how its containers ended.
    async fn exit_code_at_last(&self, name: &str) -> Result<i32, Error> {
        let asking = async {
            loop {
                match self.daemon.quick.inspect_container(name, None).await {
                    Ok(found) => match found.state.filter(|state| state.running == Some(false)) {
                        Some(state) => return Ok(code(state.exit_code.unwrap_or(-1))),
                        None => sleep(AGAIN_EVERY).await,
                    },
                    Err(error @ Error::DockerResponseServerError { status_code: 404, .. }) => return Err(error),
                    Err(_) => sleep(AGAIN_EVERY).await,
                }
            }
        };
        timeout(AGAIN_FOR, asking).await.unwrap_or(Err(Error::RequestTimeoutError))
    }

    async fn exceeded(&self, name: &str) -> Option<Exceeded> {
        let found = self.daemon.quick.inspect_container(name, None).await.ok()?;
        (found.state?.oom_killed == Some(true)).then_some(Exceeded::Memory)
    }
}

/// Without it, what is deleted and still open is not counted; so it is asked for until it is known, or the container is gone.
async fn note_first(daemon: Daemon, name: String, first: Arc<AtomicI32>) {
    let asking = async {
        loop {
            match daemon.quick.inspect_container(&name, None).await {
                Ok(found) => {
                    let pid = found.state.and_then(|state| state.pid).and_then(|pid| i32::try_from(pid).ok());
                    // A daemon that counts processes otherwise than we do means another one.
                    let is_its = |pid: &i32| found.id.as_ref().is_some_and(|id| is_in(*pid, id));
                    return first.store(pid.filter(is_its).unwrap_or(0), Ordering::Relaxed);
                }
                Err(Error::DockerResponseServerError { status_code: 404, .. }) => return,
                Err(_) => sleep(AGAIN_EVERY).await,
            }
        }
    };
    timeout(AGAIN_FOR, asking).await.ok();
}

/// Whether a process is in the groups of a container, whose name is long enough to be no part of another's.
fn is_in(pid: i32, container: &str) -> bool {
    let groups = std::fs::read_to_string(format!("/proc/{pid}/cgroup"));
    container.len() >= NAME_MIN && groups.is_ok_and(|groups| groups.contains(container))
}

fn code(status: i64) -> i32 {
    i32::try_from(status).unwrap_or(-1)
}

/// Gives a container its plan, passes on what it is told, and closes its input when nobody can tell it anything any more.
async fn tell(mut input: impl AsyncWrite + Unpin, plan: Plan, mut told: UnboundedReceiver<Said>) {
    let Ok(mut line) = serde_json::to_vec(&plan) else { return };
    line.push(b'\n');
    if input.write_all(&line).await.is_err() {
        return;
    }
    while let Some(said) = told.recv().await {
        input.write_all(said.line(Boot::now()).as_bytes()).await.ok();
        input.flush().await.ok();
    }
    input.shutdown().await.ok();
}

/// Carries what a container writes to the worker, each stream to its own pipe, at the pace at which that is read.
async fn carry(
    mut output: impl Stream<Item = Result<LogOutput, Error>> + Unpin,
    mut stdout: Sender,
    mut stderr: Sender,
) {
    while let Some(Ok(part)) = output.next().await {
        let written = match part {
            LogOutput::StdErr { message } => stderr.write_all(&message).await,
            LogOutput::StdOut { message } | LogOutput::Console { message } => stdout.write_all(&message).await,
            LogOutput::StdIn { .. } => Ok(()),
        };
        if written.is_err() {
            return;
        }
    }
}
