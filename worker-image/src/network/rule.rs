//! The one rule of a build's network, in the words of nftables: TCP to whatever is not loopback goes to the relay.

use super::netlink::{Message, attribute, nested};
use nix::libc;

/// What differs between the families.
#[derive(Clone, Copy, Debug)]
pub(super) struct Family {
    number: u8,
    /// Where in the head of a packet the address is that it is for.
    offset: u32,
    /// How the addresses begin that are loopback's.
    loopback: &'static [u8],
}

/// IPv4.
pub(super) const V4: Family = Family { number: 2, offset: 16, loopback: &[127] };
/// IPv6.
pub(super) const V6: Family =
    Family { number: 10, offset: 24, loopback: &[0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1] };

const TABLE: &[u8] = b"callboard\0";
const CHAIN: &[u8] = b"out\0";
/// Before whatever looks at packets that go out.
const PRIORITY: i32 = -100;
/// The place where words are compared.
const REGISTER: u32 = 1;
const TCP: &[u8] = &[6];

/// All that makes the rule, to be told at once: all of it is taken, or nothing.
pub(super) fn redirect(family: Family, port: u16) -> Vec<Message> {
    let edge = |kind, flags| message(kind, flags, 0, 10, &[]);
    vec![
        edge(kind(libc::NFNL_MSG_BATCH_BEGIN), 0),
        add(family, libc::NFT_MSG_NEWTABLE, 0, &[attribute(1, TABLE)]),
        add(family, libc::NFT_MSG_NEWCHAIN, 0, &chain()),
        add(family, libc::NFT_MSG_NEWRULE, libc::NLM_F_APPEND | libc::NLM_F_ACK, &rule(family, port)),
        edge(kind(libc::NFNL_MSG_BATCH_END), 0),
    ]
}

/// A chain through which all goes that begins here.
fn chain() -> [Vec<u8>; 4] {
    const HOOK_OUTPUT: u32 = 3;
    let hook = [attribute(1, &HOOK_OUTPUT.to_be_bytes()), attribute(2, &PRIORITY.to_be_bytes())];
    [attribute(1, TABLE), attribute(3, CHAIN), nested(4, &hook), attribute(7, b"nat\0")]
}

fn rule(family: Family, port: u16) -> [Vec<u8>; 3] {
    [attribute(1, TABLE), attribute(2, CHAIN), nested(4, &expressions(family, port).map(|it| nested(1, &it)))]
}

fn expressions(family: Family, port: u16) -> [[Vec<u8>; 2]; 6] {
    const NETWORK_HEAD: u32 = 1;
    const PROTOCOL: u32 = 16;
    let length = u32::try_from(family.loopback.len()).unwrap_or(u32::MAX);
    [
        expression(
            b"payload\0",
            &[number(1, REGISTER), number(2, NETWORK_HEAD), number(3, family.offset), number(4, length)],
        ),
        compare(IS_NOT, family.loopback),
        expression(b"meta\0", &[number(1, REGISTER), number(2, PROTOCOL)]),
        compare(IS, TCP),
        expression(b"immediate\0", &[number(1, REGISTER), nested(2, &[attribute(1, &port.to_be_bytes())])]),
        expression(b"redir\0", &[number(1, REGISTER)]),
    ]
}

const IS: u32 = 0;
const IS_NOT: u32 = 1;

fn compare(how: u32, with: &[u8]) -> [Vec<u8>; 2] {
    expression(b"cmp\0", &[number(1, REGISTER), number(2, how), nested(3, &[attribute(1, with)])])
}

fn expression(name: &[u8], data: &[Vec<u8>]) -> [Vec<u8>; 2] {
    [attribute(1, name), nested(2, data)]
}

fn number(kind: u16, number: u32) -> Vec<u8> {
    attribute(kind, &number.to_be_bytes())
}

fn add(family: Family, what: i32, flags: i32, attributes: &[Vec<u8>]) -> Message {
    let subsystem = libc::NFNL_SUBSYS_NFTABLES << 8;
    message(kind(subsystem | what), flags | libc::NLM_F_CREATE, family.number, 0, attributes)
}

fn message(kind: u16, flags: i32, family: u8, resource: u16, attributes: &[Vec<u8>]) -> Message {
    let head = [&[family, 0][..], &resource.to_be_bytes()].concat();
    Message { kind, flags, body: [head, attributes.concat()].concat() }
}

fn kind(number: i32) -> u16 {
    u16::try_from(number).unwrap_or(u16::MAX)
}
