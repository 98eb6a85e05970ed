//! What a preview's service writes, masked: all of it in files that have a bound, and the end of it at hand.

use crate::logs::{Outlet, Place, whole_chars};
use crate::previews::folder::{Folder, LOGS};
use protocol::preview::LOG_TAIL_MAX_BYTES;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// So much is in one file; then that becomes the old one, and another begins.
const FILE_MAX_BYTES: u64 = 8 << 20;

/// A preview's log.
#[derive(Debug)]
pub(super) struct Log {
    folder: Folder,
    max_bytes: u64,
    now: Mutex<Now>,
}

#[derive(Debug)]
struct Now {
    file: File,
    bytes: u64,
    tail: Vec<u8>,
}

impl Log {
    /// Begins one anew.
    pub(super) fn begin(folder: Folder) -> io::Result<Self> {
        folder.remove_logs();
        let now = Now { file: create(&folder)?, bytes: 0, tail: Vec::new() };
        Ok(Self { folder, max_bytes: FILE_MAX_BYTES, now: Mutex::new(now) })
    }

    /// Appends. What finds no place on the disk is at least in the tail.
    pub(super) fn append(&self, bytes: &[u8]) {
        let mut now = self.now();
        now.tail.extend_from_slice(bytes);
        let surplus = now.tail.len().saturating_sub(LOG_TAIL_MAX_BYTES);
        now.tail.drain(..surplus);
        if now.bytes >= self.max_bytes && self.turn(&mut now).is_err() {
            return;
        }
        if now.file.write_all(bytes).is_ok() {
            now.bytes += u64::try_from(bytes.len()).unwrap_or(0);
        }
    }

    /// A line of the keeper's own.
    pub(super) fn say(&self, line: &str) {
        self.append(format!("callboard: {line}\n").as_bytes());
    }

    /// The end of what was written, at most 16 KiB of whole characters; `None` if nothing was.
    pub(super) fn tail(&self) -> Option<String> {
        let now = self.now();
        let text = String::from_utf8_lossy(&now.tail[..whole_chars(&now.tail)]).into_owned();
        let start = text.ceil_char_boundary(text.len().saturating_sub(LOG_TAIL_MAX_BYTES));
        Some(text[start..].trim_start_matches(char::REPLACEMENT_CHARACTER).to_owned()).filter(|text| !text.is_empty())
    }

    fn turn(&self, now: &mut Now) -> io::Result<()> {
        let [log, old] = LOGS.map(|name| self.folder.path(name));
        fs::rename(log, old)?;
        (now.file, now.bytes) = (create(&self.folder)?, 0);
        Ok(())
    }

    fn now(&self) -> MutexGuard<'_, Now> {
        self.now.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn create(folder: &Folder) -> io::Result<File> {
    OpenOptions::new().create(true).truncate(true).write(true).mode(0o600).open(folder.path(LOGS[0]))
}

/// One of the service's streams.
#[derive(Debug)]
pub(super) struct ToLog(pub(super) Arc<Log>);

impl Outlet for ToLog {
    fn take(&self, bytes: &[u8], _: Place) {
        self.0.append(bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use uuid::Uuid;

    fn log(root: &tempfile::TempDir, max_bytes: u64) -> Log {
        let folder = Folder::of(root.path(), Uuid::nil());
        fs::create_dir(&folder.site).unwrap();
        folder.make(0).unwrap();
        Log { max_bytes, ..Log::begin(folder).unwrap() }
    }

    #[test]
    fn all_is_in_the_files_up_to_their_bound() {
        let root = tempfile::tempdir().unwrap();
        let log = log(&root, 4);
        let read = |name: &str| fs::read_to_string(log.folder.path(name)).unwrap_or_default();
        for (bytes, new, old) in [("aa", "aa", ""), ("bb", "aabb", ""), ("c", "c", "aabb"), ("dddd", "cdddd", "aabb")] {
            log.append(bytes.as_bytes());
            assert_eq!((read("log"), read("log.old")), (new.into(), old.into()));
        }
        log.append(b"e");
        assert_eq!((read("log"), read("log.old")), ("e".into(), "cdddd".into()));
        assert_eq!(log.tail().as_deref(), Some("aabbcdddde"));
    }

    #[test]
    fn the_tail_is_the_end_in_whole_characters() {
        let root = tempfile::tempdir().unwrap();
        let log = log(&root, 1 << 20);
        assert_eq!(log.tail(), None);
        log.append(&vec![b'x'; LOG_TAIL_MAX_BYTES]);
        log.append("üü\n".as_bytes());
        log.append(&"ü".as_bytes()[..1]);
        let tail = log.tail().unwrap();
        assert!(tail.ends_with("xüü\n") && tail.len() <= LOG_TAIL_MAX_BYTES);
        let root = tempfile::tempdir().unwrap();
        let cut = self::log(&root, 1 << 20);
        cut.append(format!("ü{}", "x".repeat(LOG_TAIL_MAX_BYTES - 1)).as_bytes());
        assert!(cut.tail().unwrap().starts_with('x'), "half a character is none");
    }
}
