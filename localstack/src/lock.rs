//! One stack a directory: a lock that the kernel frees when its holder dies, however it dies.

use anyhow::{Context as _, bail};
use nix::fcntl::{Flock, FlockArg};
use std::fs::{self, File, OpenOptions};
use std::io::{Read as _, Write as _};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::Path;

const FILE: &str = "lock";

/// Holds a directory until it is dropped.
#[derive(Debug)]
pub struct Lock {
    _file: Flock<File>,
}

impl Lock {
    /// Takes `<dir>/lock`, and writes into it who we are.
    ///
    /// # Errors
    ///
    /// If another process holds it: which.
    pub fn take(dir: &Path) -> anyhow::Result<Self> {
        let path = dir.join(FILE);
        loop {
            let file = options().create(true).open(&path);
            let file = file.with_context(|| format!("{} can't be opened", path.display()))?;
            match Flock::lock(file, FlockArg::LockExclusiveNonblock) {
                // One that was refused may have removed the file while we waited for it: then we hold nothing.
                Ok(held) if !is_at(&held, &path) => {}
                Ok(held) => return Self::signed(held),
                Err((mut file, _)) => {
                    let mut pid = String::new();
                    file.read_to_string(&mut pid)?;
                    bail!(
                        "another Callboard runs on {} (process {}): stop it with Ctrl-C, or choose another --dir",
                        dir.display(),
                        pid.trim()
                    )
                }
            }
        }
    }

    /// Takes the lock of a directory that was just made. It is there only once it is held, so that nobody takes the directory
    /// for a dead one's.
    ///
    /// # Errors
    ///
    /// If it can't be written.
    pub fn first(dir: &Path) -> anyhow::Result<Self> {
        let new = dir.join("lock.new");
        let file = options().create_new(true).open(&new).context("the lock's file")?;
        let held = Flock::lock(file, FlockArg::LockExclusiveNonblock).map_err(|(_, errno)| errno)?;
        let lock = Self::signed(held)?;
        fs::rename(&new, dir.join(FILE))?;
        Ok(lock)
    }

    /// Takes the lock of a directory whose holder is dead. `None` if it lives, or there never was one.
    #[must_use]
    pub fn of_dead(dir: &Path) -> Option<Self> {
        let file = options().custom_flags(nix::libc::O_NOFOLLOW).open(dir.join(FILE)).ok()?;
        Flock::lock(file, FlockArg::LockExclusiveNonblock).ok().map(|file| Self { _file: file })
    }

    fn signed(mut held: Flock<File>) -> anyhow::Result<Self> {
        held.set_len(0)?;
        write!(held, "{}", std::process::id())?;
        Ok(Self { _file: held })
    }
}

fn options() -> OpenOptions {
    let mut options = OpenOptions::new();
    options.read(true).write(true).mode(0o600);
    options
}

fn is_at(file: &File, path: &Path) -> bool {
    let number =
        |metadata: std::io::Result<fs::Metadata>| metadata.ok().map(|metadata| (metadata.dev(), metadata.ino()));
    let held = number(file.metadata());
    held.is_some() && held == number(fs::metadata(path))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lock_is_a_dead_ones_only_once_its_holder_is_gone() {
        let dir = tempfile::tempdir().unwrap();
        assert!(Lock::of_dead(dir.path()).is_none());
        let lock = Lock::first(dir.path()).unwrap();
        assert!(Lock::of_dead(dir.path()).is_none());
        assert!(Lock::take(dir.path()).unwrap_err().to_string().contains(&std::process::id().to_string()));
        drop(lock);
        assert!(Lock::of_dead(dir.path()).is_some());
        Lock::take(dir.path()).unwrap();
    }
}
