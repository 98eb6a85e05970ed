//! Ends what an earlier process of this host left behind: processes, directories, and its builds on the board.
//!
//! Only the holder of the builds root's lock does this, so it is harmless beside a live worker, and repeatable. The processes
//! end first, but for those of previews whose keepers live, and what descends from them. The builds are then seen to one beside the other, so that one that the board does not answer for, or whose
//! directory can't be removed, is in nobody's way.

use crate::api::Api;
use crate::clock::Boot;
use crate::complete::{self, Reported};
use crate::config::Place;
use crate::isolation::cgroup::end_leftovers;
use crate::isolation::ecs::Ecs;
use crate::previews::{self, folder::Folder};
use crate::proc::{self, Process};
use crate::remains::Remains;
use crate::site::Record;
use crate::trace::span;
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
use tracing::{Instrument as _, info, warn};
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
        let (living, root) = (previews::living(&place.builds_root).await?, place.builds_root.clone());
        let keepers: Vec<i32> = living.values().copied().collect();
        let killed = end_processes(&|processes| leftover(place, processes, &keepers)).await?;
        let living = living.into_keys().map(|build| build.to_string()).collect();
        spawn_blocking(move || end_leftovers(&root, &living)).await.map_err(io::Error::other)??;
        Ok(Self { killed, builds: workplace.builds()?, ended_at: Boot::now() })
    }

    /// Completes the builds that are still ours, and removes their directories; has the tasks stopped that any of them has in `tasks`.
    /// Ends once the board has answered for all, or `patience` is over.
    pub async fn settle(
        self,
        (api, tasks): (&Api, Option<&Ecs>),
        place: &Place,
        remains: &Remains,
        patience: Option<Duration>,
    ) -> Recovered {
        let one_at_a_time = Mutex::new(());
        let settled = join_all(self.builds.iter().map(async |build| {
            let directory = place.builds_root.join(build.to_string());
            let ended_by_us_at = self.killed.builds.contains(&build.to_string()).then_some(self.ended_at);
            let reporting = report(api, *build, &directory, ended_by_us_at);
            if !within(patience, reporting).await.unwrap_or(false) {
                return Settled::Unreported;
            }
            if let Some(tasks) = tasks {
                end_tasks(tasks, *build).await;
            }
            Record::forget(&directory);
            if Folder::of(&place.builds_root, *build).is_there() {
                return Settled::Kept;
            }
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

/// Only once the board has said that the build runs no more. What can't be stopped now ends by itself: its runner hears the same.
async fn end_tasks(tasks: &Ecs, build: Uuid) {
    match timeout(PATIENCE, tasks.end(&build.to_string(), "the worker was started again")).await {
        Ok(Ok(0)) => {}
        Ok(Ok(ended)) => info!(build.id = %build, tasks = ended, "stopped what an earlier worker had started"),
        Ok(Err(why)) => warn!(build.id = %build, why, "a build's tasks can't be stopped; they end by themselves"),
        Err(_) => warn!(build.id = %build, "ECS does not answer; a build's tasks end by themselves"),
    }
}

/// What became of one build that was left behind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Settled {
    Gone,
    Stuck,
    Unreported,
    /// For its preview.
    Kept,
}

async fn within<T>(patience: Option<Duration>, work: impl Future<Output = T>) -> Option<T> {
    match patience {
        Some(patience) => timeout(patience, work).await.ok(),
        None => Some(work.await),
    }
}

/// Ends what runs of `build`, whose end is acknowledged, and of its preview. It must not be started at the same time.
///
/// # Errors
///
/// If a process can't be ended.
pub async fn end_build(place: &Place, build: Uuid) -> io::Result<()> {
    end_processes(&|processes| of_build(place, processes, build)).await.map(drop)
}

/// Kills what `left` finds until it finds nothing.
async fn end_processes(left: &(dyn Fn(&[Process]) -> Vec<i32> + Send + Sync)) -> io::Result<Killed> {
    let begun = Instant::now();
    let mut killed = Killed::default();
    loop {
        let processes = proc::all();
        let left = left(&processes);
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

/// The guards, proxies, networks and keepers of this builds root, and bubblewraps without a guard, with all that descends from
/// them; without `keepers` and all that descends from those.
fn leftover(place: &Place, processes: &[Process], keepers: &[i32]) -> Vec<i32> {
    let root = format!("{}/", place.builds_root.to_string_lossy());
    let ours = |process: &&Process| is_ours(place, process) || is_sandbox(process, &root);
    let kept = proc::descendants(processes, keepers);
    let roots = processes.iter().filter(ours).map(|process| process.pid);
    with_descendants(processes, roots.filter(|pid| !keepers.contains(pid) && !kept.contains(pid)).collect())
}

/// The same of one build.
fn of_build(place: &Place, processes: &[Process], build: Uuid) -> Vec<i32> {
    let build = build.to_string();
    let site = format!("{}/", place.builds_root.join(&build).to_string_lossy());
    let names = |args: &[String]| args.windows(2).any(|pair| pair[0] == "--build" && pair[1] == build);
    let its = |process: &&Process| is_ours(place, process) && names(&process.args) || is_sandbox(process, &site);
    with_descendants(processes, processes.iter().filter(its).map(|process| process.pid).collect())
}

fn is_ours(place: &Place, process: &Process) -> bool {
    let is_verb = |arg: &String| ["guard", "enter", "egress", "network", "keep"].contains(&arg.as_str());
    let installed = place.installed().to_string_lossy().into_owned();
    process.args.first() == Some(&installed) && process.args.get(1).is_some_and(is_verb)
}

fn is_sandbox(process: &Process, below: &str) -> bool {
    let args = &process.args;
    args.first().is_some_and(|arg| arg.ends_with("bwrap")) && args.iter().any(|arg| arg.starts_with(below))
}

fn with_descendants(processes: &[Process], mut left: Vec<i32>) -> Vec<i32> {
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
    let (api, span) = (api.traced(record.traceparent), span(record.traceparent));
    match complete::report(&api, build, report).instrument(span).await {
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
    use protocol::trace::Traceparent;

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
        let traceparent = Some(Traceparent::random(1, 2));
        let record = Record { sent_at: Boot(1), max_duration_seconds: 1, traceparent };
        Site::make(&place, build, 0, Some(&record)).unwrap();
        let left = Left { killed: Killed::default(), builds: vec![build], ended_at: Boot(2) };
        let patience = Some(Duration::from_millis(100));
        let recovered = left.settle((&Api::new(&config).unwrap(), None), &place, &Remains::default(), patience).await;
        assert_eq!(recovered, Recovered { unreported: 1, ..Recovered::default() });
        assert_eq!(Record::read(&place.builds_root.join(build.to_string())), Some(record));
    }

    #[test]
    fn what_is_left_of_this_builds_root_is_found_and_nothing_else() {
        let place = Place { builds_root: "/b".into(), first_uid: 1, tools: Vec::new(), binary: "/w".into() };
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
        assert_eq!(leftover(&place, &processes, &[]), [10, 11, 12, 13, 30, 45, 50, 51]);
    }

    #[test]
    fn what_a_living_keeper_has_is_left_alone_and_what_a_dead_one_had_is_not() {
        let place = Place { builds_root: "/b".into(), first_uid: 1, tools: Vec::new(), binary: "/w".into() };
        let (one, other) = (Uuid::from_u128(1), Uuid::from_u128(2));
        let process =
            |pid, parent, args: String| Process { pid, parent, args: args.split(' ').map(str::to_owned).collect() };
        let ours = |verb: &str, build: Uuid| format!("/b/.bin/callboard-worker {verb} --build {build}");
        let processes = [
            process(10, 1, ours("keep", one)),
            process(11, 10, ours("guard", one)),
            process(12, 11, format!("/usr/bin/bwrap --bind /b/{one}/workspace /workspace")),
            process(13, 12, "sh".into()),
            process(20, 1, ours("keep", other)),
            process(21, 20, ours("guard", other)),
            process(30, 1, ours("guard", other)),
            process(31, 30, format!("/usr/bin/bwrap --bind /b/{other}/workspace /workspace")),
            // A step that calls itself a keeper is none.
            process(32, 31, ours("keep", one)),
        ];
        assert_eq!(leftover(&place, &processes, &[10]), [20, 21, 30, 31, 32]);
        assert_eq!(of_build(&place, &processes, other), [20, 21, 30, 31, 32]);
        assert_eq!(of_build(&place, &processes, Uuid::from_u128(3)), [] as [i32; 0]);
    }
}
