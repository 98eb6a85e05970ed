//! Which file of a group gets what.

use super::{Controller, Version};
use crate::isolation::Limits;

/// Over what time CPU is counted, in microseconds.
const PERIOD_US: u64 = 100_000;
/// bubblewrap, and the sandbox's first process.
const OUR_PROCESSES: u32 = 2;

/// A file of a group, and what is written to it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Setting {
    pub(super) file: &'static str,
    pub(super) value: String,
    /// Whether the group is worth nothing without it. A kernel that counts no swap has no file for its limit.
    pub(super) needed: bool,
}

impl Setting {
    fn needed(file: &'static str, value: impl ToString) -> Self {
        Self { file, value: value.to_string(), needed: true }
    }

    fn wanted(file: &'static str, value: impl ToString) -> Self {
        Self { needed: false, ..Self::needed(file, value) }
    }
}

/// What limits a group to `limits`, in this order.
pub(super) fn limiting(version: Version, controller: Controller, limits: &Limits) -> Vec<Setting> {
    let (memory, processes) = (limits.memory_bytes, limits.processes.saturating_add(OUR_PROCESSES));
    let quota_us = u64::from(limits.cpu_millis) * PERIOD_US / 1000;
    match (version, controller) {
        (Version::V1, Controller::Memory) => vec![
            Setting::needed("memory.limit_in_bytes", memory),
            Setting::wanted("memory.memsw.limit_in_bytes", memory),
            Setting::wanted("memory.swappiness", 0),
        ],
        (Version::V2, Controller::Memory) => {
            vec![Setting::needed("memory.max", memory), Setting::wanted("memory.swap.max", 0)]
        }
        (Version::V1 | Version::V2, Controller::Pids) => vec![Setting::needed("pids.max", processes)],
        (Version::V1, Controller::Cpu) => {
            vec![Setting::needed("cpu.cfs_period_us", PERIOD_US), Setting::needed("cpu.cfs_quota_us", quota_us)]
        }
        (Version::V2, Controller::Cpu) => vec![Setting::needed("cpu.max", format!("{quota_us} {PERIOD_US}"))],
    }
}

/// What lets a group die: nothing new is born, and what is killed has the CPU to end.
pub(super) fn dying(version: Version, controller: Controller) -> Option<Setting> {
    match (version, controller) {
        (Version::V1 | Version::V2, Controller::Memory) => None,
        (Version::V1 | Version::V2, Controller::Pids) => Some(Setting::wanted("pids.max", 0)),
        (Version::V1, Controller::Cpu) => Some(Setting::wanted("cpu.cfs_quota_us", -1)),
        (Version::V2, Controller::Cpu) => Some(Setting::wanted("cpu.max", "max")),
    }
}

/// Where a group says how many of its processes were ended for want of memory.
pub(super) fn memory_events(version: Version) -> &'static str {
    match version {
        Version::V1 => "memory.oom_control",
        Version::V2 => "memory.events",
    }
}

/// That number, in the text of that file.
pub(super) fn memory_kills(events: &str) -> u64 {
    let counts = events.lines().filter_map(|line| line.strip_prefix("oom_kill "));
    counts.filter_map(|count| count.trim().parse::<u64>().ok()).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMITS: Limits = Limits { memory_bytes: 1 << 20, processes: 10, cpu_millis: 1500, disk_bytes: 0 };

    fn check(version: Version, expected: &[(&str, &str)]) {
        let all = Controller::ALL.map(|controller| limiting(version, controller, &LIMITS)).concat();
        let written: Vec<_> = all.iter().map(|setting| (setting.file, setting.value.as_str())).collect();
        assert_eq!(written, expected);
    }

    #[test]
    fn version_1_has_a_file_for_each_number() {
        check(
            Version::V1,
            &[
                ("memory.limit_in_bytes", "1048576"),
                ("memory.memsw.limit_in_bytes", "1048576"),
                ("memory.swappiness", "0"),
                ("pids.max", "12"),
                ("cpu.cfs_period_us", "100000"),
                ("cpu.cfs_quota_us", "150000"),
            ],
        );
    }

    #[test]
    fn version_2_gives_no_swap_and_has_the_period_beside_the_quota() {
        check(
            Version::V2,
            &[("memory.max", "1048576"), ("memory.swap.max", "0"), ("pids.max", "12"), ("cpu.max", "150000 100000")],
        );
    }

    #[test]
    fn a_kill_for_want_of_memory_is_counted_in_both_versions() {
        assert_eq!(memory_kills("oom_kill_disable 0\nunder_oom 0\noom_kill 2\n"), 2);
        assert_eq!(memory_kills("low 0\nhigh 0\nmax 12\noom 1\noom_kill 1\noom_group_kill 0\n"), 1);
        assert_eq!(memory_kills("max 12\noom 1\noom_kill 0\n"), 0);
    }
}
