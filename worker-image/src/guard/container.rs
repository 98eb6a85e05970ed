//! Watches one container until it is over: the same as for a sandbox, but the daemon starts it, and the daemon may hang.
//!
//! Everything that is asked of the daemon has its time. A container whose guard is gone ends by itself, since its first process
//! hears the end of its input; what stays of it, the next recovery removes.

use super::ending::Ending;
use super::lines::Lines;
use super::measure::Measure;
use crate::clock::{Boot, sleep_until};
use crate::isolation::Exceeded;
use crate::isolation::docker::{Daemon, Life, Ran};
use crate::isolation::plan::{ContainerOrders, Report, Word};
use crate::mark::Mark;
use crate::proc;
use std::io;
use std::os::fd::AsFd as _;
use std::time::Duration;
use tokio::io::{AsyncBufReadExt as _, BufReader};
use tokio::net::UnixStream;
use tokio::net::unix::pipe::Sender;
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};
use tokio::time::{sleep, timeout};

/// How long after its kill a container's end is awaited, before that is told as trouble.
const KILL_PATIENCE: Duration = Duration::from_secs(3);
/// How often a kill is tried.
const KILL_EVERY: Duration = Duration::from_millis(500);
/// How often it is looked whether the disk is full.
const LOOK_EVERY: Duration = Duration::from_millis(250);
/// How long the removal of a container that has ended may take.
const REMOVE_PATIENCE: Duration = Duration::from_secs(5);

/// The life of a guard that watches over a container.
pub(super) fn guard(orders: ContainerOrders, lines: Lines) -> io::Result<Report> {
    if orders.fence_at.has_come() {
        return Ok(Report { fenced: true, ..Report::default() });
    }
    let mark = Mark::open(&orders.ended_mark)?;
    mark.set(None)?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let report = runtime.block_on(watch_over(orders, lines, &mark));
    // What the daemon has not answered yet is nobody's any more.
    runtime.shutdown_background();
    report
}

async fn watch_over(orders: ContainerOrders, lines: Lines, mark: &Mark) -> io::Result<Report> {
    let daemon = Daemon::at(orders.daemon.clone()).map_err(io::Error::other)?;
    let (words, name) = (words(lines)?, orders.name.clone());
    // Descriptors of our own for the outputs that the worker reads.
    let stdout = Sender::from_owned_fd(io::stdout().as_fd().try_clone_to_owned()?)?;
    let stderr = Sender::from_owned_fd(io::stderr().as_fd().try_clone_to_owned()?)?;
    let mut watch = Watch::new(&orders, daemon.clone());
    let (bounded, disk_bytes, is_kept) = (orders.bounded.clone(), orders.disk_bytes, orders.is_kept);
    let mut life = Life::new(daemon.clone(), orders, stdout, stderr);
    if !bounded.is_empty() {
        watch.measure = Measure::start(&bounded, disk_bytes, processes(life.first()))?;
    }
    watch.tell_fence(&life);
    let ran = watch.until_it_is_over(&mut life, words).await;
    // Only a recovery would read it.
    mark.set(Some(Boot::now())).ok();
    // From a daemon that hangs nothing is to be expected.
    if ran.trouble.is_none() {
        life.until_read().await;
    }
    if !is_kept {
        remove(&daemon, &name).await;
    }
    Ok(watch.report(ran))
}

/// Hears what the worker says, until it is gone. A word that a newer worker knows is passed over.
fn words(lines: Lines) -> io::Result<UnboundedReceiver<Word>> {
    let (socket, read) = lines.into_parts();
    socket.set_nonblocking(true)?;
    let socket = UnixStream::from_std(socket)?;
    let (telling, told) = unbounded_channel();
    tokio::spawn(async move {
        let mut lines = BufReader::new(tokio::io::AsyncReadExt::chain(read.as_slice(), socket)).lines();
        while let Ok(Some(line)) = lines.next_line().await {
            serde_json::from_str(&line).map(|word| telling.send(word)).ok();
        }
    });
    Ok(told)
}

