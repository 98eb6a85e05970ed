//! What this host's bubblewrap can do that older ones can't. What is missing is told by `doctor`.

use std::path::Path;
use std::process::Command;

/// What came with bubblewrap 0.8.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Abilities {
    /// Keeps a step from making user namespaces of its own, in which it would have capabilities again.
    pub no_nesting: bool,
    /// Bounds the memory that `/tmp` takes.
    pub tmpfs_size: bool,
}

impl Abilities {
    /// What `program` says that it can do.
    #[must_use]
    pub fn of(program: &Path) -> Self {
        let help = Command::new(program).arg("--help").output().map(|output| output.stdout).unwrap_or_default();
        let help = String::from_utf8_lossy(&help);
        Self { no_nesting: help.contains("--disable-userns"), tmpfs_size: help.contains("--size BYTES") }
    }
}
