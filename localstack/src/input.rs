//! Files that a person names, read within a limit: any of them may be a device or a pipe that never ends.

use std::fs::File;
use std::io::{self, ErrorKind, Read, stdin};
use std::path::Path;

/// The largest pipeline file: what the board takes as a body.
pub const PIPELINE_MAX_BYTES: usize = edge::serve::BODY_MAX_BYTES;
/// The largest file of settings, tokens or keys.
pub const SETTINGS_MAX_BYTES: usize = 64 * 1024;

/// The text of a file.
///
/// # Errors
///
/// If it can't be read, is not UTF-8, or is larger than `max_bytes`.
pub fn file(path: &Path, max_bytes: usize) -> io::Result<String> {
    text(File::open(path)?, max_bytes)
}

/// The text on standard input.
///
/// # Errors
///
/// If it can't be read, is not UTF-8, or is larger than `max_bytes`.
pub fn standard(max_bytes: usize) -> io::Result<String> {
    text(stdin().lock(), max_bytes)
}

fn text(from: impl Read, max_bytes: usize) -> io::Result<String> {
    let mut bytes = Vec::new();
    from.take(u64::try_from(max_bytes).unwrap_or(u64::MAX).saturating_add(1)).read_to_end(&mut bytes)?;
    if bytes.len() > max_bytes {
        return Err(io::Error::new(ErrorKind::FileTooLarge, format!("larger than {} KiB", max_bytes / 1024)));
    }
    String::from_utf8(bytes).map_err(|error| {
        let before = &error.as_bytes()[..error.utf8_error().valid_up_to()];
        let line = before.iter().filter(|byte| **byte == b'\n').count() + 1;
        io::Error::new(ErrorKind::InvalidData, format!("not UTF-8 text (line {line})"))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(bytes: &[u8], expected: Result<&str, &str>) {
        let read = text(bytes, 4);
        assert_eq!(read.as_deref().map_err(ToString::to_string), expected.map_err(str::to_owned));
    }

    #[test]
    fn what_fits_is_read_and_nothing_that_does_not() {
        check(b"", Ok(""));
        check(b"1234", Ok("1234"));
        check(b"12345", Err("larger than 0 KiB"));
        check(b"\n\n\xff", Err("not UTF-8 text (line 3)"));
    }

    #[test]
    fn what_never_ends_is_refused() {
        let refused = file(Path::new("/dev/zero"), 1024 * 1024).unwrap_err();
        assert_eq!(refused.to_string(), "larger than 1024 KiB");
    }
}
