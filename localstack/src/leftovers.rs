//! What is left of a stack on this host: processes and mounts.
//!
//! A step runs in namespaces of its own, where every path is another: its program, its arguments and its directory say
//! nothing of us. Two things it can't shed: it descends from us (whoever loses a parent becomes our child, see [`adopt`]), and
//! what it sees of the host is mounted from our directory.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::{OsStr, OsString};
use std::fs;
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::path::{Path, PathBuf};

/// A process of this host.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Process {
    pid: u32,
    parent: u32,
    /// Its state; `Z` has ended, and only waits to be noticed.
    state: char,
}

/// From now on, a process below this one whose parent ends becomes ours, not the host's: none gets out of sight.
///
/// # Errors
///
/// If the kernel can't.
pub fn adopt() -> std::io::Result<()> {
    #[cfg(target_os = "linux")]
    nix::sys::prctl::set_child_subreaper(true)?;
    Ok(())
}

/// Processes that descend from this one, and live.
#[must_use]
pub fn descendants() -> BTreeSet<u32> {
    below(&all(), &[std::process::id()])
}

/// Those of them that run in a sandbox: in a namespace of processes below ours.
#[must_use]
pub fn sandboxed() -> BTreeSet<u32> {
    let ours = depth(std::process::id());
    descendants().into_iter().filter(|pid| depth(*pid) > ours).collect()
}

/// Processes, other than this one, that have to do with `dir`: their program, an argument or their working directory is
/// below it, or they see something of it at a place of their own.
#[must_use]
pub fn processes(dir: &Path) -> Vec<u32> {
    let spot = Spot::of(dir);
    let others = all().into_iter().filter(|process| process.pid != std::process::id() && process.state != 'Z');
    others.map(|process| process.pid).filter(|pid| names(*pid, dir) || sees(*pid, dir, spot.as_ref())).collect()
}

/// Whether a process of this program has to do with `dir`.
#[must_use]
pub(crate) fn runs(program: &str, dir: &Path) -> bool {
    let exe = |pid: &u32| fs::read_link(format!("/proc/{pid}/exe"));
    processes(dir).iter().any(|pid| exe(pid).is_ok_and(|exe| exe.file_name().is_some_and(|name| name == program)))
}

/// Ends what a killed demo left of `dir`, where nobody lives any more: its server, its worker, its sandboxes, with all that
/// descends from them. A person's shell or editor there is left alone. Returns how many had to be ended, and whether all are
/// gone.
#[must_use]
pub fn end(dir: &Path) -> (usize, bool) {
    let spot = Spot::of(dir);
    let is_ours = |process: &Process| {
        let sandboxed = depth(process.pid) > depth(std::process::id());
        sandboxed && sees(process.pid, dir, spot.as_ref()) || is_our_program(process.pid) && names(process.pid, dir)
    };
    end_all(|| {
        let processes = all();
        let roots: Vec<u32> = processes.iter().filter(|process| is_ours(process)).map(|process| process.pid).collect();
        let mut found = below(&processes, &roots);
        found.extend(roots.into_iter().filter(|pid| is_alive_as(*pid, &processes)));
        found
    })
}

/// Ends all that descends from this process. Returns how many that were, and whether all are gone.
#[must_use]
pub fn end_descendants() -> (usize, bool) {
    end_all(descendants)
}

