//! What of a preview is on disk, in its build's directory and in no sandbox's sight: the truth that outlives every process.
//!
//! ```text
//! <builds_root>/<build_id>/preview/slot         that the build's workspace is kept, and the number of its user
//! <builds_root>/<build_id>/preview/report.json  how the preview is, or last was; without it nothing was started yet
//! <builds_root>/<build_id>/preview/lock         held by its keeper
//! <builds_root>/<build_id>/preview/keeper.sock  where that is spoken to
//! <builds_root>/<build_id>/preview/container    that its service is in one; in it whether that stays if it fails
//! <builds_root>/<build_id>/preview/log          what its service wrote, and log.old what it wrote before that
//! ```

use crate::workplace::has;
use nix::unistd::geteuid;
use protocol::preview::PreviewReport;
use rules::preview::Seen;
use std::fs::{self, DirBuilder, File, OpenOptions, TryLockError};
use std::io;
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};
use uuid::Uuid;

const FOLDER: &str = "preview";
const SLOT: &str = "slot";
const REPORT: &str = "report.json";
const LOCK: &str = "lock";
const CONTAINER: &str = "container";
const RETAIN: &[u8] = b"retain";
/// The names of the log, the newer part first.
pub(super) const LOGS: [&str; 2] = ["log", "log.old"];

/// A preview's own directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Folder {
    /// The build.
    pub build: Uuid,
    /// The build's directory.
    pub site: PathBuf,
}

impl Folder {
    /// That of `build`, whether it is there or not.
    #[must_use]
    pub fn of(builds_root: &Path, build: Uuid) -> Self {
        Self { build, site: builds_root.join(build.to_string()) }
    }

    /// Makes it, for a build that runs as the user of `slot`: from now on the build's directory is kept until the board forgets it.
    ///
    /// # Errors
    ///
    /// If it can't be written.
    pub fn make(&self, slot: u32) -> io::Result<()> {
        DirBuilder::new().recursive(true).mode(0o700).create(self.site.join(FOLDER))?;
        self.write(SLOT, slot.to_string().as_bytes())
    }

    /// Whether the build's directory is to be kept. What is the build's own user's says nothing.
    #[must_use]
    pub fn is_there(&self) -> bool {
        let is_ours = |meta: fs::Metadata| meta.is_dir() && meta.uid() == geteuid().as_raw();
        fs::symlink_metadata(self.site.join(FOLDER)).is_ok_and(is_ours) && has(&self.path(SLOT))
    }

    /// The number of the user that the build ran as.
    ///
    /// # Errors
    ///
    /// If it is not there, or nobody's.
    pub fn slot(&self) -> io::Result<u32> {
        fs::read_to_string(self.path(SLOT))?.trim().parse().map_err(io::Error::other)
    }

    /// Where `name` is in it.
    #[must_use]
    pub fn path(&self, name: &str) -> PathBuf {
        self.site.join(FOLDER).join(name)
    }

    /// Where its keeper is spoken to.
    #[must_use]
    pub fn socket(&self) -> PathBuf {
        self.path("keeper.sock")
    }

    /// How the preview is, or last was; as it is right after the build's end if nobody said otherwise.
    #[must_use]
    pub fn report(&self) -> PreviewReport {
        let read = || serde_json::from_slice(&fs::read(self.path(REPORT)).ok()?).ok();
        read().unwrap_or_else(|| of(self.build, Seen::Kept))
    }

    /// Says how it is; whoever reads at the same time reads all of it, or all of what was said before.
    ///
    /// # Errors
    ///
    /// If it can't be written.
    pub fn say(&self, report: &PreviewReport) -> io::Result<()> {
        self.write(REPORT, &serde_json::to_vec(report)?)
    }

    /// Notes that its service is in a container.
    ///
    /// # Errors
    ///
    /// If that can't be written.
    pub fn note_container(&self, retain_failed: bool) -> io::Result<()> {
        self.write(CONTAINER, if retain_failed { RETAIN } else { b"" })
    }

