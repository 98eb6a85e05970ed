//! One build's directory, `<builds_root>/<build_id>`: made before the clone, gone after the end is acknowledged.

use crate::clock::{Boot, millis};
use crate::config::Place;
use crate::isolation::bubblewrap::names;
use crate::lease::Lease;
use crate::mark::Mark;
use crate::removal::{self, Enough};
use protocol::trace::{self, Traceparent};
use protocol::worker::Job;
use serde::{Deserialize, Serialize};
use std::fs::{self, Permissions};
use std::io;
use std::os::unix::fs::{PermissionsExt as _, chown};
use std::path::{Path, PathBuf};
use std::time::Duration;
use tokio::task::spawn_blocking;
use uuid::Uuid;

/// What a later process must know to end a build that this one left behind. Never in the sandbox's sight.
const RECORD: &str = "record.json";
/// The mark of when the last task ended; without an instant while one runs, or before the first.
const ENDED: &str = "ended-at";
/// The mark of when the steps had ended of a build that tidies up after them: what comes after counts for nothing.
const STEPS_ENDED: &str = "steps-ended-at";
/// The mark of when the last renewal of the lease that was acknowledged had been sent.
const RENEWED: &str = "renewed-at";
/// How often a renewal is looked for.
const NOTE_EVERY: Duration = Duration::from_secs(1);

/// A build's directory.
#[derive(Clone, Debug)]
pub struct Site {
    /// Where it is.
    pub directory: PathBuf,
    owner: Option<u32>,
}

/// What is remembered about a build while it runs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Record {
    /// When its claim had been sent.
    pub sent_at: Boot,
    /// What it may take in all.
    pub max_duration_seconds: u32,
    /// The trace that it belongs to.
    #[serde(default, deserialize_with = "trace::lenient", skip_serializing_if = "Option::is_none")]
    pub traceparent: Option<Traceparent>,
}

impl Record {
    /// What is to be remembered about `job`.
    #[must_use]
    pub fn new(job: &Job, sent_at: Boot) -> Self {
        Self { sent_at, max_duration_seconds: job.max_duration_seconds, traceparent: job.traceparent }
    }

    /// How long the build in `directory` has run: until its steps had ended, if it has tidied up since; else until its last task
    /// ended, as that task's guard noted; else, if its guard was found alive and ended, until then; else as long as its lease is
    /// known to have been renewed. All these instants are of one boot, though it may be an earlier one.
    #[must_use]
    pub fn ran_ms(&self, directory: &Path, ended_by_us_at: Option<Boot>) -> u64 {
        let mark = |name| Mark::read(&directory.join(name));
        let last_task = || mark(ENDED).or(ended_by_us_at).or_else(|| mark(RENEWED));
        let until = mark(STEPS_ENDED).or_else(last_task).unwrap_or(self.sent_at);
        millis(until.since(self.sent_at)).min(u64::from(self.max_duration_seconds) * 1000)
    }

    /// The record in a build's directory, if it is there and whole.
    #[must_use]
    pub fn read(directory: &Path) -> Option<Self> {
        serde_json::from_slice(&fs::read(directory.join(RECORD)).ok()?).ok()
    }

    /// Removes the record from a build's directory: its end needs to be told to nobody any more.
    pub fn forget(directory: &Path) {
        fs::remove_file(directory.join(RECORD)).ok();
    }
}

impl Site {
    /// Makes the directory of `build` for the user of `slot`.
    ///
    /// # Errors
    ///
    /// If it exists, or can't be made.
    pub fn make(place: &Place, build: Uuid, slot: u32, record: Option<&Record>) -> io::Result<Self> {
        let site = Self { directory: place.builds_root.join(build.to_string()), owner: place.run_as(slot) };
        fs::create_dir(&site.directory)?;
        if let Some(record) = record {
            fs::write(site.directory.join(RECORD), serde_json::to_vec(record)?)?;
        }
        for name in [ENDED, STEPS_ENDED, RENEWED] {
            Mark::make(&site.directory.join(name))?;
        }
        for name in [names::WORKSPACE, names::HOME] {
            fs::create_dir(site.directory.join(name))?;
            site.hand_over(&site.directory.join(name), 0o755)?;
        }
        site.hand_over(&site.directory, 0o700)?;
        Ok(site)
    }

    /// One whose parts were put into `directory` already, in the place of a builds root.
    #[must_use]
    pub fn made(directory: PathBuf) -> Self {
        Self { directory, owner: None }
    }

    /// Opens what the next task's sandbox is made over: a step may have closed its own workspace. (Their places can't be taken by
    /// anything else: a step sees what is in them, not the directory that they are in.)
    ///
    /// # Errors
    ///
    /// If it can't be opened.
    pub fn reopen(&self) -> io::Result<()> {
        Self::reopen_in(&self.directory)
    }

