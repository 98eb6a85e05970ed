//! The stack's worker: `callboard-worker` as a child, with its token in a file, kept running.

use crate::keep::{self, Care, Keeper};
use crate::{keys, leftovers};
use anyhow::{Context as _, bail};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use std::fs;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};
use std::process::{Output, Stdio};
use std::time::Duration;
use tokio::process::{Child, Command};

/// How long a worker may take to end its builds before it is killed.
const PATIENCE: Duration = Duration::from_secs(30);
/// The same where nobody listens to their end.
const UNHEARD: Duration = Duration::from_secs(3);
/// The first TERM lets builds go on; the second, so much later, ends them.
const AT_ONCE: Duration = Duration::from_millis(200);

/// What a stack on somebody's own machine may do without: only root, or a unit of systemd's, can limit all of it.
const LIMITS: &str = "memory,processes,cpu,disk";

/// How the worker is to run.
#[derive(Clone, Debug)]
pub struct Options {
    /// Where the control plane is.
    pub api_url: String,
    /// The stack's directory.
    pub dir: PathBuf,
    /// Certificates to trust besides the system's.
    pub ca_bundle: Option<PathBuf>,
    /// What builds may reach besides public addresses: `host:port`.
    pub egress_allow: Vec<String>,
    /// The limits that builds may do without.
    pub accept: Vec<String>,
    /// How many builds at once.
    pub slots: u32,
    /// Whether the next one starts when it dies.
    pub restart: bool,
    /// Arguments of a test's own.
    pub extra: Vec<String>,
}

/// A worker that runs, and is started again if it dies.
#[derive(Debug)]
pub struct Worker {
    keeper: Keeper,
    dir: PathBuf,
}

/// Where the worker's binary is: beside our own.
///
/// # Errors
///
/// If it is not there.
pub fn binary() -> anyhow::Result<PathBuf> {
    let ours = std::env::current_exe().context("this program's own file can't be found")?;
    let beside = ours.parent().map(|folder| [folder.to_owned(), folder.join("..")]).into_iter().flatten();
    let found = beside.map(|folder| folder.join("callboard-worker")).find(|path| path.exists());
    found.context("callboard-worker is not beside this program: build it with `cargo build -p callboard-worker`")
}

/// Whether a worker with its builds below `dir` would take `tools`, as itself says; if not, why.
///
/// # Errors
///
/// If it can't be asked.
pub async fn takes(dir: &Path, tools: &Path) -> anyhow::Result<Result<(), String>> {
    let mut asked = Command::new(binary()?);
    asked.arg("place").arg("--builds-root").arg(dir.join("builds")).arg("--tools").arg(tools);
    let said = asked.kill_on_drop(true).output().await.context("callboard-worker can't be started")?;
    let why = || String::from_utf8_lossy(&said.stderr).trim().to_owned();
    Ok(if said.status.success() { Ok(()) } else { Err(why()) })
}

/// What `callboard-worker doctor` says: `Ok` if builds can run here, with those limits that they can't be held to; else its own
/// words.
///
/// # Errors
///
/// Why no sandbox can work, and how to mend it.
pub async fn doctor(dir: &Path) -> anyhow::Result<Vec<String>> {
    let said = examine(dir, &["--json"]).await?;
    if said.status.success() {
        return Ok(missing(&serde_json::from_slice(&said.stdout).context("what callboard-worker doctor says")?));
    }
    let said = examine(dir, &[]).await?;
    bail!("{}{}", String::from_utf8_lossy(&said.stdout), String::from_utf8_lossy(&said.stderr))
}

async fn examine(dir: &Path, args: &[&str]) -> anyhow::Result<Output> {
    let mut command = Command::new(binary()?);
    command
        .args(["doctor", "--isolation", "bubblewrap", "--accept", LIMITS, "--builds-root"])
        .arg(dir.join("builds"))
        .args(args);
    Ok(command.kill_on_drop(true).output().await?)
}

fn missing(examined: &serde_json::Value) -> Vec<String> {
    let given = examined.pointer("/isolation/0/given").and_then(serde_json::Value::as_array);
    let missing = given.into_iter().flatten().filter(|given| given.get("held") == Some(&false.into()));
    missing.filter_map(|given| Some(given.get("guarantee")?.as_str()?.to_owned())).collect()
}

/// One line about what builds are not held to here; none if there is nothing to say.
#[must_use]
pub fn unlimited(accepted: &[String]) -> Option<String> {
    let (last, others) = accepted.split_last()?;
    let what = if others.is_empty() { last.clone() } else { format!("{} and {last}", others.join(", ")) };
    Some(format!("A step's {what}: not limited for this user here (`callboard-worker doctor` says why)"))
}

