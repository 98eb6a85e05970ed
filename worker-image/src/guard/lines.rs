//! The socket to the worker, line by line: the orders first, then words.

use crate::isolation::plan::{Errand, Word};
use std::io::{self, Read as _};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;

/// What the worker says.
pub(super) struct Lines {
    socket: UnixStream,
    read: Vec<u8>,
    /// Whether the worker is gone.
    pub(super) is_closed: bool,
}

impl Lines {
    pub(super) fn new(socket: UnixStream) -> Self {
        Self { socket, read: Vec::new(), is_closed: false }
    }

    /// What the guard is for; waits for it.
    pub(super) fn errand(&mut self) -> io::Result<Errand> {
        loop {
            if let Some(line) = self.line() {
                return Ok(serde_json::from_slice(&line)?);
            }
            self.read_more();
            if self.is_closed {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
        }
    }

    /// The words that have come, once the socket is readable. One that a newer worker knows is passed over.
    pub(super) fn words(&mut self) -> Vec<Word> {
        self.read_more();
        std::iter::from_fn(|| self.line()).filter_map(|line| serde_json::from_slice(&line).ok()).collect()
    }

    /// The socket, and what was read of it but not heard.
    pub(super) fn into_parts(self) -> (UnixStream, Vec<u8>) {
        (self.socket, self.read)
    }

    fn read_more(&mut self) {
        let mut part = [0; 16 * 1024];
        match self.socket.read(&mut part) {
            Ok(length @ 1..) => self.read.extend_from_slice(&part[..length]),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Ok(_) | Err(_) => self.is_closed = true,
        }
    }

    fn line(&mut self) -> Option<Vec<u8>> {
        let end = self.read.iter().position(|byte| *byte == b'\n')?;
        Some(self.read.drain(..=end).collect())
    }
}

impl AsFd for Lines {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}
