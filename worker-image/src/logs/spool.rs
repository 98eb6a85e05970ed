//! Bytes that wait for the board, in a file that has no name and so goes with the worker.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt as _;
use std::path::Path;

/// Where a piece of the spool is.
#[derive(Clone, Copy, Debug)]
pub(super) struct Piece {
    at: u64,
    length: usize,
}

impl Piece {
    pub(super) fn length(self) -> usize {
        self.length
    }
}

/// A file that grows until all that is in it was taken.
#[derive(Debug)]
pub(super) struct Spool {
    file: File,
    end: u64,
}

impl Spool {
    pub(super) fn new(directory: &Path) -> io::Result<Self> {
        Ok(Self { file: tempfile::tempfile_in(directory)?, end: 0 })
    }

    /// How many bytes it takes on disk.
    pub(super) fn size(&self) -> u64 {
        self.end
    }

    pub(super) fn put(&mut self, bytes: &[u8]) -> io::Result<Piece> {
        self.file.write_all_at(bytes, self.end)?;
        let piece = Piece { at: self.end, length: bytes.len() };
        self.end += u64::try_from(bytes.len()).unwrap_or(u64::MAX);
        Ok(piece)
    }

    pub(super) fn read(&self, piece: Piece) -> io::Result<Vec<u8>> {
        let mut bytes = vec![0; piece.length];
        self.file.read_exact_at(&mut bytes, piece.at)?;
        Ok(bytes)
    }

    /// Forgets all pieces.
    pub(super) fn clear(&mut self) {
        self.end = 0;
        self.file.set_len(0).ok();
    }
}
