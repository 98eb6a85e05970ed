//! One stack a directory: a lock that the kernel frees when its holder dies, however it dies.

use anyhow::{Context as _, bail};
use nix::fcntl::{Flock, FlockArg};
use std::fs::{File, OpenOptions};
use std::io::{Read as _, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

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
        let path = dir.join("lock");
        let mut file = OpenOptions::new().read(true).write(true).create(true).truncate(false).mode(0o600).open(&path);
        let file = file.as_mut().map_err(|error| anyhow::anyhow!("{} can't be opened: {error}", path.display()))?;
        let file = file.try_clone().context("the lock's file")?;
        match Flock::lock(file, FlockArg::LockExclusiveNonblock) {
            Ok(mut held) => {
                held.set_len(0)?;
                write!(held, "{}", std::process::id())?;
                Ok(Self { _file: held })
            }
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
