//! Which addresses a build may reach: public ones, and those that the operator names.

use serde::{Deserialize, Serialize};
use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::str::FromStr;

/// A host and port that builds may reach although it is not public.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Allowed {
    host: String,
    port: u16,
}

/// Why a word is not `HOST:PORT`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BadAllowed;

impl fmt::Display for BadAllowed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("must be HOST:PORT, such as git.example.com:443 or [fd00::1]:443")
    }
}

impl std::error::Error for BadAllowed {}

impl fmt::Display for Allowed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { host, port } = self;
        if host.contains(':') { write!(f, "[{host}]:{port}") } else { write!(f, "{host}:{port}") }
    }
}

impl FromStr for Allowed {
    type Err = BadAllowed;

    fn from_str(word: &str) -> Result<Self, Self::Err> {
        let (host, port) = word.rsplit_once(':').ok_or(BadAllowed)?;
        let host = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
        let port = port.parse().ok().filter(|port| *port > 0).ok_or(BadAllowed)?;
        if host.is_empty() || host.contains(['/', '@', ' ']) {
            return Err(BadAllowed);
        }
        Ok(Self { host: host.to_ascii_lowercase(), port })
    }
}

impl Allowed {
    /// The host, if it is a name and this is its port.
    #[must_use]
    pub fn name_at(&self, port: u16) -> Option<&str> {
        (self.port == port && self.host.parse::<IpAddr>().is_err()).then_some(&self.host)
    }

    /// Whether it names `host`, as the build asked for it, or the address that this resolved to.
    #[must_use]
    pub fn covers(&self, host: &str, address: SocketAddr) -> bool {
        let same_host = self.host == host.to_ascii_lowercase();
        let same_address = self.host.parse().is_ok_and(|ip: IpAddr| ip.to_canonical() == address.ip().to_canonical());
        self.port == address.port() && (same_host || same_address)
    }
}

/// Decides whether a build that asked for `host` may be connected to `address`, which is what it resolved to.
#[must_use]
pub fn may_connect(host: &str, address: SocketAddr, allowed: &[Allowed]) -> bool {
    is_public(address.ip()) || allowed.iter().any(|allowed| allowed.covers(host, address))
}

/// Whether `address` is one of the public internet: none of loopback, private, link-local (which has the clouds'
/// metadata), shared, unique local, documentation, benchmarking, multicast, reserved, or a tunnel to any of those.
#[must_use]
pub fn is_public(address: IpAddr) -> bool {
    match address.to_canonical() {
        IpAddr::V4(v4) => is_public_v4(v4),
        IpAddr::V6(v6) => is_public_v6(v6),
    }
}

fn is_public_v4(address: Ipv4Addr) -> bool {
    match address.octets() {
        [0 | 10 | 127, ..] | [169, 254, ..] | [192, 168, ..] => false,
        [172, b, ..] => !(16..=31).contains(&b),
        [100, b, ..] => !(64..=127).contains(&b),
        [192, 0, 0 | 2, _] | [192, 88, 99, _] | [198, 51, 100, _] | [203, 0, 113, _] => false,
        [198, b, ..] => !(18..=19).contains(&b),
        [a, ..] => a < 224,
    }
}

/// Only 2000::/3 is handed out to the internet, and of that not: 2001::/23 (protocols, Teredo), 2001:db8::/32 and
/// 3fff::/20 (documentation), 2002::/16 (6to4, which embeds any IPv4 address).
fn is_public_v6(address: Ipv6Addr) -> bool {
    match address.segments() {
        [0x2001, b, ..] => b >= 0x0200 && b != 0x0db8,
        [0x2002, ..] => false,
        [0x3fff, b, ..] => b >= 0x1000,
        [a, ..] => (0x2000..=0x3fff).contains(&a),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(address: &str, public: bool) {
        assert_eq!(is_public(address.parse().unwrap()), public, "{address}");
    }

    #[test]
    fn what_is_not_the_public_internet_is_refused() {
        for address in [
            "0.0.0.0",
            "10.0.0.1",
            "100.64.0.1",
            "100.127.255.255",
            "127.0.0.1",
            "127.255.0.9",
            "169.254.169.254",
            "172.16.0.1",
            "172.31.255.255",
            "192.0.0.8",
            "192.0.2.1",
            "192.88.99.1",
            "192.168.1.1",
            "198.18.0.1",
            "198.19.255.255",
            "198.51.100.7",
            "203.0.113.9",
            "224.0.0.1",
            "239.1.1.1",
            "240.0.0.1",
            "255.255.255.255",
            "::",
            "::1",
            "::ffff:127.0.0.1",
            "::ffff:10.1.2.3",
            "::ffff:169.254.169.254",
            "::7f00:1",
            "64:ff9b::7f00:1",
            "64:ff9b:1::1",
            "100::1",
            "2001::1",
            "2001:10::1",
            "2001:db8::1",
            "2002:7f00:1::1",
            "3fff::1",
            "fc00::1",
            "fd12:3456::1",
            "fd00:ec2::254",
            "fe80::1",
            "fec0::1",
            "ff02::1",
        ] {
            check(address, false);
        }
    }

    #[test]
    fn the_edges_next_to_them_are_public() {
        for address in [
            "1.1.1.1",
            "9.255.255.255",
            "11.0.0.0",
            "100.63.255.255",
            "100.128.0.0",
            "126.255.255.255",
            "128.0.0.1",
            "169.253.0.1",
            "172.15.255.255",
            "172.32.0.0",
            "192.0.1.1",
            "192.167.0.1",
            "198.17.0.1",
            "198.20.0.0",
            "223.255.255.255",
            "::ffff:8.8.8.8",
            "2001:200::1",
            "2001:4860:4860::8888",
            "2606:4700::1111",
            "3fff:1000::1",
        ] {
            check(address, true);
        }
    }

    #[test]
    fn the_operators_list_opens_one_port_of_one_host() {
        let allowed = ["git.example:443".parse().unwrap(), "[fd00::1]:8443".parse().unwrap()];
        let address = |text: &str| text.parse::<SocketAddr>().unwrap();
        assert!(may_connect("Git.Example", address("10.0.0.7:443"), &allowed));
        assert!(!may_connect("git.example", address("10.0.0.7:80"), &allowed));
        assert!(!may_connect("other.example", address("10.0.0.7:443"), &allowed));
        assert!(may_connect("any.example", address("[fd00::1]:8443"), &allowed));
        assert!(!may_connect("fd00::1", address("[fd00::1]:443"), &allowed));
    }

    #[test]
    fn what_is_allowed_is_written_as_it_is_read() {
        for word in ["git.example:443", "[fd00::1]:8443", "10.0.0.7:80"] {
            assert_eq!(word.parse::<Allowed>().unwrap().to_string(), word);
        }
    }

    #[test]
    fn a_word_that_is_no_host_and_port_is_refused() {
        for word in
            ["", "git.example", ":443", "git.example:0", "git.example:https", "https://git.example:443", "a@b:1"]
        {
            assert_eq!(word.parse::<Allowed>(), Err(BadAllowed), "{word}");
        }
    }
}
