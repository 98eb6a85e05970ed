//! By what containers hold the guarantees, and how to mend what a daemon does not give.

use super::start::Docker;
use super::volumes::Reach;
use super::{network, out};
use crate::isolation::Isolation as _;
use crate::isolation::guarantees::{Given, Guarantee, untried};
use crate::isolation::trials::{Facts, Means, facts, judge};
use crate::site::Site;
use bollard::models::SystemInfo;
use uuid::Uuid;

/// What a daemon says of itself that it can enforce.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Able {
    memory: bool,
    swap: bool,
    processes: bool,
    cpu: bool,
    seccomp: bool,
}

impl Able {
    /// What `info` says; what it does not say is not so.
    pub(super) fn of(info: &SystemInfo) -> Self {
        let options = info.security_options.iter().flatten();
        Self {
            memory: info.memory_limit == Some(true),
            swap: info.swap_limit == Some(true),
            processes: info.pids_limit == Some(true),
            cpu: info.cpu_cfs_quota == Some(true),
            seccomp: options.into_iter().any(|option| option.starts_with("name=seccomp")),
        }
    }

    fn means(self, guarantee: Guarantee, reach: Reach) -> Means {
        let by_group = |is_able: bool, by: &str| (is_able.then(|| by.to_owned()), CONTROL_GROUPS);
        let always = |by: &str| (Some(by.to_owned()), DAEMON);
        let (by, fix) = match guarantee {
            Guarantee::Namespaces => always("namespaces of the container's own, and an image that can't be written"),
            Guarantee::Capabilities => always("none, in the bounding set neither"),
            Guarantee::Privileges => always("no_new_privs"),
            Guarantee::Users => {
                (Some("a user who is not root".into()), "start the worker as root, or as a user who is not")
            }
            Guarantee::Nesting => always("the filter"),
            Guarantee::Seccomp if self.seccomp => always("a filter of rarer system calls, and the daemon's own"),
            Guarantee::Seccomp => always("a filter of rarer system calls; the daemon has none of its own"),
            Guarantee::Network => always("no interface but loopback, and a relay and a proxy per build"),
            Guarantee::Memory if self.swap => by_group(self.memory, "control groups of the daemon's"),
            Guarantee::Memory => by_group(self.memory, "control groups of the daemon's, which do not count swap"),
            Guarantee::Processes => by_group(self.processes, "control groups of the daemon's"),
            Guarantee::Cpu => by_group(self.cpu, "control groups of the daemon's"),
            Guarantee::Disk => (disk(reach), SHARE),
        };
        Means { by, fix: fix.into() }
    }
}

fn disk(reach: Reach) -> Option<String> {
    match reach {
        Reach::Shared => Some("what a build holds is counted, and its task ended: not at once".into()),
        Reach::Apart => None,
    }
}

const DAEMON: &str = "use a daemon of Docker's, 20.10 or later";
const CONTROL_GROUPS: &str = "run the daemon as root, or give it control groups (`docker info` warns of what it lacks)";
const SHARE: &str =
    "run the worker on the daemon's own host, with the same users: what is in volumes of the daemon's is not counted";

impl Docker {
    /// Tries all, in a directory of its own that is gone afterwards.
    pub(super) async fn given(&self) -> Vec<Given> {
        let id = Uuid::new_v4();
        let site = match Site::make(&self.place, id, 0, None) {
            Ok(site) => site,
            Err(error) => return untried(&format!("no directory for a build: {error}"), DAEMON),
        };
        let build = id.to_string();
        let (facts, network) = tokio::join!(self.facts(&site, &build), network::tried(self, &site, &build));
        let cleared = self.clear(&build).await;
        let removed = site.remove().await.map_err(|error| error.to_string());
        let given = network.and(facts).map(|facts| judge(&facts, |guarantee| self.able.means(guarantee, self.reach)));
        match (given, cleared.and(removed)) {
            (Ok(given), Ok(())) => given,
            (Err(why), _) => untried(&why, DAEMON),
            (Ok(_), Err(why)) => untried(&format!("what a build had can't be removed: {why}"), DAEMON),
        }
    }

    async fn facts(&self, site: &Site, build: &str) -> Result<Facts, String> {
        match self.reach {
            Reach::Shared => facts(self, site, true).await,
            Reach::Apart => {
                let user = self.user(0);
                out::furnish(&self.ours, build, &site.directory, user).await.map_err(|error| error.to_string())?;
                Ok(facts(self, site, false).await?.owned_by(user))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn missing(info: &SystemInfo, reach: Reach) -> Vec<Guarantee> {
        let able = Able::of(info);
        let all = crate::isolation::guarantees::ALL;
        all.into_iter().filter(|guarantee| able.means(*guarantee, reach).by.is_none()).collect()
    }

    #[test]
    fn what_the_daemon_can_not_enforce_is_missing_whatever_a_trial_says() {
        let groups = [Guarantee::Memory, Guarantee::Processes, Guarantee::Cpu];
        assert_eq!(missing(&SystemInfo::default(), Reach::Shared), groups);
        let able = SystemInfo {
            memory_limit: Some(true),
            pids_limit: Some(true),
            cpu_cfs_quota: Some(true),
            ..SystemInfo::default()
        };
        assert_eq!(missing(&able, Reach::Shared), []);
    }

    #[test]
    fn disk_is_held_only_where_it_can_be_counted() {
        assert!(missing(&SystemInfo::default(), Reach::Apart).contains(&Guarantee::Disk));
    }
}
