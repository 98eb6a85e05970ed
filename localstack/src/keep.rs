//! A child that is kept running: started again when it dies, after pauses that grow, with a word to whoever looks on; its
//! output in a file that does not grow without end.

use crate::say;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use std::fs::{self, File};
use std::io::{self, Read as _, Seek as _, SeekFrom};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::process::ExitStatus;
use std::time::{Duration, Instant};
use tokio::process::Child;
use tokio::sync::watch;
use tokio::task::JoinHandle;

/// The longest pause between a death and the next start.
const PAUSE_MAX: Duration = Duration::from_secs(60);
/// One that lived for longer was sound: its death begins a new count.
const SOUND: Duration = Duration::from_secs(60);
/// How large a child's log may get; as much of what came before is kept beside it.
const LOG_MAX_BYTES: u64 = 8 * 1024 * 1024;
/// How often its size is looked at.
const LOOK_EVERY: Duration = Duration::from_secs(5);

/// How a child is to be kept.
#[derive(Clone, Debug)]
pub(crate) struct Care {
    /// What it is, for people.
    pub(crate) name: &'static str,
    /// Where its output goes.
    pub(crate) log: PathBuf,
    /// After how many deaths in a row it is given up; none: never; 0: it is not started again.
    pub(crate) deaths_max: Option<u32>,
    /// How it is asked to end: each signal, and how long it may then take. After the last it is killed.
    pub(crate) ending: Vec<(Signal, Duration)>,
}

/// What has become of a child.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum State {
    /// It runs as this process.
    Running(i32),
    /// It died, and will be started again.
    Down,
    /// It died for good: how.
    GivenUp(String),
}

/// Keeps a child running until it is stopped.
#[derive(Debug)]
pub(crate) struct Keeper {
    stop: watch::Sender<bool>,
    state: watch::Receiver<State>,
    task: JoinHandle<()>,
}

impl Keeper {
    /// Keeps `child`, which runs already; `spawn` makes its successors.
    pub(crate) fn of(child: Child, care: Care, spawn: impl FnMut() -> anyhow::Result<Child> + Send + 'static) -> Self {
        let (stop, stopped) = watch::channel(false);
        let (changes, state) = watch::channel(State::Running(pid_of(&child)));
        Self { stop, state, task: tokio::spawn(keep(child, care, spawn, stopped, changes)) }
    }

    /// Its process, if one runs now.
    pub(crate) fn pid(&self) -> Option<i32> {
        match *self.state.borrow() {
            State::Running(pid) => Some(pid),
            State::Down | State::GivenUp(_) => None,
        }
    }

    /// Waits until it is given up; returns how it died.
    pub(crate) async fn given_up(&self) -> String {
        let mut state = self.state.clone();
        match state.wait_for(|state| matches!(state, State::GivenUp(_))).await.as_deref() {
            Ok(State::GivenUp(how)) => how.clone(),
            Ok(State::Running(_) | State::Down) | Err(_) => std::future::pending().await,
        }
    }

    /// That it is to end; nothing is started any more.
    pub(crate) fn ask(&self) {
        let _ = self.stop.send(true);
    }

    /// Ends it, and waits until it is gone.
    pub(crate) async fn end(&mut self) {
        self.ask();
        let _ = (&mut self.task).await;
    }
}

async fn keep(
    child: Child,
    care: Care,
    mut spawn: impl FnMut() -> anyhow::Result<Child> + Send + 'static,
    mut stopped: watch::Receiver<bool>,
    changes: watch::Sender<State>,
) {
    let mut next = Ok(child);
    let mut deaths = 0;
    loop {
        let begun = Instant::now();
        let how = match next {
            Ok(child) => {
                let _ = changes.send(State::Running(pid_of(&child)));
                match live(child, &care, &mut stopped).await {
                    Some(status) => format!("ended ({})", in_words(status)),
                    None => return,
                }
            }
            Err(error) => format!("can't be started: {error:#}"),
        };
        deaths = if begun.elapsed() > SOUND { 1 } else { deaths + 1 };
        if care.deaths_max.is_some_and(|max| deaths > max) {
            let _ = changes.send(State::GivenUp(format!("{} {how}; {}", care.name, last_words(&care.log))));
            return asked(&mut stopped).await;
        }
        let _ = changes.send(State::Down);
        let pause = pause_after(deaths);
        say::err(told(&care, &how, deaths, pause));
        tokio::select! {
            () = tokio::time::sleep(pause) => {}
            () = asked(&mut stopped) => return,
        }
        next = spawn();
    }
}

