//! Speaks to the kernel about a network: so neither this host nor an image needs a program for it.

use nix::libc;
use nix::sys::socket::{
    AddressFamily, MsgFlags, NetlinkAddr, SockFlag, SockProtocol, SockType, recv, sendto, setsockopt, socket, sockopt,
};
use nix::sys::time::TimeVal;
use std::io;
use std::os::fd::{AsRawFd as _, OwnedFd};

/// How long the kernel may take to answer, in seconds.
const PATIENCE_SECONDS: i64 = 5;
/// What comes before a message's own part: length, kind, flags, number, sender.
const HEAD_BYTES: usize = 16;

/// One message: what it is, with which flags, and its own part.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Message {
    /// Its kind.
    pub(super) kind: u16,
    /// Flags besides that it is a request.
    pub(super) flags: i32,
    /// What follows the head.
    pub(super) body: Vec<u8>,
}

impl Message {
    /// As the kernel reads it.
    fn bytes(&self, number: u32) -> Vec<u8> {
        let length = u32::try_from(HEAD_BYTES + self.body.len()).unwrap_or(u32::MAX).to_ne_bytes();
        let flags = u16::try_from(self.flags | libc::NLM_F_REQUEST).unwrap_or(0).to_ne_bytes();
        [&length[..], &self.kind.to_ne_bytes(), &flags, &number.to_ne_bytes(), &[0; 4], &self.body].concat()
    }
}

/// An attribute of a message, filled up to four bytes.
pub(super) fn attribute(kind: u16, content: &[u8]) -> Vec<u8> {
    let length = u16::try_from(4 + content.len()).unwrap_or(u16::MAX);
    let mut bytes = [&length.to_ne_bytes(), &kind.to_ne_bytes(), content].concat();
    bytes.resize(bytes.len().next_multiple_of(4), 0);
    bytes
}

/// An attribute that holds others.
pub(super) fn nested(kind: u16, attributes: &[Vec<u8>]) -> Vec<u8> {
    const NESTED: u16 = 1 << 15;
    attribute(kind | NESTED, &attributes.concat())
}

/// Tells the kernel all of `messages` at once and awaits its word on the one that asks for it.
///
/// # Errors
///
/// What the kernel says, of the first that it refuses.
pub(super) fn tell(protocol: SockProtocol, messages: &[Message]) -> io::Result<()> {
    let socket = socket(AddressFamily::Netlink, SockType::Raw, SockFlag::SOCK_CLOEXEC, protocol)?;
    setsockopt(&socket, sockopt::ReceiveTimeout, &TimeVal::new(PATIENCE_SECONDS, 0))?;
    let bytes: Vec<u8> = (0..).zip(messages).flat_map(|(number, message)| message.bytes(number)).collect();
    sendto(socket.as_raw_fd(), &bytes, &NetlinkAddr::new(0, 0), MsgFlags::empty())?;
    answer(&socket)
}

/// A refusal is said in any case, an assent only to the message that asks for it.
fn answer(socket: &OwnedFd) -> io::Result<()> {
    let mut bytes = [0; 8192];
    let length = recv(socket.as_raw_fd(), &mut bytes, MsgFlags::empty())?;
    match code(&bytes[..length]) {
        Some(0) => Ok(()),
        Some(refusal) => Err(io::Error::from_raw_os_error(-refusal)),
        None => Err(io::ErrorKind::InvalidData.into()),
    }
}

/// The number in an answer: 0, or that of an error below it.
fn code(answer: &[u8]) -> Option<i32> {
    let kind = u16::from_ne_bytes(answer.get(4..6)?.try_into().ok()?);
    let code = i32::from_ne_bytes(answer.get(HEAD_BYTES..HEAD_BYTES + 4)?.try_into().ok()?);
    (i32::from(kind) == libc::NLMSG_ERROR).then_some(code)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_attribute_tells_its_length_and_is_filled_up() {
        assert_eq!(attribute(3, b"nat\0x"), [&9_u16.to_ne_bytes()[..], &3_u16.to_ne_bytes(), b"nat\0x\0\0\0"].concat());
        let inner = attribute(1, &[7; 4]);
        assert_eq!(nested(4, std::slice::from_ref(&inner))[4..], inner);
    }

    #[test]
    fn a_message_is_as_long_as_it_says() {
        let bytes = Message { kind: 16, flags: libc::NLM_F_ACK, body: vec![7; 8] }.bytes(5);
        assert_eq!(bytes[..4], u32::try_from(bytes.len()).unwrap().to_ne_bytes());
        assert_eq!(bytes[6..8], 5_u16.to_ne_bytes(), "a request that asks for an answer");
    }

    #[test]
    fn the_kernels_word_is_read() {
        let answer =
            |kind: u16, code: i32| [&[0; 4][..], &kind.to_ne_bytes(), &[0; 10], &code.to_ne_bytes(), &[0; 16]].concat();
        assert_eq!(
            [code(&answer(2, 0)), code(&answer(2, -1)), code(&answer(3, 0)), code(&[])],
            [Some(0), Some(-1), None, None]
        );
    }
}