fn end_all(find: impl Fn() -> BTreeSet<u32>) -> (usize, bool) {
    let mut ended = BTreeSet::new();
    for _ in 0..500 {
        let found = find();
        if found.is_empty() {
            return (ended.len(), true);
        }
        for pid in found {
            if let Some(pid) = i32::try_from(pid).ok().filter(|pid| *pid > 1) {
                let _ = nix::sys::signal::kill(nix::unistd::Pid::from_raw(pid), nix::sys::signal::Signal::SIGKILL);
            }
            ended.insert(pid);
        }
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    (ended.len(), false)
}

/// How many mounts there are of or below `dir`, in every namespace that can be seen.
#[must_use]
pub fn mounts(dir: &Path) -> usize {
    let spot = Spot::of(dir);
    let mut namespaces = BTreeMap::new();
    for Process { pid, .. } in all() {
        let namespace = fs::read_link(format!("/proc/{pid}/ns/mnt"));
        namespaces.entry(namespace.unwrap_or_else(|_| format!("of {pid}").into())).or_insert(pid);
    }
    let of = |pid: &u32| mounts_of(*pid).iter().filter(|mount| mount.is_of(dir, spot.as_ref())).count();
    namespaces.values().map(of).sum()
}

/// Whether a process lives.
#[must_use]
pub fn is_alive(pid: i32) -> bool {
    u32::try_from(pid).ok().and_then(read).is_some_and(|process| process.state != 'Z')
}

/// Whether a process has ended and only waits for whoever is to notice, which may never do so.
pub(crate) fn has_ended(pid: i32) -> bool {
    u32::try_from(pid).ok().and_then(read).is_some_and(|process| process.state == 'Z')
}

fn is_alive_as(pid: u32, processes: &[Process]) -> bool {
    processes.iter().any(|process| process.pid == pid && process.state != 'Z')
}

fn all() -> Vec<Process> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    entries.filter_map(|entry| read(entry.file_name().to_str()?.parse().ok()?)).collect()
}

fn read(pid: u32) -> Option<Process> {
    parsed(pid, &fs::read_to_string(format!("/proc/{pid}/stat")).ok()?)
}

/// The name in the second field may hold anything, also blanks and brackets; the fields go on after its last bracket.
fn parsed(pid: u32, stat: &str) -> Option<Process> {
    let (_, rest) = stat.rsplit_once(')')?;
    let mut fields = rest.split_whitespace();
    Some(Process { pid, state: fields.next()?.chars().next()?, parent: fields.next()?.parse().ok()? })
}

/// The living below `roots`, without those.
fn below(processes: &[Process], roots: &[u32]) -> BTreeSet<u32> {
    let (mut found, mut open) = (BTreeSet::new(), roots.to_vec());
    while let Some(parent) = open.pop() {
        let children = processes.iter().filter(|process| process.parent == parent);
        open.extend(children.map(|process| process.pid).filter(|pid| found.insert(*pid)));
    }
    found.retain(|pid| is_alive_as(*pid, processes));
    found
}

/// How many namespaces of processes a process is in, one in the other: a number for each.
fn depth(pid: u32) -> usize {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let numbers = status.lines().find_map(|line| line.strip_prefix("NSpid:")).unwrap_or("");
    numbers.split_whitespace().count()
}

fn arguments(pid: u32) -> Vec<u8> {
    fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default()
}

fn names(pid: u32, dir: &Path) -> bool {
    let proc = PathBuf::from(format!("/proc/{pid}"));
    let linked = |name: &str| fs::read_link(proc.join(name)).is_ok_and(|target| target.starts_with(dir));
    let needle = dir.as_os_str().as_bytes();
    linked("exe") || linked("cwd") || arguments(pid).windows(needle.len()).any(|window| window == needle)
}

fn is_our_program(pid: u32) -> bool {
    let arguments = arguments(pid);
    let program = Path::new(OsStr::from_bytes(arguments.split(|byte| *byte == 0).next().unwrap_or_default()));
    let name = program.file_name().and_then(OsStr::to_str);
    matches!(name, Some("postgres" | "initdb" | "callboard-worker" | "bwrap" | "git"))
}

/// Whether a process sees something of `dir`; in our own namespace of mounts everybody does.
fn sees(pid: u32, dir: &Path, spot: Option<&Spot>) -> bool {
    let namespace = |pid: &str| fs::read_link(format!("/proc/{pid}/ns/mnt")).ok();
    let is_ours = namespace("self").is_some_and(|ours| namespace(&pid.to_string()) == Some(ours));
    !is_ours && mounts_of(pid).iter().any(|mount| mount.is_of(dir, spot))
}

/// A line of `mountinfo`: what of which file system is mounted where.
#[derive(Debug, PartialEq, Eq)]
struct Mount {
    device: String,
    root: PathBuf,
    at: PathBuf,
}

