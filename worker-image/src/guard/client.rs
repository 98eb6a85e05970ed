//! The worker's side of a guard: starts it, speaks to it, hears its report.

use crate::clock::Boot;
use crate::isolation::plan::{Errand, Report, Word};
use crate::isolation::{Control, Ended, Running};
use futures::FutureExt as _;
use std::io::{self, BufRead as _, BufReader, Write as _};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::Stdio;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::process::{Child, Command};
use tokio::task::spawn_blocking;

/// How long a word may take to be heard; a guard that is stopped must not stop the heartbeats.
const PATIENCE: Duration = Duration::from_secs(2);

/// Starts a guard for a task of `build`.
///
/// # Errors
///
/// If the process can't be started or does not take its orders.
pub async fn start(binary: &Path, build: &str, errand: &Errand) -> io::Result<Running> {
    let (ours, its) = UnixStream::pair()?;
    ours.set_write_timeout(Some(PATIENCE))?;
    let mut guard = Command::new(binary)
        .args(["guard", "--build", build])
        .env_clear()
        .current_dir("/")
        .stdin(Stdio::from(OwnedFd::from(its)))
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        // A guard that does not answer any more ends with all that it guards.
        .kill_on_drop(true)
        .spawn()?;
    let (stdout, stderr) = guard.stdout.take().zip(guard.stderr.take()).ok_or(io::ErrorKind::BrokenPipe)?;
    let reports = ours.try_clone()?;
    let line = Arc::new(Line { socket: Mutex::new(ours) });
    let (telling, errand) = (Arc::clone(&line), json(errand)?);
    spawn_blocking(move || telling.write(&errand)).await.map_err(io::Error::other)??;
    let ended = ended(guard, reports).boxed();
    Ok(Running { stdout: Box::new(stdout), stderr: Box::new(stderr), control: line, ended })
}

/// The line to a guard.
#[derive(Debug)]
struct Line {
    socket: Mutex<UnixStream>,
}

impl Line {
    fn write(&self, line: &[u8]) -> io::Result<()> {
        self.socket.lock().unwrap_or_else(PoisonError::into_inner).write_all(line)
    }

    /// A guard that is gone needs no word.
    fn say(&self, word: Word) {
        json(&word).and_then(|line| self.write(&line)).ok();
    }
}

fn json(said: &impl serde::Serialize) -> io::Result<Vec<u8>> {
    let mut line = serde_json::to_vec(said)?;
    line.push(b'\n');
    Ok(line)
}

impl Control for Line {
    fn renew(&self, fence_at: Boot) {
        self.say(Word::FenceAt(fence_at));
    }

    fn terminate(&self) {
        self.say(Word::Terminate);
    }

    fn kill(&self) {
        self.say(Word::Kill);
    }
}

/// Waits for the report, and for the guard's own end. A guard that says nothing was killed, and its sandbox with it.
async fn ended(mut guard: Child, reports: UnixStream) -> Ended {
    let report = spawn_blocking(move || {
        let mut line = String::new();
        BufReader::new(reports).read_line(&mut line).ok()?;
        serde_json::from_str::<Report>(&line).ok()
    });
    let report = report.await.ok().flatten();
    guard.wait().await.ok();
    report.map_or_else(|| Ended::Broken("its guard was killed".into()), meaning)
}

fn meaning(report: Report) -> Ended {
    if report.fenced {
        return Ended::Fenced;
    }
    let exceeded = report.exceeded;
    match (report.started, report.exit_code, report.trouble) {
        (true, Some(code), None) => Ended::Exited { code, exceeded },
        (true, _, Some(trouble)) => Ended::Broken(trouble),
        (false, _, Some(trouble)) => Ended::NeverStarted(trouble),
        (false, Some(code), None) => Ended::NeverStarted(format!("bubblewrap ended with {code}")),
        (false, None, None) => Ended::NeverStarted("it was ended before its program began".into()),
        (true, None, None) => Ended::Broken("the sandbox was lost".into()),
    }
}
