//! An instant on disk, for whoever comes after this process: when a build's last task ended, when its lease was renewed last.
//!
//! A mark has always the same length and is overwritten in place, so that a disk that a build filled up has room for it.

use crate::clock::Boot;
use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::FileExt as _;
use std::path::Path;

/// A file that holds one instant of this boot, or none.
#[derive(Debug)]
pub struct Mark(File);

impl Mark {
    /// Makes a mark without an instant.
    ///
    /// # Errors
    ///
    /// If it is there already, or the directory can't be written.
    pub fn make(path: &Path) -> io::Result<Self> {
        let mark = Self(OpenOptions::new().write(true).create_new(true).open(path)?);
        mark.set(None)?;
        Ok(mark)
    }

    /// Opens a mark to set it.
    ///
    /// # Errors
    ///
    /// If there is none.
    pub fn open(path: &Path) -> io::Result<Self> {
        Ok(Self(OpenOptions::new().write(true).open(path)?))
    }

    /// Sets it.
    ///
    /// # Errors
    ///
    /// If it can't be written.
    pub fn set(&self, at: Option<Boot>) -> io::Result<()> {
        self.0.write_all_at(format!("{:020}\n", at.map_or(0, |at| at.0)).as_bytes(), 0)
    }

    /// The instant of the mark at `path`, if it is there, whole and set.
    #[must_use]
    pub fn read(path: &Path) -> Option<Boot> {
        let text = fs::read_to_string(path).ok()?;
        text.trim().parse().ok().filter(|at| *at > 0).map(Boot)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mark_says_what_it_was_set_to_last() {
        let root = tempfile::tempdir().unwrap();
        let path = root.path().join("mark");
        assert_eq!(Mark::read(&path), None);
        let mark = Mark::make(&path).unwrap();
        assert_eq!(Mark::read(&path), None);
        for at in [Some(Boot(123_456)), Some(Boot(7)), None] {
            Mark::open(&path).unwrap().set(at).unwrap();
            assert_eq!(Mark::read(&path), at);
        }
        drop(mark);
    }
}
