//! Where the kernel has this process's groups.

use super::{Controller, Directories};
use std::path::{Path, PathBuf};

/// What `/proc/self/mountinfo` and `/proc/self/cgroup` say.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Found {
    /// Our group in the one tree of version 2.
    pub(super) v2: Option<PathBuf>,
    /// Our group in each tree of version 1.
    pub(super) v1: Directories,
}

/// Reads both.
pub(super) fn found(mountinfo: &str, cgroup: &str) -> Found {
    let mut found = Found::default();
    for mount in mountinfo.lines().filter_map(Mount::read) {
        match mount.kind {
            "cgroup2" => found.v2 = own(cgroup, "").map(|own| mount.directory(own)).or(found.v2),
            "cgroup" => {
                for controller in Controller::ALL {
                    let name = controller.as_str();
                    let is_its = mount.options.split(',').any(|option| option == name);
                    if let Some(own) = own(cgroup, name).filter(|_| is_its) {
                        found.v1.insert(controller, mount.directory(own));
                    }
                }
            }
            _ => {}
        }
    }
    found
}

/// Our path in the tree of `controller`; the one tree of version 2 has no name.
fn own<'a>(cgroup: &'a str, controller: &str) -> Option<&'a str> {
    cgroup.lines().find_map(|line| {
        let (_, rest) = line.split_once(':')?;
        let (controllers, path) = rest.split_once(':')?;
        controllers.split(',').any(|name| name == controller).then_some(path)
    })
}

struct Mount<'a> {
    /// What of the tree is mounted: a container sees its own part.
    root: &'a str,
    point: &'a str,
    kind: &'a str,
    options: &'a str,
}

impl<'a> Mount<'a> {
    fn read(line: &'a str) -> Option<Self> {
        let (fields, kind) = line.split_once(" - ")?;
        let mut fields = fields.split(' ').skip(3);
        let mut kind = kind.split(' ');
        let (root, point, kind, options) = (fields.next()?, fields.next()?, kind.next()?, kind.nth(1)?);
        Some(Self { root, point, kind, options })
    }

    /// A path outside of what is mounted is not ours to find: then it is the mount itself.
    fn directory(&self, own: &str) -> PathBuf {
        let below = Path::new(own).strip_prefix(self.root).unwrap_or(Path::new(""));
        let is_fine = !below.components().any(|part| part.as_os_str() == "..");
        Path::new(self.point).join(if is_fine { below } else { Path::new("") })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HYBRID: &str = "31 23 0:28 / /sys/fs/cgroup rw - tmpfs tmpfs rw,mode=755\n\
        32 31 0:29 / /sys/fs/cgroup/cpu,cpuacct rw - cgroup cgroup rw,cpu,cpuacct\n\
        35 31 0:32 / /sys/fs/cgroup/memory rw,relatime shared:9 - cgroup cgroup rw,memory\n\
        41 31 0:38 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n";

    #[test]
    fn version_1_has_a_tree_for_each_controller() {
        let found = found(HYBRID, "4:memory:/a/b\n1:cpu,cpuacct:/\n0::/\n");
        let v1 = [(Controller::Memory, "/sys/fs/cgroup/memory/a/b"), (Controller::Cpu, "/sys/fs/cgroup/cpu,cpuacct/")];
        assert_eq!(found.v1, v1.map(|(controller, path)| (controller, path.into())).into());
        assert_eq!(found.v2, Some("/sys/fs/cgroup/unified/".into()));
    }

    fn check(root: &str, own: &str, expected: &str) {
        let mountinfo =
            format!("30 23 0:26 {root} /sys/fs/cgroup rw,nosuid shared:4 - cgroup2 cgroup2 rw,nsdelegate\n");
        assert_eq!(found(&mountinfo, &format!("0::{own}\n")).v2, Some(expected.into()));
    }

    #[test]
    fn version_2_has_one_of_which_a_container_may_see_a_part() {
        check("/", "/system.slice/callboard.service", "/sys/fs/cgroup/system.slice/callboard.service");
        check("/docker/7", "/docker/7/x", "/sys/fs/cgroup/x");
        check("/docker/7", "/elsewhere", "/sys/fs/cgroup/");
        check("/", "/../outside", "/sys/fs/cgroup/");
    }

    #[test]
    fn a_host_without_groups_has_none() {
        assert_eq!(found("25 1 8:1 / / rw - ext4 /dev/sda1 rw\n", "0::/\n"), Found::default());
    }
}
