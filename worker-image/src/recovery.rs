//! Ends what an earlier process of this host left behind: processes, directories, and its builds on the board.
//!
//! Only the holder of the builds root's lock does this, so it is harmless beside a live worker, and repeatable. The processes
//! end first. The builds are then seen to one beside the other, so that one that the board does not answer for, or whose
//! directory can't be removed, is in nobody's way.

use crate::api::Api;
use crate::clock::Boot;
use crate::complete::{self, Reported};
use crate::config::Place;
use crate::isolation::cgroup::end_leftovers;
use crate::proc::{self, Process};
use crate::remains::Remains;
use crate::site::Record;
use crate::workplace::Workplace;
use futures::future::join_all;
use nix::sys::signal::Signal;
use protocol::worker::Complete;
use protocol::{EndReason, Status};
use std::collections::BTreeSet;
use std::io;
use std::path::Path;
use std::time::Duration;
use tokio::sync::Mutex;
use tokio::task::spawn_blocking;
use tokio::time::{Instant, sleep, timeout};
use tracing::{info, warn};
use uuid::Uuid;

/// How long a killed process may take to be gone.
const PATIENCE: Duration = Duration::from_secs(20);

/// What was left behind, and what became of it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Recovered {
    /// Processes that were ended.
    pub processes: usize,
    /// Builds whose directories were removed.
    pub builds: usize,
    /// Builds whose directories could not be removed.
    pub stuck: usize,
    /// Builds whose ends the board was not told. Their directories are kept, for the next start to tell it.
    pub unreported: usize,
}

/// What was killed.
#[derive(Debug, Default)]
struct Killed {
    processes: BTreeSet<i32>,
    /// The builds that had a task running.
    builds: BTreeSet<String>,
}

/// What an earlier worker left behind, but for its processes, which have ended.
#[derive(Debug)]
pub struct Left {
    killed: Killed,
    builds: Vec<Uuid>,
    /// When the last of the processes was gone.
    ended_at: Boot,
}

impl Left {
    /// Ends the processes that are left.
    ///
    /// # Errors
    ///
    /// If one can't be ended, or the builds root can't be read.
    pub async fn behind(place: &Place, workplace: &Workplace) -> io::Result<Self> {
        let (killed, root) = (end_processes(place).await?, place.builds_root.clone());
        spawn_blocking(move || end_leftovers(&root)).await.map_err(io::Error::other)??;
        Ok(Self { killed, builds: workplace.builds()?, ended_at: Boot::now() })
    }

    /// Completes the builds that are still ours, and removes their directories. Ends once the board has answered for all, or
    /// `patience` is over.
    pub async fn settle(self, api: &Api, place: &Place, remains: &Remains, patience: Option<Duration>) -> Recovered {
        let one_at_a_time = Mutex::new(());
        let settled = join_all(self.builds.iter().map(async |build| {
            let directory = place.builds_root.join(build.to_string());
            let ended_by_us_at = self.killed.builds.contains(&build.to_string()).then_some(self.ended_at);
            let reporting = report(api, *build, &directory, ended_by_us_at);
            if !within(patience, reporting).await.unwrap_or(false) {
                return Settled::Unreported;
            }
            Record::forget(&directory);
            let _turn = one_at_a_time.lock().await;
            if remains.remove(&directory).await { Settled::Gone } else { Settled::Stuck }
        }));
        let settled = settled.await;
        let count = |as_what| settled.iter().filter(|settled| **settled == as_what).count();
        let (builds, stuck, unreported) = (count(Settled::Gone), count(Settled::Stuck), count(Settled::Unreported));
        let recovered = Recovered { processes: self.killed.processes.len(), builds, stuck, unreported };
        if recovered != Recovered::default() {
            let processes = recovered.processes;
            info!(processes, builds, stuck, unreported, "ended what an earlier worker left behind");
        }
        recovered
    }
}

/// What became of one build that was left behind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Settled {
    Gone,
    Stuck,
    Unreported,
}

async fn within<T>(patience: Option<Duration>, work: impl Future<Output = T>) -> Option<T> {
    match patience {
        Some(patience) => timeout(patience, work).await.ok(),
        None => Some(work.await),
    }
}

/// Kills the guards and proxies of this builds root, and bubblewraps without a guard, with all that descends from them.
async fn end_processes(place: &Place) -> io::Result<Killed> {
    let begun = Instant::now();
    let mut killed = Killed::default();
    loop {
        let processes = proc::all();
        let left = leftover(place, &processes);
        if left.is_empty() {
            return Ok(killed);
        }
        let guarded = processes.iter().filter(|process| left.contains(&process.pid)).filter_map(guarded_build);
        killed.builds.extend(guarded);
        if begun.elapsed() > PATIENCE {
            return Err(io::Error::other(format!("processes {left:?} of an earlier worker can't be ended")));
        }
        for pid in left {
            proc::signal(pid, Signal::SIGKILL);
            killed.processes.insert(pid);
        }
        sleep(Duration::from_millis(20)).await;
    }
}

