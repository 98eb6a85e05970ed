//! Ends what an earlier process of this host left behind: processes, directories, and its builds on the board.
//!
//! Only the holder of the builds root's lock does this, so it is harmless beside a live worker, and repeatable.

use crate::api::Api;
use crate::clock::Boot;
use crate::complete::{self, Reported};
use crate::config::Place;
use crate::proc::{self, Process};
use crate::site::{self, Record};
use crate::workplace::Workplace;
use nix::sys::signal::Signal;
use protocol::worker::Complete;
use protocol::{EndReason, Status};
use std::io;
use std::time::Duration;
use tokio::time::{Instant, sleep};
use tracing::{info, warn};
use uuid::Uuid;

/// How long a killed process may take to be gone.
const PATIENCE: Duration = Duration::from_secs(20);

/// What was left behind, and is no more.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Recovered {
    /// Processes that were ended.
    pub processes: usize,
    /// Builds whose directories were removed.
    pub builds: usize,
}

/// Ends everything that is left, and completes the builds that are still ours.
///
/// # Errors
///
/// If a process can't be ended, or a directory can't be removed.
pub async fn recover(api: &Api, place: &Place, workplace: &Workplace) -> io::Result<Recovered> {
    let processes = end_processes(place).await?;
    let builds = workplace.builds()?;
    for build in &builds {
        end_build(api, place, *build).await?;
    }
    let recovered = Recovered { processes, builds: builds.len() };
    if recovered != Recovered::default() {
        info!(processes, builds = builds.len(), "ended what an earlier worker left behind");
    }
    Ok(recovered)
}

/// Kills the guards of this builds root, and bubblewraps without a guard, with all that descends from them.
async fn end_processes(place: &Place) -> io::Result<usize> {
    let begun = Instant::now();
    let mut killed = std::collections::BTreeSet::new();
    loop {
        let left = leftover(place, &proc::all());
        if left.is_empty() {
            return Ok(killed.len());
        }
        if begun.elapsed() > PATIENCE {
            return Err(io::Error::other(format!("processes {left:?} of an earlier worker can't be ended")));
        }
        for pid in left {
            proc::signal(pid, Signal::SIGKILL);
            killed.insert(pid);
        }
        sleep(Duration::from_millis(20)).await;
    }
}

fn leftover(place: &Place, processes: &[Process]) -> Vec<i32> {
    let installed = place.installed().to_string_lossy().into_owned();
    let root = format!("{}/", place.builds_root.to_string_lossy());
    let is_guard = |args: &[String]| args.first() == Some(&installed) && args.get(1).is_some_and(|arg| arg == "guard");
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

async fn end_build(api: &Api, place: &Place, build: Uuid) -> io::Result<()> {
    let directory = place.builds_root.join(build.to_string());
    if let Some(record) = Record::read(&directory) {
        let report = Complete {
            status: Status::Failed,
            end_reason: Some(EndReason::Recovery),
            error_message: Some("the worker was started again; what was left of the build was ended".into()),
            commit: None,
            ran_ms: record.ran_ms(Boot::now()),
            last_seq: 0,
            logs_lost: true,
            steps: Vec::new(),
        };
        match complete::report(api, build, report).await {
            Reported::Yes | Reported::NotOurs => {}
            Reported::Refused => warn!(build.id = %build, "the board will end the build by itself"),
        }
    }
    site::remove(&directory).await
}

#[cfg(test)]
mod tests {
    use super::*;

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
        ];
        assert_eq!(leftover(&place, &processes), [10, 11, 12, 13, 30]);
    }
}