/// Until the child dies: how it did. `None` if it was ended because somebody asked for that.
async fn live(mut child: Child, care: &Care, stopped: &mut watch::Receiver<bool>) -> Option<io::Result<ExitStatus>> {
    // A worker stops when this end closes, with us or before.
    let _line = child.stdin.take();
    let mut looks = tokio::time::interval(LOOK_EVERY);
    loop {
        tokio::select! {
            status = child.wait() => return (!*stopped.borrow()).then_some(status),
            () = asked(stopped) => {
                end(&mut child, &care.ending).await;
                return None;
            }
            _ = looks.tick() => {
                if let Err(error) = bound(&care.log, LOG_MAX_BYTES) {
                    tracing::warn!(%error, "{} can't be kept small", care.log.display());
                }
            }
        }
    }
}

/// Waits until it is to end.
async fn asked(stopped: &mut watch::Receiver<bool>) {
    let _ = stopped.wait_for(|stop| *stop).await;
}

async fn end(child: &mut Child, ending: &[(Signal, Duration)]) {
    let pid = pid_of(child);
    for (signal, patience) in ending {
        if pid > 1 {
            let _ = kill(Pid::from_raw(pid), *signal);
        }
        if tokio::time::timeout(*patience, child.wait()).await.is_ok() {
            return;
        }
    }
    let _ = child.kill().await;
}

/// 0 for one that has ended.
fn pid_of(child: &Child) -> i32 {
    child.id().and_then(|pid| i32::try_from(pid).ok()).unwrap_or(0)
}

fn in_words(status: io::Result<ExitStatus>) -> String {
    status.map_or_else(|error| error.to_string(), |status| status.to_string())
}

/// 1 s after the first death, then twice as long each time.
fn pause_after(deaths: u32) -> Duration {
    Duration::from_secs(1 << deaths.saturating_sub(1).min(6)).min(PAUSE_MAX)
}

fn told(care: &Care, how: &str, deaths: u32, pause: Duration) -> String {
    let again = if deaths > 1 { format!(", {deaths} times in a row") } else { String::new() };
    let Care { name, log, .. } = care;
    format!("callboard: {name} {how}{again}; the next try is in {} s; {}", pause.as_secs(), last_words(log))
}

fn last_words(log: &Path) -> String {
    match end_of(log, 1).as_str() {
        "" => format!("its log is {}", log.display()),
        words => format!("its last words in {}: {words}", log.display()),
    }
}

/// The last lines that a child wrote, harmless.
pub(crate) fn end_of(log: &Path, lines: usize) -> String {
    let mut end = Vec::new();
    let _ = File::open(log).and_then(|mut file| {
        let size = file.metadata()?.len();
        file.seek(SeekFrom::Start(size.saturating_sub(8 * 1024)))?;
        file.take(8 * 1024).read_to_end(&mut end)
    });
    let text = String::from_utf8_lossy(&end);
    let last: Vec<String> = text.lines().filter(|line| !line.trim().is_empty()).map(crate::clean::plain).collect();
    last[last.len().saturating_sub(lines)..].join("\n")
}

/// A child's log, opened so that it can be cut while the child writes: each write goes to what is the end then.
pub(crate) fn open_log(path: &Path) -> io::Result<File> {
    File::options().append(true).create(true).mode(0o600).open(path)
}

