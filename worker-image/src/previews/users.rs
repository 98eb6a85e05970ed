//! The users of builds that leave a preview behind: each has one of its own as long as its directory is kept, since its service
//! outlives the slot that it was built in.

use super::folder;
use std::collections::BTreeMap;
use std::io;
use std::path::Path;
use std::sync::{Mutex, MutexGuard, PoisonError};
use tokio::sync::Notify;
use uuid::Uuid;

/// Slots have the numbers below this.
const FIRST: u32 = 256;

/// Who has which, and which builds are still being run.
#[derive(Debug, Default)]
pub struct Users {
    users: Mutex<BTreeMap<Uuid, User>>,
    changed: Notify,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct User {
    number: u32,
    runs: bool,
}

impl Users {
    /// Of the builds whose directories are kept in `builds_root`.
    ///
    /// # Errors
    ///
    /// If it can't be read.
    pub fn of(builds_root: &Path) -> io::Result<Self> {
        let users = Self::default();
        for folder in folder::kept(builds_root)? {
            let user = User { number: folder.slot()?, runs: false };
            users.users().insert(folder.build, user);
        }
        Ok(users)
    }

    /// Gives `build` a user that nobody else has; it stands for the number of its slot.
    pub fn begin(&self, build: Uuid) -> u32 {
        let mut users = self.users();
        let taken: Vec<u32> = users.values().map(|user| user.number).collect();
        let number = (FIRST..).find(|number| !taken.contains(number)).unwrap_or(u32::MAX);
        users.insert(build, User { number, runs: true });
        number
    }

    /// The end of `build` is acknowledged, and its directory kept for its preview.
    pub fn keep(&self, build: Uuid) {
        self.users().entry(build).and_modify(|user| user.runs = false);
        self.changed.notify_one();
    }

    /// Nothing of `build` is left.
    pub fn release(&self, build: Uuid) {
        self.users().remove(&build);
    }

    /// Whether `build` is still being run.
    #[must_use]
    pub fn runs(&self, build: Uuid) -> bool {
        self.users().get(&build).is_some_and(|user| user.runs)
    }

    /// Waits for a build to be kept.
    pub async fn changed(&self) {
        self.changed.notified().await;
    }

    fn users(&self) -> MutexGuard<'_, BTreeMap<Uuid, User>> {
        self.users.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::previews::folder::Folder;

    #[test]
    fn no_two_builds_have_one_user_and_none_has_a_slots() {
        let root = tempfile::tempdir().unwrap();
        let kept = Folder::of(root.path(), Uuid::now_v7());
        std::fs::create_dir(&kept.site).unwrap();
        kept.make(FIRST).unwrap();
        let users = Users::of(root.path()).unwrap();
        let builds = [1, 2, 3].map(Uuid::from_u128);
        assert_eq!(builds.map(|build| users.begin(build)), [FIRST + 1, FIRST + 2, FIRST + 3]);
        users.release(builds[1]);
        users.keep(builds[0]);
        assert_eq!([builds[0], builds[2], kept.build].map(|build| users.runs(build)), [false, true, false]);
        assert_eq!(users.begin(Uuid::from_u128(9)), FIRST + 2, "what nobody has any more is given again");
        users.release(kept.build);
        assert_eq!(users.begin(kept.build), FIRST);
    }
}
