//! Control groups: what a task's processes may take together, and a way to end all of them, whatever they did to hide.
//!
//! A builds root has a group of its own, named by its device and inode and by its worker, below the group that the worker was started in; a task
//! has one in that. Its processes are in it from their first instruction, and can't leave, since a sandbox sees no control
//! groups.

mod find;
mod group;
mod owner;
mod parent;
mod settings;

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::path::PathBuf;

pub use group::{Group, join};
pub use parent::{Parent, end_leftovers, end_of};

/// The two kinds of control groups.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Version {
    /// A tree for each controller.
    V1,
    /// One tree for all.
    V2,
}

/// What is limited.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Controller {
    /// Memory and swap.
    Memory,
    /// Processes and threads.
    Pids,
    /// CPU time.
    Cpu,
}

impl Controller {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Memory, Self::Pids, Self::Cpu];

    /// Its name, as the kernel has it.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Memory => "memory",
            Self::Pids => "pids",
            Self::Cpu => "cpu",
        }
    }
}

/// A group's directories, by controller; in version 2 it is the same for all.
type Directories = BTreeMap<Controller, PathBuf>;