/// The processes of a container, of which `first` is the first.
fn processes(first: impl Fn() -> Option<i32> + Send + 'static) -> impl Fn() -> Vec<i32> + Send + 'static {
    move || {
        let first = first();
        first.map(|first| proc::descendants(&proc::all(), &[first])).into_iter().flatten().chain(first).collect()
    }
}

/// A container that can't be removed now is the recovery's.
async fn remove(daemon: &Daemon, name: &str) {
    let removed = async {
        while daemon.remove(name).await.is_err() {
            sleep(KILL_EVERY).await;
        }
    };
    timeout(REMOVE_PATIENCE, removed).await.ok();
}

struct Watch {
    daemon: Daemon,
    name: String,
    fence_at: Boot,
    tells_fence: bool,
    kill_grace: Duration,
    measure: Measure,
    ending: Option<Ending>,
    killed_at: Option<Boot>,
    kill_again_at: Boot,
}

impl Watch {
    fn new(orders: &ContainerOrders, daemon: Daemon) -> Self {
        Self {
            daemon,
            name: orders.name.clone(),
            fence_at: orders.fence_at,
            tells_fence: orders.tells_fence,
            kill_grace: Duration::from_millis(orders.kill_grace_ms),
            measure: Measure::default(),
            ending: None,
            killed_at: None,
            kill_again_at: Boot(0),
        }
    }

    async fn until_it_is_over(&mut self, life: &mut Life, mut words: UnboundedReceiver<Word>) -> Ran {
        let mut is_alone = false;
        loop {
            tokio::select! {
                ran = life.until_ended() => return ran,
                word = words.recv(), if !is_alone => match word {
                    Some(Word::FenceAt(at)) => {
                        self.fence_at = self.fence_at.max(at);
                        self.tell_fence(life);
                    }
                    Some(Word::Terminate) => self.begin_to_end(life, false),
                    Some(Word::Kill) => self.kill(life),
                    None => {
                        is_alone = true;
                        self.begin_to_end(life, false);
                    }
                },
                () = sleep_until(|| self.due()) => self.end_what_is_due(life),
                () = sleep(LOOK_EVERY) => {}
            }
            // Whoever has filled the disk has no use for a grace.
            if self.killed_at.is_none() && self.measure.is_over() {
                self.kill(life);
            }
            if self.killed_at.is_some_and(|at| at.plus(KILL_PATIENCE).has_come()) {
                let trouble = "the container daemon did not end it; what is left is the next recovery's";
                return Ran { started: life.is_started(), trouble: Some(trouble.into()), ..Ran::default() };
            }
        }
    }

    /// All processes must have ended once the grace after the fence is over, unless that moves.
    fn tell_fence(&self, life: &Life) {
        if self.tells_fence {
            life.renew(self.fence_at.plus(self.kill_grace));
        }
    }

    fn due(&self) -> Boot {
        match (self.killed_at, self.ending) {
            (Some(_), _) => self.kill_again_at,
            (None, Some(ending)) => ending.kill_at,
            (None, None) => self.fence_at,
        }
    }

    fn end_what_is_due(&mut self, life: &mut Life) {
        match (self.killed_at, self.ending) {
            (Some(_), _) => self.kill(life),
            (None, None) if self.fence_at.has_come() => self.begin_to_end(life, true),
            (None, Some(ending)) if ending.kill_at.has_come() => self.kill(life),
            (None, _) => {}
        }
    }

    /// What has not started yet is not asked but ended.
    fn begin_to_end(&mut self, life: &mut Life, fenced: bool) {
        if self.ending.is_some() {
            return;
        }
        self.ending = Some(Ending::begin(self.kill_grace, fenced));
        if !life.ask() {
            self.kill(life);
        }
    }

    /// Tells the daemon, without waiting for it, and the container's first process, which may still hear when the daemon does not;
    /// where this is the daemon's own host, neither has to.
    fn kill(&mut self, life: &mut Life) {
        self.killed_at.get_or_insert_with(Boot::now);
        self.kill_again_at = Boot::now().plus(KILL_EVERY);
        life.let_go();
        life.kill_past_the_daemon();
        let (daemon, name) = (self.daemon.clone(), self.name.clone());
        tokio::spawn(async move { daemon.signal(&name, "SIGKILL").await });
    }

    fn report(&self, ran: Ran) -> Report {
        let fenced = self.ending.is_some_and(|ending| ending.fenced);
        let exceeded = self.measure.is_over().then_some(Exceeded::Disk).or(ran.exceeded);
        Report { started: ran.started, exit_code: ran.exit_code, exceeded, fenced, trouble: ran.trouble }
    }
}