/// Where a directory is in its file system: the same from every namespace.
#[derive(Debug, PartialEq, Eq)]
struct Spot {
    device: String,
    path: PathBuf,
}

impl Spot {
    fn of(dir: &Path) -> Option<Self> {
        Self::among(mounts_of(std::process::id()), &fs::canonicalize(dir).ok()?)
    }

    fn among(mounts: Vec<Mount>, dir: &Path) -> Option<Self> {
        // Of two at one place the later covers the earlier.
        let holds = mounts.into_iter().filter(|mount| dir.starts_with(&mount.at));
        let holder = holds.max_by_key(|mount| mount.at.as_os_str().len())?;
        let path = holder.root.join(dir.strip_prefix(&holder.at).ok()?);
        Some(Self { device: holder.device, path })
    }
}

impl Mount {
    fn parse(line: &str) -> Option<Self> {
        let mut fields = line.split(' ').skip(2);
        let (device, root, at) = (fields.next()?.to_owned(), fields.next()?, fields.next()?);
        Some(Self { device, root: unescaped(root), at: unescaped(at) })
    }

    fn is_of(&self, dir: &Path, spot: Option<&Spot>) -> bool {
        let is_from = spot.is_some_and(|spot| self.device == spot.device && self.root.starts_with(&spot.path));
        is_from || self.at.starts_with(dir)
    }
}

fn mounts_of(pid: u32) -> Vec<Mount> {
    let text = fs::read(format!("/proc/{pid}/mountinfo")).unwrap_or_default();
    String::from_utf8_lossy(&text).lines().filter_map(Mount::parse).collect()
}

/// Blanks, tabs, newlines and backslashes stand as `\040` and the like.
fn unescaped(text: &str) -> PathBuf {
    let (mut bytes, mut rest) = (Vec::new(), text.as_bytes());
    while let [first, tail @ ..] = rest {
        let octal = |digits: &[u8]| u8::from_str_radix(std::str::from_utf8(digits).ok()?, 8).ok();
        match tail.get(..3).filter(|_| *first == b'\\').and_then(octal) {
            Some(byte) => {
                bytes.push(byte);
                rest = &tail[3..];
            }
            None => {
                bytes.push(*first);
                rest = tail;
            }
        }
    }
    OsString::from_vec(bytes).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_with_brackets_and_blanks_hides_nothing() {
        assert_eq!(parsed(7, "7 (a) b) (c)) S 42 7 7 0"), Some(Process { pid: 7, parent: 42, state: 'S' }));
        assert_eq!(parsed(7, "7 (sh"), None);
    }

    #[test]
    fn the_living_below_are_found_also_below_the_dead() {
        let process = |(pid, parent, state)| Process { pid, parent, state };
        let processes = [(2, 1, 'S'), (3, 2, 'Z'), (4, 3, 'S'), (5, 1, 'S')].map(process);
        assert_eq!(below(&processes, &[2]), BTreeSet::from([4]));
        assert_eq!(below(&processes, &[1]), BTreeSet::from([2, 4, 5]));
    }

    #[test]
    fn a_place_is_told_by_its_file_system_from_any_namespace() {
        let line = |text: &str| Mount::parse(text).unwrap();
        let host = vec![
            line("1 0 8:1 / / rw - ext4 /dev/sda rw"),
            line("2 1 8:2 /sub /a\\040b rw shared:1 - ext4 /dev/sdb rw"),
        ];
        let spot = Spot::among(host, Path::new("/a b/board")).unwrap();
        assert_eq!(spot, Spot { device: "8:2".into(), path: "/sub/board".into() });
        let is_of = |text| line(text).is_of(Path::new("/a b/board"), Some(&spot));
        assert!(is_of("9 8 8:2 /sub/board/builds/x/workspace /workspace rw - ext4 /dev/sdb rw"));
        assert!(is_of("9 8 0:7 / /a\\040b/board/tmp rw - tmpfs tmpfs rw"));
        assert!(!is_of("9 8 8:1 /sub/board/builds/x/workspace /workspace rw - ext4 /dev/sda rw"));
        assert!(!is_of("9 8 8:2 /sub/boards /workspace rw - ext4 /dev/sdb rw"));
    }
}
