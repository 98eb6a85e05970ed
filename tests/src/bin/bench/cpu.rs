//! What processes have used of the processors.

use std::fs;

/// Seconds that a process has used.
pub fn of(pid: i32) -> anyhow::Result<f64> {
    seconds(Stat::of(pid)?.own)
}

/// Seconds that a process and all its children have used, those that ended too.
pub fn of_tree(parent: i32) -> anyhow::Result<f64> {
    let root = Stat::of(parent)?;
    let mut ticks = root.own + root.children;
    for entry in fs::read_dir("/proc")? {
        let Some(pid) = entry?.file_name().to_str().and_then(|name| name.parse().ok()) else { continue };
        // A process that ended meanwhile is among its parent's.
        if let Ok(stat) = Stat::of(pid)
            && stat.parent == parent
        {
            ticks += stat.own;
        }
    }
    seconds(ticks)
}

fn seconds(ticks: u64) -> anyhow::Result<f64> {
    Ok(f64::from(u32::try_from(ticks)?) / f64::from(u32::try_from(ticks_per_second())?))
}

struct Stat {
    parent: i32,
    own: u64,
    children: u64,
}

impl Stat {
    /// `/proc/<pid>/stat`: after the name in brackets come state, parent, …, and from the twelfth on utime, stime and the
    /// same of children that ended.
    fn of(pid: i32) -> anyhow::Result<Self> {
        let text = fs::read_to_string(format!("/proc/{pid}/stat"))?;
        let fields: Vec<&str> = text.rsplit(')').next().unwrap_or_default().split_whitespace().collect();
        let number = |at: usize| fields.get(at).and_then(|field| field.parse::<u64>().ok()).unwrap_or(0);
        let parent = i32::try_from(number(1)).unwrap_or(0);
        Ok(Self { parent, own: number(11) + number(12), children: number(13) + number(14) })
    }
}

fn ticks_per_second() -> i64 {
    nix::unistd::sysconf(nix::unistd::SysconfVar::CLK_TCK).ok().flatten().unwrap_or(100)
}
