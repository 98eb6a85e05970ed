//! The group of one task.

use super::settings::{self, Setting};
use super::{Controller, Directories, Version};
use crate::isolation::Limits;
use crate::proc;
use nix::sys::signal::Signal;
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use std::fs::{self, OpenOptions};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::thread::sleep;
use std::time::{Duration, Instant};

/// How long killed processes may take to be gone, and a group without any to be removable.
const PATIENCE: Duration = Duration::from_secs(20);
const LOOK_EVERY: Duration = Duration::from_millis(2);
/// The file that names a group's processes, and takes new ones.
const PROCESSES: &str = "cgroup.procs";
/// The same for threads, in version 1: to move a whole process, the kernel first waits until none starts or ends anywhere, for 5 ms
/// and more; a thread moves at once.
const THREADS: &str = "tasks";

/// The directories of one task's group.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Group {
    pub(super) version: Version,
    pub(super) directories: Directories,
}

impl Group {
    /// One that somebody left. Which version it is shows in its files, and so does what it was for.
    pub(super) fn left_in(directory: PathBuf) -> Self {
        let is_v2 = directory.join("cgroup.events").exists();
        let limits =
            [(Controller::Memory, "memory.stat"), (Controller::Pids, "pids.max"), (Controller::Cpu, "cpu.stat")];
        let is_limited = |file: &str| directory.join(file).exists();
        let found = limits.into_iter().filter(|(_, file)| is_limited(file));
        let directories = found.map(|(controller, _)| (controller, directory.clone())).collect();
        Self { version: if is_v2 { Version::V2 } else { Version::V1 }, directories }
    }

    /// Makes it, with its limits.
    ///
    /// # Errors
    ///
    /// If it can't be made, or be limited.
    pub fn make(&self, limits: &Limits) -> io::Result<()> {
        for directory in self.distinct() {
            fs::create_dir(directory).map_err(|error| about(directory, &error))?;
        }
        for (controller, directory) in &self.directories {
            for Setting { file, value, needed } in settings::limiting(self.version, *controller, limits) {
                match write(directory, file, &value) {
                    Err(error) if needed => return Err(about(&directory.join(file), &error)),
                    Ok(()) | Err(_) => {}
                }
            }
        }
        Ok(())
    }

    /// Where a process of one thread is to go to be in it.
    pub fn doors(&self) -> impl Iterator<Item = PathBuf> {
        let file = match self.version {
            Version::V1 => THREADS,
            Version::V2 => PROCESSES,
        };
        self.distinct().into_iter().map(|directory| directory.join(file)).collect::<Vec<_>>().into_iter()
    }

    /// Whether the kernel ended a process of it for want of memory.
    #[must_use]
    pub fn ran_out_of_memory(&self) -> bool {
        let events = |directory: &PathBuf| fs::read_to_string(directory.join(settings::memory_events(self.version)));
        let events = self.directories.get(&Controller::Memory).and_then(|directory| events(directory).ok());
        events.is_some_and(|events| settings::memory_kills(&events) > 0)
    }

    /// The processes that are in it.
    #[must_use]
    pub fn processes(&self) -> Vec<i32> {
        self.distinct().first().map(|directory| processes(directory)).unwrap_or_default()
    }

    /// Kills all that is in it, without waiting.
    pub fn kill(&self) {
        for (controller, directory) in &self.directories {
            if let Some(Setting { file, value, .. }) = settings::dying(self.version, *controller) {
                write(directory, file, &value).ok();
            }
        }
        for directory in self.distinct() {
            // Since Linux 5.14; it misses nothing. Before, nothing new is born, so that one look finds all.
            if self.version == Version::V1 || write(directory, "cgroup.kill", "1").is_err() {
                processes(directory).into_iter().for_each(|pid| proc::signal(pid, Signal::SIGKILL));
            }
        }
    }

