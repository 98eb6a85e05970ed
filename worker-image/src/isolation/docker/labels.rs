//! What our containers and volumes carry, so that they can be found again, and only ours.

use std::collections::HashMap;
use std::path::Path;

/// The label that names the worker: this host's number and its builds root.
const WORKER: &str = "callboard.worker";
/// The label that names the build.
pub(super) const BUILD: &str = "callboard.build";

/// One worker among those that share a daemon.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Scope {
    worker: String,
}

impl Scope {
    /// The worker of the host `host_id` with this builds root; a host may have several, and a daemon several hosts.
    #[must_use]
    pub fn new(host_id: &str, builds_root: &Path) -> Self {
        Self { worker: format!("{host_id}:{}", builds_root.display()) }
    }

    /// What everything of this worker carries.
    #[must_use]
    pub fn all(&self) -> String {
        format!("{WORKER}={}", self.worker)
    }

    /// The labels of something that is for `build`.
    #[must_use]
    pub fn of_build(&self, build: &str) -> HashMap<String, String> {
        [(WORKER.to_owned(), self.worker.clone()), (BUILD.to_owned(), build.to_owned())].into()
    }
}

/// What everything of `build` carries: builds' numbers are nobody else's.
#[must_use]
pub fn build(build: &str) -> String {
    format!("{BUILD}={build}")
}
