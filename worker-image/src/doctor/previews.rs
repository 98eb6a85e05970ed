//! What live previews need of their host: ports that can be bound, and a builds root that outlives a restart.

use super::Finding;
use crate::previews::folder;
use crate::previews::settings::{self, Settings};
use crate::workplace;
use nix::sys::statfs::{TMPFS_MAGIC, statfs};
use protocol::preview::PortRange;
use std::fs;
use std::io;
use std::net::TcpListener;
use std::path::Path;

const NAME: &str = "previews";
/// The ports from which this host takes its own for connections to others.
const OUTGOING: &str = "/proc/sys/net/ipv4/ip_local_port_range";
/// Those that it does not take.
const RESERVED: &str = "/proc/sys/net/ipv4/ip_local_reserved_ports";

/// Looks at all of it. Builds run without any.
pub(super) fn of_previews(settings: &Settings, builds_root: &Path) -> Vec<Finding> {
    if !settings.enabled {
        return vec![Finding::good(NAME, "none here: their builds succeed, they fail as unsupported")];
    }
    vec![ports(settings, outgoing(settings.ports)), directories(builds_root, is_in_memory(builds_root))]
}

/// Whether previews find ports, and who reaches them there.
fn ports(settings: &Settings, outgoing: Option<PortRange>) -> Finding {
    let name = "preview ports";
    let (address, PortRange { first, last }) = (settings.address, settings.ports);
    let bound = (first..=last).map(|port| TcpListener::bind((address, port)).map(drop));
    let (free, refused): (Vec<_>, Vec<_>) = bound.partition(Result::is_ok);
    let shown = format!("{first}-{last} on {address}");
    if let Some(why) = refused.into_iter().filter_map(Result::err).last().filter(|_| free.is_empty()) {
        return Finding::weak(name, format!("none of {shown} can be bound: {why}"), ports_fix(&why));
    }
    if let Some(outgoing) = outgoing.filter(|outgoing| overlap(settings.ports, *outgoing)) {
        let PortRange { first: from, last: to } = outgoing;
        let found = format!("{shown}: connections from this host take ports of {from}-{to}");
        let fix = format!("use another --preview-ports, or sysctl -w net.ipv4.ip_local_reserved_ports={first}-{last}");
        return Finding::weak(name, found, fix);
    }
    let found = format!("{} of {shown} are free; people find them at {}", free.len(), settings.url(first));
    let open = if address.is_loopback() { "" } else { "; whoever reaches that address uses them" };
    Finding::good(name, found + open)
}

fn ports_fix(why: &io::Error) -> &'static str {
    if why.kind() == io::ErrorKind::AddrNotAvailable {
        return "use an address of this host as --preview-address";
    }
    if why.kind() == io::ErrorKind::PermissionDenied {
        return "use --preview-ports above 1023";
    }
    "use a larger --preview-ports: previews wait for a port"
}

fn overlap(one: PortRange, other: PortRange) -> bool {
    one.first <= other.last && other.first <= one.last
}

/// `None` where the host does not say, or has `ports` reserved for those who ask for them.
fn outgoing(ports: PortRange) -> Option<PortRange> {
    let (text, reserved) = (fs::read_to_string(OUTGOING).ok()?, fs::read_to_string(RESERVED).unwrap_or_default());
    range(&text).filter(|_| !is_reserved(&reserved, ports))
}

/// Whether `reserved`, such as `7070,20000-20999`, has all of `ports`.
fn is_reserved(reserved: &str, ports: PortRange) -> bool {
    let ranges = reserved.split(',').filter_map(|word| settings::range(word.trim()).ok());
    ranges.into_iter().any(|one| one.first <= ports.first && ports.last <= one.last)
}

fn range(text: &str) -> Option<PortRange> {
    let mut words = text.split_whitespace().map(str::parse);
    match (words.next(), words.next()) {
        (Some(Ok(first)), Some(Ok(last))) => Some(PortRange { first, last }),
        _ => None,
    }
}

/// Whether the directories of builds with a preview are still there after a restart of the host.
fn directories(root: &Path, is_in_memory: bool) -> Finding {
    let name = "kept directories";
    let kept = folder::kept(root).map_or(0, |kept| kept.len());
    let found = format!("{kept} in {}", root.display());
    if is_in_memory {
        let fix = "use a --builds-root on a disk";
        return Finding::weak(name, format!("{found}: in memory, and gone with a restart of the host"), fix);
    }
    Finding::good(name, found)
}

