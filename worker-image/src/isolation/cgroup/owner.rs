//! Whose the group of a builds root is, as its name says: so that any worker can tell those whose worker is dead, also where their
//! builds root, which lists them, is gone.
//!
//! Only empty groups are removed, by a call that fails on any other. What still runs in one is for its guards, and for the next
//! worker on its builds root.

use super::find::{Found, found};
use super::parent::{LEAF, OURS};
use crate::proc;
use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use tracing::info;

/// A worker among those that may see the same groups.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Owner {
    /// The namespace that its number is of: a container's workers are not this host's.
    namespace: u64,
    pid: i32,
    /// When it began, since numbers come again.
    began: u64,
}

impl Owner {
    fn this() -> Option<Self> {
        let pid = i32::try_from(std::process::id()).ok()?;
        let namespace = fs::metadata("/proc/self/ns/pid").ok()?.ino();
        Some(Self { namespace, pid, began: proc::began(pid)? })
    }

    /// The owner that a group's name tells; none if it is not one of ours.
    fn of(name: &str) -> Option<Self> {
        let parts: Vec<&str> = name.strip_prefix(OURS)?.split('-').collect();
        let [_device, _inode, namespace, pid, began] = parts.as_slice() else { return None };
        let namespace = u64::from_str_radix(namespace, 16).ok()?;
        Some(Self { namespace, pid: pid.parse().ok()?, began: began.parse().ok()? })
    }

    /// Whether it is known to be gone, by a process of `namespace` to which `lives` tells whether another does.
    fn is_dead(self, namespace: u64, lives: impl FnOnce(i32, u64) -> bool) -> bool {
        self.namespace == namespace && !lives(self.pid, self.began)
    }
}

/// The name of the group that this process makes for `builds_root`. Two workers on one host have two.
pub(super) fn name(builds_root: &Path) -> Result<String, String> {
    let meta = fs::metadata(builds_root).map_err(|error| format!("{}: {error}", builds_root.display()))?;
    let Owner { namespace, pid, began } = Owner::this().ok_or("/proc does not tell of this process")?;
    Ok(format!("{OURS}{:x}-{:x}-{namespace:x}-{pid}-{began}", meta.dev(), meta.ino()))
}

/// Removes the groups of dead workers that are where this process's would be.
pub(super) fn remove_orphans() {
    let read = |name| fs::read_to_string(format!("/proc/self/{name}")).unwrap_or_default();
    let Some(this) = Owner::this() else { return };
    for home in homes(found(&read("mountinfo"), &read("cgroup"))) {
        let removed = remove_orphans_in(&home, |owner| owner.is_dead(this.namespace, proc::lives));
        if removed > 0 {
            info!(groups = removed, directory = %home.display(), "removed the empty control groups of workers that are dead");
        }
    }
}

/// Where groups of builds roots are made: below this process's own, or beside it, if it has made room for them.
fn homes(found: Found) -> Vec<PathBuf> {
    let beside = found.v2.iter().filter(|own| own.file_name().is_some_and(|name| name == LEAF));
    let beside = beside.filter_map(|own| own.parent()).map(Path::to_path_buf).collect::<Vec<_>>();
    found.v1.into_values().chain(found.v2).chain(beside).collect()
}

/// How many were removed.
fn remove_orphans_in(home: &Path, is_dead: impl Fn(Owner) -> bool) -> usize {
    let entries = fs::read_dir(home).into_iter().flatten().flatten();
    let orphans = entries.filter(|entry| Owner::of(&entry.file_name().to_string_lossy()).is_some_and(&is_dead));
    let removed = orphans.filter(|orphan| {
        let tasks = fs::read_dir(orphan.path()).into_iter().flatten().flatten();
        tasks.for_each(|task| drop(fs::remove_dir(task.path())));
        fs::remove_dir(orphan.path()).is_ok()
    });
    removed.count()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_tells_its_owner_who_lives() {
        let (one, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let (one, other) = (name(one.path()).unwrap(), name(other.path()).unwrap());
        assert_ne!(one, other, "two builds roots have two names");
        let this = Owner::this().unwrap();
        assert_eq!(Owner::of(&one), Some(this));
        assert!(!this.is_dead(this.namespace, proc::lives));
        let before = Owner { began: this.began - 1, ..this };
        assert!(before.is_dead(this.namespace, proc::lives), "the number alone is another's");
        assert!(!before.is_dead(this.namespace + 1, proc::lives), "of another's namespace nothing is known");
    }

    #[test]
    fn what_is_not_named_by_us_has_no_owner() {
        for name in ["callboard-1-2", "callboard-a-b-c-d-e", "callboard-1-2-3-4", "user.slice", "callboard-1-2-3-4-5-6"]
        {
            assert_eq!(Owner::of(name), None, "{name}");
        }
    }

    #[test]
    fn an_orphan_is_removed_if_it_is_empty_and_no_other_ever() {
        let home = tempfile::tempdir().unwrap();
        let [dead, busy, live, older] =
            ["1-1-f-10-1", "1-2-f-10-1", "1-3-f-11-1", "1-4"].map(|name| home.path().join(format!("{OURS}{name}")));
        for group in [&dead, &busy, &live, &older] {
            fs::create_dir_all(group.join("task")).unwrap();
        }
        fs::write(busy.join("task/something"), []).unwrap();
        assert_eq!(remove_orphans_in(home.path(), |owner| owner.pid == 10), 1);
        assert!(!dead.exists() && busy.join("task/something").exists() && live.exists() && older.exists());
    }

    #[test]
    fn groups_are_looked_for_where_they_are_made() {
        let found = |v2: &str| Found { v2: Some(v2.into()), ..Found::default() };
        assert_eq!(homes(found("/c/unit")), [PathBuf::from("/c/unit")]);
        assert_eq!(homes(found("/c/unit/worker")), ["/c/unit/worker", "/c/unit"].map(PathBuf::from));
    }
}