impl Worker {
    /// Starts it.
    ///
    /// # Errors
    ///
    /// If its binary or its directory is missing.
    pub fn start(options: Options, token: &str) -> anyhow::Result<Self> {
        let token_file = options.dir.join("worker.token");
        keys::write(&token_file, token)?;
        fs::DirBuilder::new().recursive(true).mode(0o711).create(options.dir.join("builds"))?;
        let binary = binary()?;
        end_orphans(&options.dir);
        let log = options.dir.join("worker.log");
        let deaths_max = if options.restart { None } else { Some(0) };
        let ending = vec![(Signal::SIGTERM, AT_ONCE), (Signal::SIGTERM, PATIENCE)];
        let care = Care { name: "the worker", log: log.clone(), deaths_max, ending };
        let dir = options.dir.clone();
        let spawn = move || spawn(&binary, &token_file, &log, &options);
        Ok(Self { keeper: Keeper::of(spawn()?, care, spawn), dir })
    }

    /// Its process, if one runs now.
    #[must_use]
    pub fn pid(&self) -> Option<i32> {
        self.keeper.pid()
    }

    /// Ends it where no board takes its reports: the builds that run are ended without.
    pub async fn stop_at_once(mut self) {
        if tokio::time::timeout(UNHEARD, self.keeper.end()).await.is_err()
            && let Some(pid) = self.keeper.pid()
        {
            let _ = kill(Pid::from_raw(pid), Signal::SIGKILL);
            self.keeper.end().await;
        }
        end_previews(&self.dir).await;
    }

    /// Ends it: builds that run are stopped and reported as `worker_shutdown`.
    pub async fn stop(mut self) {
        self.keeper.end().await;
        end_previews(&self.dir).await;
    }
}

/// Ends the previews that a worker left which could not do it itself: nothing of a stack outlives it.
async fn end_previews(dir: &Path) {
    let program = dir.join("builds/.bin/callboard-worker");
    for (signal, tries) in [(Signal::SIGTERM, 300), (Signal::SIGKILL, 100)] {
        for _ in 0..tries {
            let keepers = called(&program, "keep", dir);
            if keepers.is_empty() {
                return;
            }
            for pid in keepers {
                let _ = kill(Pid::from_raw(pid), signal);
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }
}

/// The processes that were called as `program verb …`.
fn called(program: &Path, verb: &str, dir: &Path) -> Vec<i32> {
    let beginning = [program.as_os_str().as_encoded_bytes(), b"\0", verb.as_bytes(), b"\0"].concat();
    let arguments = |pid: &u32| fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    let found = leftovers::processes(dir).into_iter().filter(|pid| arguments(pid).starts_with(&beginning));
    found.filter_map(|pid| i32::try_from(pid).ok()).filter(|pid| *pid > 1).collect()
}

/// Ends workers of a stack on this directory that was killed: we hold its lock, so they are nobody's. Their guards end the
/// sandboxes, and the next worker reports the builds as `recovery`.
fn end_orphans(dir: &Path) {
    let token_file = dir.join("worker.token");
    let needle = token_file.as_os_str().as_encoded_bytes();
    for pid in leftovers::processes(&token_file) {
        let arguments = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        let is_worker = arguments.split(|byte| *byte == 0).any(|argument| argument == needle);
        if let Some(pid) = i32::try_from(pid).ok().filter(|_| is_worker) {
            tracing::warn!(pid, "ending a worker that outlived its stack");
            let _ = kill(Pid::from_raw(pid), Signal::SIGKILL);
        }
    }
}

fn spawn(binary: &Path, token_file: &Path, log: &Path, options: &Options) -> anyhow::Result<Child> {
    let output = keep::open_log(log).with_context(|| format!("{} can't be written", log.display()))?;
    let mut command = Command::new(binary);
    command.args(["run", "--until-stdin-ends", "--api-url", &options.api_url, "--name", "local"]);
    command.arg("--token-file").arg(token_file).arg("--builds-root").arg(options.dir.join("builds"));
    command.arg("--slots").arg(options.slots.to_string());
    if let Some(bundle) = &options.ca_bundle {
        command.arg("--ca-bundle").arg(bundle);
    }
    for allowed in &options.egress_allow {
        command.arg("--egress-allow").arg(allowed);
    }
    if !options.accept.is_empty() {
        command.arg("--accept").arg(options.accept.join(","));
    }
    // A newcomer's stack has nothing to do with whatever else uses the host's container daemon.
    if !options.extra.iter().any(|argument| argument == "--isolation") {
        command.args(["--isolation", "bubblewrap"]);
    }
    command.args(&options.extra);
    // Ctrl-C in our terminal is for us: we stop the worker in our order.
    command.process_group(0).kill_on_drop(true).stdin(Stdio::piped());
    command.stdout(output.try_clone()?).stderr(output).spawn().context("callboard-worker can't be run")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_builds_are_not_held_to_is_one_line() {
        let given = serde_json::json!([{"guarantee": "seccomp", "held": true}, {"guarantee": "memory", "held": false}]);
        assert_eq!(missing(&serde_json::json!({"isolation": [{"given": given}]})), ["memory"]);
        let line = |words: &[&str]| unlimited(&words.iter().map(|word| (*word).to_owned()).collect::<Vec<_>>());
        assert_eq!(line(&[]), None);
        assert!(line(&["cpu"]).unwrap().starts_with("A step's cpu: not limited"));
        assert!(line(&["memory", "processes", "cpu"]).unwrap().starts_with("A step's memory, processes and cpu: not"));
    }
}