    /// Kills all that is in it, and removes it. One that is gone is no error.
    ///
    /// # Errors
    ///
    /// If that takes too long.
    pub fn end(&self) -> io::Result<()> {
        let begun = Instant::now();
        loop {
            let left: Vec<&Path> = self.distinct().into_iter().filter(|directory| !is_gone(directory)).collect();
            match left.first() {
                None => return Ok(()),
                Some(directory) if begun.elapsed() > PATIENCE => {
                    let pids = processes(directory);
                    let what = format!("the control group {} can't be ended; in it: {pids:?}", directory.display());
                    return Err(io::Error::other(what));
                }
                Some(_) => {}
            }
            self.kill();
            sleep(LOOK_EVERY);
        }
    }

    fn distinct(&self) -> BTreeSet<&Path> {
        self.directories.values().map(PathBuf::as_path).collect()
    }
}

/// Puts this process into the groups that `doors` lead to.
///
/// # Errors
///
/// If it may not.
pub fn join(doors: &[PathBuf]) -> io::Result<()> {
    doors.iter().try_for_each(|door| append(door, "0").map_err(|error| about(door, &error)))
}

/// Tries to remove a group; one that is not empty stays.
fn is_gone(directory: &Path) -> bool {
    fs::remove_dir(directory).map_or_else(|error| error.kind() == io::ErrorKind::NotFound, |()| true)
}

fn processes(directory: &Path) -> Vec<i32> {
    let pids = fs::read_to_string(directory.join(PROCESSES)).unwrap_or_default();
    pids.lines().filter_map(|pid| pid.parse().ok()).collect()
}

pub(super) fn write(directory: &Path, file: &str, value: &str) -> io::Result<()> {
    fs::write(directory.join(file), value)
}

fn append(file: &Path, value: &str) -> io::Result<()> {
    OpenOptions::new().write(true).open(file)?.write_all(value.as_bytes())
}

fn about(path: &Path, error: &io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("{}: {error}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;

    const LIMITS: Limits = Limits { memory_bytes: 1 << 26, processes: 10, cpu_millis: 500, disk_bytes: 0 };

    #[test]
    fn a_group_of_version_2_is_one_directory_that_gets_all_limits() {
        let root = tempfile::tempdir().unwrap();
        let directory = root.path().join("task");
        let directories = Controller::ALL.map(|controller| (controller, directory.clone())).into();
        let group = Group { version: Version::V2, directories };
        group.make(&LIMITS).unwrap();
        assert_eq!(group.doors().collect::<Vec<_>>(), [directory.join(PROCESSES)]);
        let of_threads = Group { version: Version::V1, ..group.clone() };
        assert_eq!(of_threads.doors().collect::<Vec<_>>(), [directory.join("tasks")]);
        let read = |file| fs::read_to_string(directory.join(file)).unwrap();
        assert_eq!([read("memory.max"), read("cpu.max")], ["67108864", "50000 100000"]);
        assert!(!group.ran_out_of_memory());
        fs::write(directory.join("memory.events"), "oom 1\noom_kill 1\n").unwrap();
        assert!(group.ran_out_of_memory());
        group.kill();
        assert_eq!([read("pids.max"), read("cpu.max"), read("cgroup.kill")], ["0", "max", "1"]);
    }

    #[test]
    fn what_can_not_be_limited_is_an_error_that_names_the_file() {
        let group = Group { version: Version::V1, directories: [(Controller::Cpu, "/nowhere/task".into())].into() };
        assert!(group.make(&LIMITS).unwrap_err().to_string().contains("/nowhere/task"));
        assert!(group.end().is_ok(), "what is gone has ended");
    }

    /// In the one tree that this host may have without controllers, a kill is tried for real.
    #[test]
    fn a_real_group_of_version_2_is_killed_with_all_that_is_in_it() {
        let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap();
        let own = super::super::find::found(&mounts, "0::/\n").v2.unwrap_or_default();
        let directory = own.join(format!("callboard-test-{}", std::process::id()));
        if let Err(error) = fs::create_dir(&directory) {
            return crate::skipped::skip("cgroup2", &error.to_string());
        }
        let mut child = Command::new("sleep").arg("100").spawn().unwrap();
        write(&directory, PROCESSES, &child.id().to_string()).unwrap();
        let group = Group { version: Version::V2, directories: [(Controller::Memory, directory.clone())].into() };
        std::thread::spawn(move || child.wait());
        group.end().unwrap();
        assert!(!directory.exists());
    }
}
