//! Bytes that wait for the board, in a file that has no name and so goes with the worker; a few in memory where the disk is full.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt as _;
use std::path::Path;

/// The most bytes in memory: enough for what the board takes while it answers, and of no weight beside a build.
const MEMORY_MAX_BYTES: usize = 4 * 1024 * 1024;

/// Where a piece of the spool is.
#[derive(Debug)]
pub(super) enum Piece {
    OnDisk { at: u64, length: usize },
    InMemory(Vec<u8>),
}

impl Piece {
    pub(super) fn length(&self) -> usize {
        match self {
            Self::OnDisk { length, .. } => *length,
            Self::InMemory(bytes) => bytes.len(),
        }
    }
}

/// A file that grows until all that is in it was taken.
#[derive(Debug)]
pub(super) struct Spool {
    file: File,
    end: u64,
    in_memory: usize,
}

impl Spool {
    pub(super) fn new(directory: &Path) -> io::Result<Self> {
        Ok(Self::over(tempfile::tempfile_in(directory)?))
    }

    pub(super) fn over(file: File) -> Self {
        Self { file, end: 0, in_memory: 0 }
    }

    /// How many bytes it takes on disk.
    pub(super) fn size(&self) -> u64 {
        self.end
    }

    /// Keeps `bytes`: on disk, or in memory, if there is room.
    pub(super) fn put(&mut self, bytes: &[u8]) -> io::Result<Piece> {
        match self.write(bytes) {
            Err(error) if self.in_memory + bytes.len() > MEMORY_MAX_BYTES => Err(error),
            Err(_) => Ok(self.remember(bytes)),
            Ok(piece) => Ok(piece),
        }
    }

    /// Keeps a short line of the worker's own in any case.
    pub(super) fn put_line(&mut self, line: &str) -> Piece {
        self.write(line.as_bytes()).unwrap_or_else(|_| self.remember(line.as_bytes()))
    }

    fn write(&mut self, bytes: &[u8]) -> io::Result<Piece> {
        self.file.write_all_at(bytes, self.end)?;
        let piece = Piece::OnDisk { at: self.end, length: bytes.len() };
        self.end += u64::try_from(bytes.len()).unwrap_or(u64::MAX);
        Ok(piece)
    }

    fn remember(&mut self, bytes: &[u8]) -> Piece {
        self.in_memory += bytes.len();
        Piece::InMemory(bytes.to_vec())
    }

    pub(super) fn read(&self, piece: &Piece) -> io::Result<Vec<u8>> {
        match piece {
            Piece::InMemory(bytes) => Ok(bytes.clone()),
            Piece::OnDisk { at, length } => {
                let mut bytes = vec![0; *length];
                self.file.read_exact_at(&mut bytes, *at)?;
                Ok(bytes)
            }
        }
    }

    /// Forgets what was in memory of `piece`.
    pub(super) fn forget(&mut self, piece: &Piece) {
        if let Piece::InMemory(bytes) = piece {
            self.in_memory = self.in_memory.saturating_sub(bytes.len());
        }
    }

    /// Forgets all pieces on disk.
    pub(super) fn clear(&mut self) {
        self.end = 0;
        self.file.set_len(0).ok();
    }
}
