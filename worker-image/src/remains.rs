//! What could not be removed, directories and containers: named in the worker's log, tried again, and in nobody's way.
//!
//! What one build left on the disk is no reason to take no others'. If the disk fills up with it, nothing is claimed for
//! that reason.

use crate::isolation::Isolation;
use crate::site;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::time::sleep;
use tracing::{error, info};

/// How long until what could not be removed is tried again.
pub const AGAIN_AFTER: Duration = Duration::from_secs(60);

/// How long until containers that could not be removed are tried again: there are not many, and their daemon may be back.
const CLEAR_AGAIN_AFTER: Duration = Duration::from_secs(10);

/// Removes what `isolation` keeps of a build, as often as it takes; if this process ends before, that is the next recovery's.
pub async fn clear_at_last(isolation: Arc<dyn Isolation>, build: String) {
    loop {
        sleep(CLEAR_AGAIN_AFTER).await;
        if isolation.clear(&build).await.is_ok() {
            return info!(build.id = build, "a build's containers and volumes are removed at last");
        }
    }
}

/// What could not be removed yet.
#[derive(Debug, Default)]
pub struct Remains {
    directories: Mutex<BTreeSet<PathBuf>>,
}

impl Remains {
    /// Removes a build's directory, or keeps it in mind. Says whether it is gone.
    pub async fn remove(&self, directory: &Path) -> bool {
        let Err(error) = site::remove(directory).await else {
            return true;
        };
        let shown = directory.display();
        error!(directory = %shown, %error, "a build's directory can't be removed; it is tried again");
        self.directories().insert(directory.to_path_buf());
        false
    }

    /// Tries again, `every` so often, for ever.
    pub async fn try_again(&self, every: Duration) {
        loop {
            sleep(every).await;
            let directories = self.directories().clone();
            for directory in directories {
                if site::remove(&directory).await.is_ok() {
                    info!(directory = %directory.display(), "a build's directory is removed at last");
                    self.directories().remove(&directory);
                }
            }
        }
    }

    fn directories(&self) -> MutexGuard<'_, BTreeSet<PathBuf>> {
        self.directories.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[tokio::test]
    async fn what_can_not_be_removed_now_is_removed_later() {
        let root = tempfile::tempdir().unwrap();
        let (directory, remains) = (root.path().join("build"), Remains::default());
        // Of a link nothing is removed, whoever asks.
        std::os::unix::fs::symlink("/nowhere", &directory).unwrap();
        assert!(!remains.remove(&directory).await);
        fs::remove_file(&directory).unwrap();
        fs::create_dir(&directory).unwrap();
        let again = remains.try_again(Duration::from_millis(1));
        let gone = async {
            while directory.exists() {
                sleep(Duration::from_millis(1)).await;
            }
        };
        tokio::select! { () = again => {}, () = gone => {} }
        assert!(remains.remove(&directory).await);
    }
}
