//! The group of a builds root, in which its tasks' groups are: made when a worker starts, remembered on disk for whoever has
//! to clean up after it, since the next worker may be started in another group.

use super::find::{Found, found};
use super::group::{Group, write};
use super::owner;
use super::{Controller, Directories, Version};
use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// Where a builds root's directories of groups are remembered, a line each.
const REMEMBERED: &str = ".groups";
/// How the name of a builds root's group begins.
pub(super) const OURS: &str = "callboard-";
/// Where a worker goes to make room: in version 2 a group with groups in it has no processes of its own.
pub(super) const LEAF: &str = "worker";

/// The group of a builds root. Removed with this, if it is empty.
#[derive(Debug)]
pub struct Parent {
    version: Version,
    directories: Directories,
    remembered: PathBuf,
}

impl Parent {
    /// Makes the group of `builds_root` below this process's own.
    ///
    /// # Errors
    ///
    /// Why there can be none, for a person.
    pub fn make(builds_root: &Path) -> Result<Self, String> {
        let read = |name| fs::read_to_string(format!("/proc/self/{name}")).map_err(|error| error.to_string());
        let (found, name) = (found(&read("mountinfo")?, &read("cgroup")?), owner::name(builds_root)?);
        let (version, directories) = directories(found, &name)?;
        let parent = Self { version, directories, remembered: builds_root.join(REMEMBERED) };
        parent.remember().map_err(|error| format!("{}: {error}", parent.remembered.display()))?;
        for directory in parent.distinct() {
            make(directory).map_err(|error| refusal(directory, &error))?;
        }
        if version == Version::V2 {
            parent.distinct().iter().try_for_each(|directory| share(directory))?;
        }
        Ok(parent)
    }

    /// The group of a task, not made yet.
    #[must_use]
    pub fn group(&self, name: &str) -> Group {
        let below = |(controller, directory): (&Controller, &PathBuf)| (*controller, directory.join(name));
        Group { version: self.version, directories: self.directories.iter().map(below).collect() }
    }

    /// Whether `controller` is there.
    #[must_use]
    pub fn has(&self, controller: Controller) -> bool {
        self.directories.contains_key(&controller)
    }

    /// Which version it is of.
    #[must_use]
    pub fn version(&self) -> Version {
        self.version
    }

    fn distinct(&self) -> BTreeSet<&Path> {
        self.directories.values().map(PathBuf::as_path).collect()
    }

    /// Before they are made: what is remembered and not there does no harm.
    fn remember(&self) -> io::Result<()> {
        let lines: Vec<_> = self.distinct().iter().map(|path| path.to_string_lossy().into_owned()).collect();
        fs::write(&self.remembered, lines.join("\n") + "\n")
    }
}

impl Drop for Parent {
    fn drop(&mut self) {
        let gone = self.distinct().into_iter().filter(|directory| fs::remove_dir(directory).is_ok()).count();
        if gone == self.distinct().len() {
            fs::remove_file(&self.remembered).ok();
        }
    }
}

/// Ends all groups that an earlier worker of `builds_root` left, and of others' those that are empty and whose worker is dead.
///
/// # Errors
///
/// If something in them can't be ended.
pub fn end_leftovers(builds_root: &Path) -> io::Result<()> {
    owner::remove_orphans();
    let remembered = builds_root.join(REMEMBERED);
    let Ok(lines) = fs::read_to_string(&remembered) else {
        return Ok(());
    };
    let is_ours = |path: &&Path| path.file_name().is_some_and(|name| name.to_string_lossy().starts_with(OURS));
    for parent in lines.lines().map(Path::new).filter(is_ours) {
        for entry in fs::read_dir(parent).into_iter().flatten().flatten() {
            if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                Group::left_in(entry.path()).end()?;
            }
        }
        // Empty, it is in nobody's way.
        fs::remove_dir(parent).ok();
    }
    fs::remove_file(remembered)
}

fn make(directory: &Path) -> io::Result<()> {
    match fs::create_dir(directory) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        made => made,
    }
}

fn refusal(directory: &Path, error: &io::Error) -> String {
    if error.kind() == io::ErrorKind::ReadOnlyFilesystem {
        return format!("{} can't be written: it is mounted read-only", shown(directory));
    }
    format!("no group can be made in {}: {error}", shown(directory))
}

fn shown(directory: &Path) -> String {
    directory.parent().unwrap_or(directory).display().to_string()
}

/// Version 2, if it has all that is needed; else what there is of version 1.
fn directories(found: Found, name: &str) -> Result<(Version, Directories), String> {
    if let Some(own) = found.v2.filter(|own| has_all(own) || found.v1.is_empty()) {
        let home = make_room(&own)?.join(name);
        return Ok((Version::V2, Controller::ALL.map(|controller| (controller, home.clone())).into()));
    }
    if found.v1.is_empty() {
        return Err("this host has no control groups: /sys/fs/cgroup is not mounted".into());
    }
    Ok((Version::V1, found.v1.into_iter().map(|(controller, own)| (controller, own.join(name))).collect()))
}

