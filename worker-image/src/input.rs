//! Files that an operator names, read within a limit: any of them may be a device or a pipe that never ends.

use std::fs::File;
use std::io::{self, ErrorKind, Read as _};
use std::path::Path;

/// The largest file: settings, a token, a bundle of certificates.
const MAX_BYTES: usize = 4 * 1024 * 1024;

/// What is in a file.
///
/// # Errors
///
/// If it can't be read, or is larger than 4 MiB.
pub fn bytes(path: &Path) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    File::open(path)?.take(MAX_BYTES as u64 + 1).read_to_end(&mut bytes)?;
    if bytes.len() > MAX_BYTES {
        let why = format!("larger than {} MiB", MAX_BYTES / (1024 * 1024));
        return Err(io::Error::new(ErrorKind::FileTooLarge, why));
    }
    Ok(bytes)
}

/// The text of a file.
///
/// # Errors
///
/// The same, or if it is not UTF-8.
pub fn text(path: &Path) -> io::Result<String> {
    String::from_utf8(bytes(path)?).map_err(|_| io::Error::new(ErrorKind::InvalidData, "not UTF-8 text"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_never_ends_is_refused() {
        assert_eq!(bytes(Path::new("/dev/zero")).unwrap_err().kind(), ErrorKind::FileTooLarge);
    }

    #[test]
    fn a_file_is_read_whole() {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), "token\n").unwrap();
        assert_eq!(text(file.path()).unwrap(), "token\n");
    }
}