    /// The same for the build in `directory`.
    ///
    /// # Errors
    ///
    /// If it can't be opened.
    pub fn reopen_in(directory: &Path) -> io::Result<()> {
        let open = |name| fs::set_permissions(directory.join(name), fs::Permissions::from_mode(0o755));
        [names::WORKSPACE, names::HOME].into_iter().try_for_each(open)
    }

    /// Where the guard of a task in `directory` is to note the task's end.
    #[must_use]
    pub fn ended_mark(directory: &Path) -> PathBuf {
        directory.join(ENDED)
    }

    /// Where `name` is in it.
    #[must_use]
    pub fn path(&self, name: &str) -> PathBuf {
        self.directory.join(name)
    }

    /// Notes on disk when the lease was renewed last, as long as this is awaited.
    pub async fn note_renewals(&self, lease: &Lease) -> ! {
        let mut noted = None;
        loop {
            tokio::time::sleep(NOTE_EVERY).await;
            let (renewed_at, path) = (lease.renewed_at(), self.path(RENEWED));
            if renewed_at != noted {
                noted = renewed_at;
                spawn_blocking(move || Mark::open(&path)?.set(renewed_at)).await.ok();
            }
        }
    }

    /// Notes that the steps have ended, and that the build only tidies up from now on.
    ///
    /// # Errors
    ///
    /// If that can't be written.
    pub fn note_steps_ended(&self, at: Boot) -> io::Result<()> {
        Mark::open(&self.path(STEPS_ENDED))?.set(Some(at))
    }

    /// Gives `path` to the user of the build.
    ///
    /// # Errors
    ///
    /// If the file system does not let us.
    pub fn hand_over(&self, path: &Path, mode: u32) -> io::Result<()> {
        fs::set_permissions(path, Permissions::from_mode(mode))?;
        self.owner.map_or(Ok(()), |owner| chown(path, Some(owner), Some(owner)))
    }

    /// Forgets the build, whose end is acknowledged: a later process only has to remove what is left.
    pub fn forget(&self) {
        Record::forget(&self.directory);
    }

    /// Removes all.
    ///
    /// # Errors
    ///
    /// If something can't be removed.
    pub async fn remove(&self) -> io::Result<()> {
        remove(&self.directory).await
    }
}

/// Removes a build's directory; ends early if nobody waits for it any more.
///
/// # Errors
///
/// If something can't be removed.
pub async fn remove(tree: &Path) -> io::Result<()> {
    let (tree, enough) = (tree.to_path_buf(), Enough::default());
    let _until_nobody_waits = Waiting(enough.clone());
    spawn_blocking(move || removal::remove(&tree, &enough)).await.map_err(io::Error::other)?
}

struct Waiting(Enough);

impl Drop for Waiting {
    fn drop(&mut self) {
        self.0.say();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RECORDED: Record = Record { sent_at: Boot(1000), max_duration_seconds: 60, traceparent: None };

    fn check(ended: u64, renewed: u64, ended_by_us_at: Option<Boot>, ran_ms: u64) {
        check_tidied(0, ended, renewed, ended_by_us_at, ran_ms);
    }

    fn check_tidied(steps_ended: u64, ended: u64, renewed: u64, ended_by_us_at: Option<Boot>, ran_ms: u64) {
        let root = tempfile::tempdir().unwrap();
        for (name, at) in [(STEPS_ENDED, steps_ended), (ENDED, ended), (RENEWED, renewed)] {
            Mark::make(&root.path().join(name)).unwrap().set(Some(Boot(at))).unwrap();
        }
        assert_eq!(RECORDED.ran_ms(root.path(), ended_by_us_at), ran_ms);
    }

    #[test]
    fn a_build_that_tidied_up_ran_until_its_steps_had_ended_whatever_came_after() {
        check_tidied(5000, 0, 9000, None, 4000);
        check_tidied(5000, 7000, 9000, None, 4000);
        check_tidied(5000, 0, 9000, Some(Boot(10_000)), 4000);
    }

    #[test]
    fn a_build_ran_until_its_last_task_ended_and_at_most_what_it_may() {
        check(5000, 4000, None, 4000);
        check(5000, 9000, Some(Boot(10_000)), 4000);
        check(500_000, 4000, None, 60_000);
    }

    #[test]
    fn a_build_whose_guard_was_ended_by_recovery_ran_until_then() {
        check(0, 4000, Some(Boot(10_000)), 9000);
    }

    #[test]
    fn a_build_whose_guard_is_lost_ran_until_its_last_renewal() {
        check(0, 4000, None, 3000);
        check(0, 0, None, 0);
    }
}
