//! Who descends from whom among this host's processes.

use nix::errno::Errno;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;

/// A process and what it was called with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Process {
    /// Its number.
    pub pid: i32,
    /// Its parent's.
    pub parent: i32,
    /// Its program and arguments; none once it has ended.
    pub args: Vec<String>,
}

/// All processes that this one can see.
#[must_use]
pub fn all() -> Vec<Process> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    entries.filter_map(|entry| read(entry.file_name().to_str()?.parse().ok()?)).collect()
}

fn read(pid: i32) -> Option<Process> {
    let parent = parent_in(&fs::read_to_string(format!("/proc/{pid}/stat")).ok()?)?;
    let args = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    let args = args.split(|byte| *byte == 0).filter(|arg| !arg.is_empty());
    Some(Process { pid, parent, args: args.map(|arg| String::from_utf8_lossy(arg).into_owned()).collect() })
}

/// When a process began, in the kernel's ticks since boot; none if that can't be known.
#[must_use]
pub fn began(pid: i32) -> Option<u64> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    field_of(&stat, 22)?.parse().ok()
}

/// Whether the process that `began` then is there; one that can't be looked at is.
#[must_use]
pub fn lives(pid: i32, began: u64) -> bool {
    match self::began(pid) {
        Some(its) => its == began,
        None => kill(Pid::from_raw(pid), None) != Err(Errno::ESRCH),
    }
}

/// A field after the second, counted from 1. The name in the second may hold anything, also blanks and brackets; the fields go on
/// after its last bracket.
fn field_of(stat: &str, number: usize) -> Option<&str> {
    let (_, rest) = stat.rsplit_once(')')?;
    rest.split_whitespace().nth(number - 3)
}

fn parent_in(stat: &str) -> Option<i32> {
    field_of(stat, 4)?.parse().ok()
}

/// All processes of `processes` that descend from one of `roots`, without those themselves.
#[must_use]
pub fn descendants(processes: &[Process], roots: &[i32]) -> Vec<i32> {
    let mut children: BTreeMap<i32, Vec<i32>> = BTreeMap::new();
    for process in processes {
        children.entry(process.parent).or_default().push(process.pid);
    }
    let (mut found, mut open) = (BTreeSet::new(), roots.to_vec());
    while let Some(pid) = open.pop() {
        let new = children.get(&pid).into_iter().flatten().filter(|child| found.insert(**child));
        open.extend(new);
    }
    found.into_iter().collect()
}

/// Sends `signal`; a process that is gone already is as well.
pub fn signal(pid: i32, signal: Signal) {
    if pid > 1 {
        kill(Pid::from_raw(pid), signal).ok();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_with_brackets_and_blanks_hides_nothing() {
        assert_eq!(parent_in("7 (a) b) (c)) S 42 7 7 0"), Some(42));
        assert_eq!(parent_in("7 (sh"), None);
    }

    #[test]
    fn descendants_are_found_over_generations() {
        let process = |(pid, parent)| Process { pid, parent, args: Vec::new() };
        let processes: Vec<_> = [(2, 1), (3, 2), (4, 3), (5, 1), (6, 4)].map(process).into();
        assert_eq!(descendants(&processes, &[3]), [4, 6]);
        assert!(descendants(&processes, &[6]).is_empty());
    }

    #[test]
    fn a_process_lives_if_it_began_when_it_is_said_to() {
        let me = i32::try_from(std::process::id()).unwrap();
        let began = began(me).unwrap();
        assert!(lives(me, began) && !lives(me, began + 1) && !lives(i32::MAX, began));
        let stat = "7 (a) b) (c)) S 42 7 7 0 -1 1 2 3 4 5 6 7 8 9 20 0 1 0 4711 9 9";
        assert_eq!(field_of(stat, 22), Some("4711"));
    }

    #[test]
    fn this_process_is_among_all() {
        let me = i32::try_from(std::process::id()).unwrap();
        assert!(all().iter().any(|process| process.pid == me && !process.args.is_empty()));
    }
}
