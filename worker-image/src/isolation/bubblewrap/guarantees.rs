//! By what this back end holds its guarantees, and how to mend what a host does not give.

use super::Bubblewrap;
use crate::isolation::cgroup::{Controller, Version};
use crate::isolation::guarantees::{self, Given, Guarantee};
use crate::isolation::trials::{Means, facts, judge};
use crate::site::Site;
use uuid::Uuid;

impl Bubblewrap {
    /// Tries all, in a directory of its own that is gone afterwards.
    pub(super) async fn given(&self) -> Vec<Given> {
        let site = match Site::make(&self.place, Uuid::new_v4(), 0, None) {
            Ok(site) => site,
            Err(error) => return untried(&format!("no directory for a build: {error}")),
        };
        let facts = facts(self, &site, true).await;
        let given = facts.map_or_else(|why| untried(&why), |facts| judge(&facts, |guarantee| self.means(guarantee)));
        match site.remove().await {
            Ok(()) => given,
            Err(error) => untried(&format!("the directory of a build can't be removed: {error}")),
        }
    }

    fn means(&self, guarantee: Guarantee) -> Means {
        let (by, fix) = match guarantee {
            Guarantee::Namespaces => ("namespaces for users, processes, files, network, IPC and names", UPGRADE),
            Guarantee::Capabilities => ("none, in the bounding set neither", UPGRADE),
            Guarantee::Privileges => ("no_new_privs", UPGRADE),
            Guarantee::Users => (self.users(), "start the worker as root, or as a user who is not"),
            Guarantee::Nesting => ("the filter, and bubblewrap where it can", UPGRADE),
            Guarantee::Seccomp => ("a filter of rarer system calls", "use a kernel with CONFIG_SECCOMP_FILTER"),
            Guarantee::Network => ("a network namespace with nothing in it, and a proxy per build", UPGRADE),
            Guarantee::Memory => return self.by_group(Controller::Memory),
            Guarantee::Processes => return self.by_group(Controller::Pids),
            Guarantee::Cpu => return self.by_group(Controller::Cpu),
            Guarantee::Disk => {
                ("what a build holds is counted, and its task ended: not at once", "see the worker's log")
            }
        };
        Means { by: Some(by.into()), fix: fix.into() }
    }

    fn users(&self) -> &'static str {
        match self.place.run_as(0) {
            Some(_) => "a user for each slot, who owns nothing else",
            None => "the worker's own user, who is not root",
        }
    }

    fn by_group(&self, controller: Controller) -> Means {
        let name = controller.as_str();
        let (by, fix) = match &self.groups {
            Ok(groups) if groups.has(controller) => {
                let version = if groups.version() == Version::V1 { "1" } else { "2" };
                (Some(format!("control groups, version {version}")), "see the worker's log".into())
            }
            Ok(_) => (backstop(controller), format!("mount the control groups' tree of {name}")),
            Err(why) => (backstop(controller), format!("{why}; {DELEGATE}")),
        };
        Means { by, fix }
    }
}

/// Where there are no groups.
fn backstop(controller: Controller) -> Option<String> {
    match controller {
        Controller::Pids => Some("the limit of a user's processes".into()),
        Controller::Memory | Controller::Cpu => None,
    }
}

const UPGRADE: &str = "install bubblewrap 0.8 or later, on a kernel with user namespaces";
const DELEGATE: &str =
    "run the worker as root, or as a systemd unit with Delegate=yes (worker-image/callboard-worker.service)";

fn untried(why: &str) -> Vec<Given> {
    guarantees::untried(why, UPGRADE)
}
