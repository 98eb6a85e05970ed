//! What a start makes in a directory, and takes away again if it comes to nothing: a refusal leaves what was there before.

use crate::lock::Lock;
use anyhow::Context as _;
use std::collections::BTreeSet;
use std::ffi::OsString;
use std::fs;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};

/// All that a start may make.
const OURS: [&str; 13] = [
    "lock",
    "postgres",
    "postgres.unfinished",
    "postgres.initial-password",
    "postgres.passwd",
    "postgres.password",
    "postgres.log",
    "postgres.log.1",
    "postgres-binaries",
    "postgres-binaries.new",
    "secrets.key",
    "callboard.env",
    "builds",
];

/// What is new in a directory. Dropped, it goes; unless it [`stays`](Fresh::stays).
#[derive(Debug)]
pub(crate) struct Fresh {
    dir: PathBuf,
    /// Directories that were made, the outermost first.
    made: Vec<PathBuf>,
    /// What of ours was there before; none if we don't hold the directory.
    before: Option<BTreeSet<OsString>>,
}

impl Fresh {
    /// Makes `dir`, if it is not there, and takes its lock.
    ///
    /// # Errors
    ///
    /// If it can't be made, or another process holds it.
    pub(crate) fn take(dir: &Path) -> anyhow::Result<(Lock, Self)> {
        let missing = dir.ancestors().take_while(|folder| fs::symlink_metadata(folder).is_err());
        let mut made: Vec<PathBuf> = missing.map(Path::to_owned).collect();
        made.reverse();
        let mut fresh = Self { dir: dir.to_owned(), made, before: None };
        let make = fs::DirBuilder::new().recursive(true).mode(0o711).create(dir);
        make.with_context(|| format!("{} can't be made; choose another with --dir", dir.display()))?;
        let before = ours_in(dir);
        let lock = Lock::take(dir)?;
        // Whoever held it a moment ago may have left more.
        fresh.before = Some(ours_in(dir).into_iter().filter(|name| name != "lock" || before.contains(name)).collect());
        Ok((lock, fresh))
    }

    /// The start has succeeded.
    pub(crate) fn stays(mut self) {
        self.before = None;
        self.made.clear();
    }
}

impl Drop for Fresh {
    fn drop(&mut self) {
        if let Some(before) = self.before.take() {
            for name in ours_in(&self.dir).difference(&before) {
                let path = self.dir.join(name);
                let _ = fs::remove_file(&path).or_else(|_| fs::remove_dir_all(&path));
            }
        }
        // None that somebody has put something into.
        self.made.iter().rev().take_while(|dir| fs::remove_dir(dir).is_ok()).for_each(drop);
    }
}

fn ours_in(dir: &Path) -> BTreeSet<OsString> {
    let entries = fs::read_dir(dir).into_iter().flatten().flatten();
    entries.map(|entry| entry.file_name()).filter(|name| OURS.iter().any(|ours| name == ours)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_comes_to_nothing_leaves_what_was_there() {
        let root = tempfile::tempdir().unwrap();
        let dir = root.path().join("a/b");
        let (lock, fresh) = Fresh::take(&dir).unwrap();
        fs::create_dir(dir.join("postgres")).unwrap();
        drop((fresh, lock));
        assert!(!root.path().join("a").exists() && root.path().exists());
        fs::create_dir_all(dir.join("postgres")).unwrap();
        fs::write(dir.join("notes"), "a person's").unwrap();
        let (lock, fresh) = Fresh::take(&dir).unwrap();
        fs::write(dir.join("secrets.key"), "").unwrap();
        // Another one is refused meanwhile, and takes nothing away.
        Fresh::take(&dir).unwrap_err();
        assert!(dir.join("secrets.key").exists() && dir.join("lock").exists());
        drop((fresh, lock));
        let names: BTreeSet<_> = fs::read_dir(&dir).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        assert_eq!(names, ["notes", "postgres"].map(OsString::from).into());
    }

    #[test]
    fn what_succeeds_stays() {
        let root = tempfile::tempdir().unwrap();
        let (lock, fresh) = Fresh::take(&root.path().join("a")).unwrap();
        fresh.stays();
        drop(lock);
        assert!(root.path().join("a/lock").exists());
    }
}
