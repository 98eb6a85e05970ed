//! Where a proxy's socket is, short enough for the kernel.

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd as _;
use std::path::{Path, PathBuf};

/// The address of a Unix socket, which holds at most 107 bytes, while a path may be longer: its directory is named by a
/// descriptor. The address is good as long as this lives, for this process alone.
#[derive(Debug)]
pub struct Address {
    path: PathBuf,
    _directory: File,
}

impl Address {
    /// The address of the socket at `path`.
    ///
    /// # Errors
    ///
    /// If its directory can't be opened.
    pub fn of(path: &Path) -> io::Result<Self> {
        let (Some(directory), Some(name)) = (path.parent(), path.file_name()) else {
            return Err(io::ErrorKind::InvalidInput.into());
        };
        let directory = File::open(directory)?;
        let path = Path::new("/proc/self/fd").join(directory.as_raw_fd().to_string()).join(name);
        Ok(Self { path, _directory: directory })
    }

    /// The same as a path.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::net::{UnixListener, UnixStream};

    #[test]
    fn a_long_path_is_no_hindrance() {
        let root = tempfile::tempdir().unwrap();
        let directory = root.path().join("d".repeat(200));
        std::fs::create_dir(&directory).unwrap();
        let address = Address::of(&directory.join("socket")).unwrap();
        let _listener = UnixListener::bind(address.path()).unwrap();
        assert!(UnixStream::connect(address.path()).is_ok());
        assert!(directory.join("socket").exists());
    }
}
