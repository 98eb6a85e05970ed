//! A port of this host's, bound for real: whoever has it bound has it, and nobody else.

use protocol::preview::PortRange;
use std::collections::BTreeSet;
use std::io;
use std::net::{IpAddr, TcpListener};
use uuid::Uuid;

/// Binds the first port of `ports` that is free and not among `refused`, beginning somewhere else for each build: an address that
/// somebody still has open should not lead to a stranger's preview at once.
///
/// # Errors
///
/// Why the last one can't be bound; [`io::ErrorKind::AddrInUse`] if all are taken or refused.
pub(super) fn bind(
    address: IpAddr,
    ports: PortRange,
    build: Uuid,
    refused: &BTreeSet<u16>,
) -> io::Result<(u16, TcpListener)> {
    let mut why = io::ErrorKind::AddrInUse.into();
    for port in order(ports, build).filter(|port| !refused.contains(port)) {
        match TcpListener::bind((address, port)) {
            Ok(listener) => {
                listener.set_nonblocking(true)?;
                return Ok((port, listener));
            }
            Err(error) => why = error,
        }
    }
    Err(why)
}

/// All of `ports`, in the order in which `build` tries them.
fn order(ports: PortRange, build: Uuid) -> impl Iterator<Item = u16> {
    let first = u128::from(ports.last - ports.first) + 1;
    let first = u16::try_from(build.as_u128() % first).unwrap_or(0) + ports.first;
    (first..=ports.last).chain(ports.first..first)
}

/// Whether `port` could be bound now.
///
/// # Errors
///
/// Why not.
pub(in crate::previews) fn is_free(address: IpAddr, port: u16) -> io::Result<()> {
    TcpListener::bind((address, port)).map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::Ipv4Addr;

    const HERE: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);

    #[test]
    fn every_port_is_tried_once_from_wherever_a_build_begins() {
        for (first, last) in [(5, 5), (5, 9), (1, 65_535)] {
            for build in [0, 1, 4, 123_456_789] {
                let tried: Vec<u16> = order(PortRange { first, last }, Uuid::from_u128(build)).collect();
                assert_eq!(tried.len(), usize::from(last - first) + 1);
                assert_eq!(tried.into_iter().collect::<BTreeSet<_>>(), (first..=last).collect());
            }
        }
        let tried: Vec<u16> = order(PortRange { first: 5, last: 9 }, Uuid::from_u128(3)).collect();
        assert_eq!(tried, [8, 9, 5, 6, 7]);
    }

    #[test]
    fn a_port_that_somebody_has_bound_is_passed_over_and_none_is_bound_twice() {
        let taken = TcpListener::bind((HERE, 0)).unwrap();
        let first = taken.local_addr().unwrap().port().min(65_500);
        let ports = PortRange { first, last: first + 30 };
        let bind = |refused: &BTreeSet<u16>| bind(HERE, ports, Uuid::nil(), refused);
        let (port, held) = bind(&BTreeSet::new()).unwrap();
        assert_ne!(port, taken.local_addr().unwrap().port());
        assert!(is_free(HERE, port).is_err());
        let (other, _held) = bind(&BTreeSet::new()).unwrap();
        assert_ne!(other, port);
        drop(held);
        assert!(is_free(HERE, port).is_ok());
        assert_ne!(bind(&[port].into()).unwrap().0, port, "it was refused");
    }

    #[test]
    fn where_every_port_is_taken_or_refused_none_is_bound() {
        let taken = TcpListener::bind((HERE, 0)).unwrap();
        let port = taken.local_addr().unwrap().port();
        let ports = PortRange { first: port, last: port };
        let why = bind(HERE, ports, Uuid::nil(), &BTreeSet::new()).unwrap_err();
        assert_eq!(why.kind(), io::ErrorKind::AddrInUse);
        drop(taken);
        let why = bind(HERE, ports, Uuid::nil(), &[port].into()).unwrap_err();
        assert_eq!(why.kind(), io::ErrorKind::AddrInUse);
    }
}
