//! What is left of a stack's directory on this host: processes that run from or in it, and mounts below it.

use std::fs;
use std::path::{Path, PathBuf};

/// Processes, other than this one, whose program, arguments or working directory are below `dir`.
#[must_use]
pub fn processes(dir: &Path) -> Vec<u32> {
    let pids = fs::read_dir("/proc").into_iter().flatten().flatten();
    let pids = pids.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    pids.filter(|pid| *pid != std::process::id() && is_of(*pid, dir)).collect()
}

fn is_of(pid: u32, dir: &Path) -> bool {
    let proc = PathBuf::from(format!("/proc/{pid}"));
    let linked = |name: &str| fs::read_link(proc.join(name)).is_ok_and(|target| target.starts_with(dir));
    let arguments = fs::read(proc.join("cmdline")).unwrap_or_default();
    let needle = dir.as_os_str().as_encoded_bytes();
    let named = arguments.windows(needle.len()).any(|window| window == needle);
    linked("exe") || linked("cwd") || named
}

/// How many mounts of this host are below `dir`.
#[must_use]
pub fn mounts(dir: &Path) -> usize {
    let mounts = fs::read_to_string("/proc/self/mounts").unwrap_or_default();
    let below = |line: &&str| line.split(' ').nth(1).is_some_and(|at| Path::new(at).starts_with(dir));
    mounts.lines().filter(below).count()
}
