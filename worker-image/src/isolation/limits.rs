//! What a task may take of its host (SPEC.md, 3): memory, processes, CPU and disk.

use serde::{Deserialize, Serialize};

/// The limits of one build, over all the processes of its running task.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Limits {
    /// Memory, in bytes, what its temporary file systems hold included; swap gives no more.
    pub memory_bytes: u64,
    /// Processes and threads at once.
    pub processes: u32,
    /// CPU, in thousandths of one: 1500 is one and a half.
    pub cpu_millis: u32,
    /// What the build's directory may hold, in bytes.
    pub disk_bytes: u64,
}

/// A limit that ended a task, or kept it from going on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Exceeded {
    /// The kernel ended a process of it because the task's memory was used up.
    Memory,
    /// The build's directory was full.
    Disk,
}