fn has_all(own: &Path) -> bool {
    let given = fs::read_to_string(own.join("cgroup.controllers")).unwrap_or_default();
    Controller::ALL.iter().all(|controller| given.split_whitespace().any(|name| name == controller.as_str()))
}

/// Moves this process into a leaf of its own group, so that there can be other groups beside it; returns where. A worker
/// that was started in such a leaf is there already.
fn make_room(own: &Path) -> Result<PathBuf, String> {
    let is_leaf = own.file_name().is_some_and(|name| name == LEAF);
    let home = own.parent().filter(|_| is_leaf).unwrap_or(own).to_path_buf();
    if !has_all(&home) {
        return Err(format!("{} was not given the controllers memory, pids and cpu", home.display()));
    }
    // The root of all may have both.
    let is_root = !home.join("cgroup.type").exists();
    if !is_root && !is_leaf {
        let leaf = home.join(LEAF);
        make(&leaf).and_then(|()| write(&leaf, "cgroup.procs", "0")).map_err(|error| refusal(&leaf, &error))?;
    }
    share(&home).inspect_err(|_| {
        if !is_root && !is_leaf {
            // Where there can be no groups, nothing is to be left of the attempt.
            write(&home, "cgroup.procs", "0").and_then(|()| fs::remove_dir(home.join(LEAF))).ok();
        }
    })?;
    Ok(home)
}

/// Lets the groups below `directory` have limits.
fn share(directory: &Path) -> Result<(), String> {
    write(directory, "cgroup.subtree_control", "+memory +pids +cpu").map_err(|error| {
        if error.raw_os_error() == Some(nix::libc::EBUSY) {
            return format!("{} has other processes than this in it", directory.display());
        }
        format!("{} can't be shared: {error}", directory.display())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A tree of version 2 as files, with this process's group in it.
    fn tree(own: &str, controllers: &str) -> (tempfile::TempDir, PathBuf) {
        let root = tempfile::tempdir().unwrap();
        let own = root.path().join(own);
        fs::create_dir_all(&own).unwrap();
        for group in own.ancestors().take(2) {
            fs::write(group.join("cgroup.controllers"), controllers).unwrap();
            fs::write(group.join("cgroup.type"), "domain\n").unwrap();
        }
        (root, own)
    }

    fn read(path: &Path) -> String {
        fs::read_to_string(path).unwrap()
    }

    #[test]
    fn in_version_2_the_worker_makes_room_for_the_groups_beside_it() {
        let (_root, own) = tree("callboard.service", "cpuset cpu io memory pids\n");
        let found = Found { v2: Some(own.clone()), v1: Directories::default() };
        let (version, directories) = directories(found, "callboard-1-2").unwrap();
        assert_eq!((version, directories.len()), (Version::V2, 3));
        assert!(directories.values().all(|directory| *directory == own.join("callboard-1-2")));
        assert_eq!(read(&own.join("worker/cgroup.procs")), "0");
        assert_eq!(read(&own.join("cgroup.subtree_control")), "+memory +pids +cpu");
    }

    #[test]
    fn a_worker_that_was_started_in_its_leaf_stays_there() {
        let (_root, own) = tree("callboard.service/worker", "cpu memory pids\n");
        let home = own.parent().unwrap();
        assert_eq!(make_room(&own).unwrap(), home);
        assert!(!own.join("cgroup.procs").exists());
        assert_eq!(read(&home.join("cgroup.subtree_control")), "+memory +pids +cpu");
    }

    #[test]
    fn a_group_without_controllers_is_no_use_and_version_1_is_taken_beside_it() {
        let (_root, own) = tree("session.scope", "memory pids\n");
        let v1: Directories = [(Controller::Memory, PathBuf::from("/m"))].into();
        let hybrid = directories(Found { v2: Some(own.clone()), v1 }, "x").unwrap();
        assert_eq!(hybrid, (Version::V1, [(Controller::Memory, "/m/x".into())].into()));
        let alone = directories(Found { v2: Some(own), v1: Directories::default() }, "x").unwrap_err();
        assert!(alone.contains("was not given the controllers"), "{alone}");
        assert!(directories(Found::default(), "x").unwrap_err().contains("not mounted"));
    }

    #[test]
    fn what_is_remembered_and_not_ours_is_left_alone() {
        let root = tempfile::tempdir().unwrap();
        let theirs = root.path().join("theirs");
        fs::create_dir_all(theirs.join("task")).unwrap();
        fs::write(root.path().join(REMEMBERED), format!("{}\n/nowhere/callboard-1\n", theirs.display())).unwrap();
        end_leftovers(root.path()).unwrap();
        end_leftovers(root.path()).unwrap();
        assert!(theirs.join("task").exists() && !root.path().join(REMEMBERED).exists());
    }
}