/// Moves the end of a log that is too large beside it, and begins it anew. What is written in between is lost.
fn bound(log: &Path, max_bytes: u64) -> io::Result<()> {
    if fs::metadata(log)?.len() <= max_bytes {
        return Ok(());
    }
    let mut file = File::options().read(true).write(true).open(log)?;
    let size = file.metadata()?.len();
    file.seek(SeekFrom::Start(size.saturating_sub(max_bytes)))?;
    let mut name = log.as_os_str().to_owned();
    name.push(".1");
    let mut before = File::options().write(true).create(true).truncate(true).mode(0o600).open(name)?;
    io::copy(&mut (&file).take(max_bytes), &mut before)?;
    file.set_len(0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Stdio;
    use tokio::process::Command;

    fn shell(script: &str, log: &Path) -> anyhow::Result<Child> {
        let mut command = Command::new("sh");
        command.args(["-c", script]).stdin(Stdio::piped()).kill_on_drop(true);
        Ok(command.stdout(Stdio::null()).stderr(open_log(log)?).spawn()?)
    }

    fn care(log: &Path, deaths_max: Option<u32>) -> Care {
        let ending = vec![(Signal::SIGTERM, Duration::from_secs(5))];
        Care { name: "the child", log: log.to_owned(), deaths_max, ending }
    }

    #[test]
    fn pauses_grow_to_a_minute() {
        let pauses = [1, 2, 3, 4, 5, 6, 7, 1000].map(|deaths| pause_after(deaths).as_secs());
        assert_eq!(pauses, [1, 2, 4, 8, 16, 32, 60, 60]);
    }

    #[test]
    fn a_death_is_told_with_its_count_the_pause_and_the_last_words() {
        let dir = tempfile::tempdir().unwrap();
        let log = dir.path().join("log");
        let care = care(&log, None);
        let told_first = told(&care, "ended (exit status: 70)", 1, Duration::from_secs(1));
        assert!(told_first.contains("ended (exit status: 70); the next try is in 1 s; its log is "), "{told_first}");
        fs::write(&log, "first\nno \u{1b}[2Jdescriptors left\n\n").unwrap();
        let told = told(&care, "ended (exit status: 70)", 4, Duration::from_secs(8));
        assert!(told.contains("4 times in a row; the next try is in 8 s"), "{told}");
        assert!(told.ends_with(": no descriptors left"), "{told}");
    }

    #[tokio::test]
    async fn one_that_dies_is_started_again_and_given_up_after_so_many_deaths() {
        let dir = tempfile::tempdir().unwrap();
        let log = dir.path().join("log");
        let first = shell("echo first >&2; exit 3", &log).unwrap();
        let (place, starts) = (log.clone(), std::sync::Arc::new(std::sync::atomic::AtomicU32::new(1)));
        let counted = starts.clone();
        let mut keeper = Keeper::of(first, care(&log, Some(1)), move || {
            counted.fetch_add(1, std::sync::atomic::Ordering::SeqCst);
            shell("echo second >&2; exit 4", &place)
        });
        let how = keeper.given_up().await;
        assert!(how.contains("exit status: 4") && how.ends_with(": second"), "{how}");
        assert_eq!(starts.load(std::sync::atomic::Ordering::SeqCst), 2);
        assert_eq!(keeper.pid(), None);
        keeper.end().await;
    }

    #[tokio::test]
    async fn an_end_that_is_asked_for_is_no_death() {
        let dir = tempfile::tempdir().unwrap();
        let log = dir.path().join("log");
        let child = shell("exec sleep 600", &log).unwrap();
        let mut keeper = Keeper::of(child, care(&log, None), || panic!("it is not started again"));
        let pid = keeper.pid().unwrap();
        keeper.end().await;
        assert!(kill(Pid::from_raw(pid), None).is_err(), "it is gone, not only asked to go");
    }

    #[test]
    fn a_log_is_cut_while_it_is_written_and_its_end_is_kept() {
        let dir = tempfile::tempdir().unwrap();
        let log = dir.path().join("log");
        let mut writer = open_log(&log).unwrap();
        let write = |writer: &mut File, text: &str| std::io::Write::write_all(writer, text.as_bytes()).unwrap();
        write(&mut writer, "0123456789");
        bound(&log, 10).unwrap();
        assert_eq!(fs::read_to_string(&log).unwrap(), "0123456789");
        write(&mut writer, "ab");
        bound(&log, 10).unwrap();
        assert_eq!(fs::read_to_string(dir.path().join("log.1")).unwrap(), "23456789ab");
        write(&mut writer, "c");
        assert_eq!(fs::read_to_string(&log).unwrap(), "c");
    }
}
