//! One build's directory, `<builds_root>/<build_id>`: made before the clone, gone after the end is acknowledged.

use crate::clock::Boot;
use crate::config::Place;
use crate::isolation::bubblewrap::names;
use crate::removal::{self, Enough};
use protocol::worker::Job;
use serde::{Deserialize, Serialize};
use std::fs::{self, Permissions};
use std::io;
use std::os::unix::fs::{PermissionsExt as _, chown};
use std::path::{Path, PathBuf};
use tokio::task::spawn_blocking;
use uuid::Uuid;

/// What a later process must know to end a build that this one left behind. Never in the sandbox's sight.
const RECORD: &str = "record.json";
/// The number of this boot: instants of another one say nothing.
const BOOT_ID: &str = "/proc/sys/kernel/random/boot_id";

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
    /// In which boot that was.
    pub boot_id: String,
    /// What it may take in all.
    pub max_duration_seconds: u32,
}

impl Record {
    /// What is to be remembered about `job`.
    #[must_use]
    pub fn new(job: &Job, sent_at: Boot) -> Self {
        Self { sent_at, boot_id: boot_id(), max_duration_seconds: job.max_duration_seconds }
    }

    /// How long the build has run. After another boot nobody knows; the board then counts what it saw.
    #[must_use]
    pub fn ran_ms(&self, now: Boot) -> u64 {
        let all = u64::from(self.max_duration_seconds) * 1000;
        if self.boot_id == boot_id() { crate::clock::millis(now.since(self.sent_at)).min(all) } else { all }
    }

    /// The record in a build's directory, if it is there and whole.
    #[must_use]
    pub fn read(directory: &Path) -> Option<Self> {
        serde_json::from_slice(&fs::read(directory.join(RECORD)).ok()?).ok()
    }
}

fn boot_id() -> String {
    fs::read_to_string(BOOT_ID).map(|id| id.trim().to_owned()).unwrap_or_default()
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
        for name in [names::WORKSPACE, names::HOME] {
            fs::create_dir(site.directory.join(name))?;
            site.hand_over(&site.directory.join(name), 0o755)?;
        }
        site.hand_over(&site.directory, 0o700)?;
        Ok(site)
    }

    /// Where `name` is in it.
    #[must_use]
    pub fn path(&self, name: &str) -> PathBuf {
        self.directory.join(name)
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

    /// Removes what the build made. The record stays until the end is acknowledged.
    ///
    /// # Errors
    ///
    /// If something can't be removed.
    pub async fn clear(&self) -> io::Result<()> {
        remove(&self.path(names::WORKSPACE)).await?;
        remove(&self.path(names::HOME)).await
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

/// Removes a build's directory, or one in it; ends early if nobody waits for it any more.
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

    #[test]
    fn a_build_of_this_boot_ran_since_its_claim_and_at_most_what_it_may() {
        let record = Record { sent_at: Boot(1000), boot_id: boot_id(), max_duration_seconds: 60 };
        assert_eq!(record.ran_ms(Boot(5000)), 4000);
        assert_eq!(record.ran_ms(Boot(500_000)), 60_000);
    }

    #[test]
    fn a_build_of_another_boot_is_left_to_the_board_to_count() {
        let record = Record { sent_at: Boot(1000), boot_id: "another".into(), max_duration_seconds: 60 };
        assert_eq!(record.ran_ms(Boot(5000)), 60_000);
    }
}
