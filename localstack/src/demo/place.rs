//! The demo's temporary directory; and those of demos that were killed before they could clean up.

use super::groups;
use crate::lock::Lock;
use crate::{leftovers, say};
use anyhow::Context as _;
use nix::unistd::Uid;
use std::fs;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use tempfile::TempDir;

const PREFIX: &str = "callboard-demo.";

/// A directory that is ours while we live.
pub(super) struct Place {
    dir: TempDir,
    _lock: Lock,
}

impl Place {
    pub(super) fn make() -> anyhow::Result<Self> {
        let dir = tempfile::Builder::new().prefix(PREFIX).tempdir().context("the temporary directory can't be made")?;
        // Other users' processes (Postgres, the sandboxes) come through here, and see nothing of it.
        fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o711))?;
        let lock = Lock::first(dir.path())?;
        Ok(Self { dir, _lock: lock })
    }

    pub(super) fn path(&self) -> &Path {
        self.dir.path()
    }

    /// Removes it with all that is in it.
    pub(super) fn remove(self) -> std::io::Result<()> {
        groups::remove(self.path());
        self.dir.close()
    }
}

/// Ends and removes what killed demos of this user left: those whose lock nobody holds.
pub(crate) fn sweep_dead() {
    sweep(&std::env::temp_dir());
}

fn sweep(folder: &Path) {
    for dir in ours_in(folder) {
        let Some(_lock) = Lock::of_dead(&dir) else { continue };
        let (processes, gone) = leftovers::end(&dir);
        groups::remove(&dir);
        let shown = dir.display();
        match fs::remove_dir_all(&dir) {
            Ok(()) if gone => {
                say::err(format_args!(
                    "callboard: a demo that was killed had left {shown} and {processes} processes: gone"
                ));
            }
            Ok(()) => say::err(format_args!("callboard: a killed demo's processes of {shown} can't be ended")),
            Err(error) => {
                say::err(format_args!("callboard: {shown}, left by a killed demo, can't be removed: {error}"))
            }
        }
    }
}

/// Directories, not links to some, that this user's demos made.
fn ours_in(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let named = entries.filter(|entry| entry.file_name().to_string_lossy().starts_with(PREFIX));
    let is_ours = |path: &PathBuf| {
        let metadata = fs::symlink_metadata(path);
        metadata.is_ok_and(|metadata| metadata.is_dir() && metadata.uid() == Uid::effective().as_raw())
    };
    named.map(|entry| entry.path()).filter(is_ours).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_a_dead_demo_left_is_removed() {
        let folder = tempfile::tempdir().unwrap();
        let make = |name: &str, lock: bool| {
            let dir = folder.path().join(name);
            fs::create_dir_all(dir.join("board/postgres")).unwrap();
            if lock {
                fs::write(dir.join("lock"), "1").unwrap();
            }
            dir
        };
        let (dead, alive) = (make("callboard-demo.dead", true), make("callboard-demo.alive", false));
        let (unknown, other) = (make("callboard-demo.unknown", false), make("other.dead", true));
        let _lock = Lock::first(&alive).unwrap();
        let link = folder.path().join("callboard-demo.link");
        std::os::unix::fs::symlink(&other, &link).unwrap();
        sweep(folder.path());
        assert!(!dead.exists());
        assert!([alive, unknown, other, link].iter().all(|path| path.exists()));
    }
}