/// Whether `path`, or that above it which is there, is in memory.
fn is_in_memory(path: &Path) -> bool {
    let nearest = path.ancestors().find(|path| workplace::has(path));
    nearest.and_then(|path| statfs(path).ok()).is_some_and(|stat| stat.filesystem_type() == TMPFS_MAGIC)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::previews::folder::Folder;
    use std::collections::BTreeMap;
    use std::time::Duration;
    use uuid::Uuid;

    fn settings(address: &str, first: u16, last: u16) -> Settings {
        Settings {
            enabled: true,
            ports: PortRange { first, last },
            address: address.parse().unwrap(),
            url: None,
            start: Duration::ZERO,
            health_every: Duration::ZERO,
        }
    }

    fn check(finding: &Finding, ok: bool, words: &[&str]) {
        let said = finding.line();
        assert_eq!((finding.ok, finding.needed), (ok, ok), "{said}");
        words.iter().for_each(|word| assert!(said.contains(word), "{word:?} in {said}"));
    }

    #[test]
    fn where_no_port_can_be_bound_it_is_said_why_and_what_to_do() {
        let taken = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = taken.local_addr().unwrap().port();
        check(&ports(&settings("127.0.0.1", port, port), None), false, &["none of ", "a larger --preview-ports"]);
        let elsewhere = settings("192.0.2.1", port, port);
        check(&ports(&elsewhere, None), false, &["on 192.0.2.1", "an address of this host"]);
        drop(taken);
        let free = format!("1 of {port}-{port} on 127.0.0.1 are free; people find them at http://127.0.0.1:{port}/");
        check(&ports(&settings("127.0.0.1", port, port), None), true, &[&free]);
        check(&ports(&settings("0.0.0.0", port, port), None), true, &["whoever reaches that address"]);
    }

    #[test]
    fn ports_that_connections_of_the_host_take_are_no_good_ones() {
        let free = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let own = settings("127.0.0.1", free, free);
        for (first, last, ok) in [(free, free, false), (1, free, false), (free + 1, 65_535, true), (1, free - 1, true)]
        {
            let found = ports(&own, Some(PortRange { first, last }));
            check(&found, ok, if ok { &[] } else { &["ip_local_reserved_ports", "another --preview-ports"] });
        }
        assert_eq!(range("32768\t60999\n"), Some(PortRange { first: 32_768, last: 60_999 }));
        assert_eq!(range("none"), None);
        let ports = PortRange { first: 40_000, last: 40_100 };
        assert!(is_reserved("7070,40000-40100\n", ports) && is_reserved("30000-50000", ports));
        assert!(!is_reserved("", ports) && !is_reserved("40001-50000", ports) && !is_reserved("40000-40099", ports));
    }

    #[test]
    fn what_is_kept_is_counted_and_a_place_in_memory_is_no_good_one() {
        let root = tempfile::tempdir().unwrap();
        let folder = Folder::of(root.path(), Uuid::now_v7());
        fs::create_dir(&folder.site).unwrap();
        folder.make(300).unwrap();
        let found = format!("1 in {}", root.path().display());
        check(&directories(root.path(), false), true, &[&found]);
        check(&directories(root.path(), true), false, &[&found, "gone with a restart", "on a disk"]);
    }

    #[test]
    fn what_the_host_mounts_in_memory_is_found_to_be_there() {
        let mounts = fs::read_to_string("/proc/mounts").unwrap();
        let kinds: BTreeMap<&str, &str> = mounts
            .lines()
            .filter_map(|line| {
                let mut words = line.split(' ').skip(1);
                Some((words.next()?, words.next()?))
            })
            .collect();
        for place in ["/", "/dev", "/dev/shm", "/proc"] {
            if let Some(kind) = kinds.get(place).filter(|kind| **kind != "devtmpfs") {
                assert_eq!(is_in_memory(Path::new(place)), *kind == "tmpfs", "{place} is {kind}");
            }
        }
        assert_eq!(is_in_memory(Path::new("/proc/nowhere")), is_in_memory(Path::new("/proc")));
    }

    #[test]
    fn a_host_without_previews_has_one_line_about_them() {
        let none = Settings { enabled: false, ..settings("127.0.0.1", 1, 2) };
        let found = of_previews(&none, Path::new("/"));
        assert_eq!(found.len(), 1);
        check(&found[0], true, &["unsupported"]);
    }
}
