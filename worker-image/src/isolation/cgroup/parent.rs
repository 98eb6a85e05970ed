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

    /// Before they are made: what is remembered and not there does no harm. What an earlier worker left there is not forgotten:
    /// a preview lives on in it.
    fn remember(&self) -> io::Result<()> {
        let mut directories = left(&self.remembered);
        directories.extend(self.distinct().into_iter().map(Path::to_path_buf));
        note(&self.remembered, &directories)
    }
}

impl Drop for Parent {
    fn drop(&mut self) {
        self.distinct().into_iter().for_each(|directory| drop(fs::remove_dir(directory)));
        forget(&self.remembered).ok();
    }
}

/// The directories that are noted in the file at `path`.
fn remembered(path: &Path) -> BTreeSet<PathBuf> {
    fs::read_to_string(path).unwrap_or_default().lines().map(PathBuf::from).collect()
}

/// Those of them that are ours and still there.
fn left(path: &Path) -> BTreeSet<PathBuf> {
    remembered(path).into_iter().filter(|directory| is_ours(directory) && directory.exists()).collect()
}

fn note(path: &Path, directories: &BTreeSet<PathBuf>) -> io::Result<()> {
    let lines: String = directories.iter().map(|directory| format!("{}\n", directory.display())).collect();
    fs::write(path, lines)
}

/// Forgets the directories that are gone.
fn forget(path: &Path) -> io::Result<()> {
    let left = left(path);
    if left.is_empty() { fs::remove_file(path) } else { note(path, &left) }
}

/// Ends all groups that an earlier worker of `builds_root` left, but for those of the builds in `but_for`; of other workers' those that are
/// empty and whose worker is dead.
///
/// # Errors
///
/// If something in them can't be ended.
pub fn end_leftovers(builds_root: &Path, but_for: &BTreeSet<String>) -> io::Result<()> {
    owner::remove_orphans();
    let path = builds_root.join(REMEMBERED);
    if !path.exists() {
        return Ok(());
    }
    end(builds_root, &|build| !but_for.contains(build))?;
    // Empty, one is in nobody's way.
    remembered(&path).iter().filter(|parent| is_ours(parent)).for_each(|parent| drop(fs::remove_dir(parent)));
    forget(&path)
}

/// Ends the groups of `build`.
///
/// # Errors
///
/// If something in them can't be ended.
pub fn end_of(builds_root: &Path, build: &str) -> io::Result<()> {
    end(builds_root, &|other| other == build)
}

fn end(builds_root: &Path, is_to_end: &dyn Fn(&str) -> bool) -> io::Result<()> {
    groups(builds_root, is_to_end).into_iter().try_for_each(|group| Group::left_in(group).end())
}

/// The groups of the builds that `is_meant` names: a group's name begins with its build's.
fn groups(builds_root: &Path, is_meant: &dyn Fn(&str) -> bool) -> Vec<PathBuf> {
    let is_its = |entry: &fs::DirEntry| {
        let name = entry.file_name().to_string_lossy().into_owned();
        entry.file_type().is_ok_and(|kind| kind.is_dir()) && is_meant(name.split('.').next().unwrap_or_default())
    };
    let parents = remembered(&builds_root.join(REMEMBERED)).into_iter().filter(|parent| is_ours(parent));
    let entries = parents.flat_map(|parent| fs::read_dir(parent).into_iter().flatten().flatten());
    entries.filter(is_its).map(|entry| entry.path()).collect()
}

fn is_ours(parent: &Path) -> bool {
    parent.file_name().is_some_and(|name| name.to_string_lossy().starts_with(OURS))
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
        end_leftovers(root.path(), &BTreeSet::new()).unwrap();
        end_leftovers(root.path(), &BTreeSet::new()).unwrap();
        assert!(theirs.join("task").exists() && !root.path().join(REMEMBERED).exists());
    }

    #[test]
    fn the_group_of_a_preview_that_lives_is_neither_ended_nor_forgotten() {
        let root = tempfile::tempdir().unwrap();
        let parent = root.path().join("callboard-1-2");
        for task in ["one.preview", "other.0"] {
            fs::create_dir_all(parent.join(task)).unwrap();
        }
        let lines = format!("{}\n", parent.display());
        fs::write(root.path().join(REMEMBERED), &lines).unwrap();
        let one = |build: &str| build == "one";
        assert_eq!(groups(root.path(), &one), [parent.join("one.preview")]);
        assert_eq!(groups(root.path(), &|build| !one(build)), [parent.join("other.0")]);
        end_leftovers(root.path(), &["one".to_owned()].into()).unwrap();
        assert_eq!(read(&root.path().join(REMEMBERED)), lines);
        ["one.preview", "other.0"].iter().for_each(|task| fs::remove_dir(parent.join(task)).unwrap());
        end_leftovers(root.path(), &BTreeSet::new()).unwrap();
        assert!(!parent.exists() && !root.path().join(REMEMBERED).exists());
    }
}