/// The build whose task a guard watches over.
fn guarded_build(process: &Process) -> Option<String> {
    match process.args.as_slice() {
        [_, verb, option, build, ..] if verb == "guard" && option == "--build" => Some(build.clone()),
        _ => None,
    }
}

fn leftover(place: &Place, processes: &[Process]) -> Vec<i32> {
    let installed = place.installed().to_string_lossy().into_owned();
    let root = format!("{}/", place.builds_root.to_string_lossy());
    let is_ours = |arg: &String| ["guard", "enter", "egress", "network"].contains(&arg.as_str());
    let is_guard = |args: &[String]| args.first() == Some(&installed) && args.get(1).is_some_and(is_ours);
    let is_sandbox = |args: &[String]| {
        args.first().is_some_and(|arg| arg.ends_with("bwrap")) && args.iter().any(|arg| arg.starts_with(&root))
    };
    let ours = processes.iter().filter(|process| is_guard(&process.args) || is_sandbox(&process.args));
    let mut left: Vec<i32> = ours.map(|process| process.pid).collect();
    left.extend(proc::descendants(processes, &left));
    left.sort_unstable();
    left.dedup();
    left
}

/// Completes a build, if it may still be ours; one without a record was acknowledged, or never begun. Says whether nobody is to be
/// told any more.
async fn report(api: &Api, build: Uuid, directory: &Path, ended_by_us_at: Option<Boot>) -> bool {
    let Some(record) = Record::read(directory) else {
        return true;
    };
    let report = Complete {
        status: Status::Failed,
        end_reason: Some(EndReason::Recovery),
        error_message: Some("the worker was started again; what was left of the build was ended".into()),
        commit: None,
        ran_ms: record.ran_ms(directory, ended_by_us_at),
        last_seq: 0,
        logs_lost: true,
        steps: Vec::new(),
    };
    match complete::report(api, build, report).await {
        Reported::Yes | Reported::NotOurs => true,
        Reported::TokenRefused => false,
        Reported::Refused => {
            warn!(build.id = %build, "the board will end the build by itself");
            true
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::{Cli, Command};
    use crate::site::Site;
    use clap::Parser as _;

    #[tokio::test]
    async fn an_end_that_the_board_was_not_told_in_time_stays_on_record() {
        let root = tempfile::tempdir().unwrap();
        let (token, builds_root) = (root.path().join("token"), root.path().join("builds"));
        std::fs::write(&token, "t").unwrap();
        let line = ["callboard-worker", "recover", "--api-url", "http://127.0.0.1:1", "--token-file"];
        let cli = Cli::try_parse_from(line.into_iter().chain([token.to_str().unwrap()])).unwrap();
        let Command::Recover(args) = cli.command else { panic!("another command") };
        let config = args.config().unwrap();
        let (place, build) = (Place { builds_root, ..config.place.clone() }, Uuid::now_v7());
        std::fs::create_dir(&place.builds_root).unwrap();
        let record = Record { sent_at: Boot(1), max_duration_seconds: 1 };
        Site::make(&place, build, 0, Some(&record)).unwrap();
        let left = Left { killed: Killed::default(), builds: vec![build], ended_at: Boot(2) };
        let patience = Some(Duration::from_millis(100));
        let recovered = left.settle(&Api::new(&config).unwrap(), &place, &Remains::default(), patience).await;
        assert_eq!(recovered, Recovered { unreported: 1, ..Recovered::default() });
        assert_eq!(Record::read(&place.builds_root.join(build.to_string())), Some(record));
    }

    #[test]
    fn what_is_left_of_this_builds_root_is_found_and_nothing_else() {
        let place = Place { builds_root: "/b".into(), first_uid: 1, binary: "/w".into() };
        let process =
            |pid, parent, args: &str| Process { pid, parent, args: args.split(' ').map(str::to_owned).collect() };
        let processes = [
            process(10, 1, "/b/.bin/callboard-worker guard --build x"),
            process(11, 10, "/usr/bin/bwrap --bind /b/x/workspace /workspace"),
            process(12, 11, "/run/callboard/init sandbox-init"),
            process(13, 12, "sh"),
            process(20, 1, "/other/.bin/callboard-worker guard --build y"),
            process(21, 20, "/usr/bin/bwrap --bind /other/y/workspace /workspace"),
            process(30, 1, "bwrap --ro-bind /b/.bin/callboard-worker /x"),
            process(40, 1, "vi /b/x"),
            process(45, 1, "/b/.bin/callboard-worker enter --user 1"),
            process(50, 1, "/b/.bin/callboard-worker egress --build x"),
            process(51, 1, "/b/.bin/callboard-worker network --build x"),
        ];
        assert_eq!(leftover(&place, &processes), [10, 11, 12, 13, 30, 45, 50, 51]);
    }
}