    /// Whether its service is, or was, in a container, and whether that stays if it fails.
    #[must_use]
    pub fn container(&self) -> Option<bool> {
        fs::read(self.path(CONTAINER)).ok().map(|noted| noted == RETAIN)
    }

    /// Takes the keeper's place; `None` if somebody has it.
    ///
    /// # Errors
    ///
    /// If it can't be asked for.
    pub fn take(&self) -> io::Result<Option<File>> {
        let file = OpenOptions::new().create(true).truncate(false).write(true).open(self.path(LOCK))?;
        match file.try_lock() {
            Ok(()) => Ok(Some(file)),
            Err(TryLockError::WouldBlock) => Ok(None),
            Err(TryLockError::Error(error)) => Err(error),
        }
    }

    /// Removes what its service wrote.
    pub fn remove_logs(&self) {
        LOGS.iter().for_each(|name| drop(fs::remove_file(self.path(name))));
    }

    fn write(&self, name: &str, content: &[u8]) -> io::Result<()> {
        let fresh = self.path(&format!("{name}.new"));
        fs::write(&fresh, content)?;
        fs::rename(&fresh, self.path(name))
    }
}

/// A report that says no more than how the preview is.
#[must_use]
pub fn of(build_id: Uuid, state: Seen) -> PreviewReport {
    PreviewReport {
        build_id,
        state,
        version: None,
        stage: None,
        port: None,
        no_port: false,
        url: None,
        message: None,
        log_tail: None,
    }
}

/// The builds whose directories are kept.
///
/// # Errors
///
/// If the builds root can't be read.
pub fn kept(builds_root: &Path) -> io::Result<Vec<Folder>> {
    let names = fs::read_dir(builds_root)?.flatten().map(|entry| entry.file_name());
    let builds = names.filter_map(|name| Uuid::try_parse(name.to_str()?).ok());
    Ok(builds.map(|build| Folder::of(builds_root, build)).filter(Folder::is_there).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn folder(root: &Path) -> Folder {
        let folder = Folder::of(root, Uuid::now_v7());
        fs::create_dir(&folder.site).unwrap();
        folder
    }

    #[test]
    fn a_build_is_kept_from_when_its_user_is_noted() {
        let root = tempfile::tempdir().unwrap();
        let (one, other) = (folder(root.path()), folder(root.path()));
        fs::create_dir(root.path().join("not-a-build")).unwrap();
        one.make(300).unwrap();
        assert_eq!((one.slot().unwrap(), one.is_there(), other.is_there()), (300, true, false));
        assert_eq!(kept(root.path()).unwrap(), [one]);
    }

    #[test]
    fn what_somebody_else_put_there_says_nothing() {
        let root = tempfile::tempdir().unwrap();
        let (one, other) = (folder(root.path()), folder(root.path()));
        one.make(300).unwrap();
        std::os::unix::fs::symlink(one.path(""), other.site.join(FOLDER)).unwrap();
        assert!(other.path(SLOT).exists() && !other.is_there());
        if geteuid().is_root() {
            std::os::unix::fs::chown(one.path(""), Some(12_345), None).unwrap();
            assert!(!one.is_there());
        }
    }

    #[test]
    fn what_was_said_last_is_read_and_half_of_a_word_is_none() {
        let root = tempfile::tempdir().unwrap();
        let folder = folder(root.path());
        folder.make(0).unwrap();
        assert_eq!(folder.report(), of(folder.build, Seen::Kept));
        let running = PreviewReport { port: Some(20_000), ..of(folder.build, Seen::Running) };
        folder.say(&running).unwrap();
        assert_eq!(folder.report(), running);
        fs::write(folder.path("report.json.new"), "{\"build_id\"").unwrap();
        assert_eq!(folder.report(), running);
    }

    #[test]
    fn there_is_one_keeper_at_a_time() {
        let root = tempfile::tempdir().unwrap();
        let folder = folder(root.path());
        folder.make(0).unwrap();
        let place = folder.take().unwrap();
        assert!(place.is_some() && folder.take().unwrap().is_none());
        drop(place);
        assert!(folder.take().unwrap().is_some());
    }
}
