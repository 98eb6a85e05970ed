//! How much disk a build's directories hold, looked at now and then on a thread of its own: it delays nobody, and is gone with
//! the process.

use nix::dir::Dir;
use nix::fcntl::{AT_FDCWD, AtFlags, OFlag, openat};
use nix::sys::stat::{FileStat, Mode, SFlag, fstat, fstatat};
use std::collections::BTreeSet;
use std::ffi::CString;
use std::fs;
use std::io;
use std::os::fd::AsFd;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// Before the first look; twice as long before each further one, up to the longest pause.
const FIRST_LOOK: Duration = Duration::from_millis(100);
const LOOK_EVERY: Duration = Duration::from_millis(500);
/// So long a look works at a time, and then rests nine times as long.
const AT_A_TIME: Duration = Duration::from_millis(20);
const REST: u32 = 9;
/// How many directories may wait for their turn, and how many files with several names are known: more count as too much.
const PENDING_MAX: usize = 1_000_000;
/// What a file takes at least, for its name and its entry in the file system's tables.
const ENTRY_BYTES: u64 = 512;

/// A running watch over a build's directories.
#[derive(Debug, Default)]
pub(super) struct Measure(Arc<AtomicBool>);

impl Measure {
    /// Watches whether what is in `directories`, or was deleted and is kept open by one of `processes`, comes to more
    /// than `bytes_max`.
    pub(super) fn start(
        directories: &[PathBuf],
        bytes_max: u64,
        processes: impl Fn() -> Vec<i32> + Send + 'static,
    ) -> io::Result<Self> {
        let (measure, directories) = (Self::default(), directories.to_vec());
        let over = Arc::clone(&measure.0);
        let looks = move || {
            let mut pause = FIRST_LOOK;
            while !over.load(Ordering::Relaxed) {
                thread::sleep(pause);
                pause = LOOK_EVERY.min(pause * 2);
                if is_over(&directories, bytes_max, &processes()) {
                    over.store(true, Ordering::Relaxed);
                }
            }
        };
        thread::Builder::new().name("measure".into()).spawn(looks)?;
        Ok(measure)
    }

    /// Whether it does.
    pub(super) fn is_over(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

fn is_over(directories: &[PathBuf], bytes_max: u64, processes: &[i32]) -> bool {
    let mut look = Look { bytes_max, bytes: 0, pending: 0, shared: BTreeSet::new(), working_since: Instant::now() };
    for directory in directories {
        // What changes under the look is seen by the next one.
        if matches!(look.tree(directory), Ok(Seen::TooMuch)) {
            return true;
        }
    }
    let devices: BTreeSet<u64> = directories.iter().filter_map(|top| Some(fs::metadata(top).ok()?.dev())).collect();
    processes.iter().for_each(|pid| look.deleted(*pid, &devices));
    look.is_too_much()
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Seen {
    All,
    TooMuch,
}

struct Look {
    bytes_max: u64,
    bytes: u64,
    /// How many directories wait for their turn.
    pending: usize,
    /// Files that have several names, and count once.
    shared: BTreeSet<u64>,
    working_since: Instant,
}

/// A directory on the way to the one that is looked at: what it is, and which directories in it are still to come.
struct Level {
    id: (u64, u64),
    pending: Vec<CString>,
}

impl Look {
    /// Goes down by name and up by `..`, so that depth takes no descriptors; a directory that was moved meanwhile ends it.
    fn tree(&mut self, top: &Path) -> io::Result<Seen> {
        let mut current = open(AT_FDCWD, top)?;
        let mut levels = vec![self.level(&mut current)?];
        while let Some(level) = levels.last_mut() {
            if self.is_too_much() {
                return Ok(Seen::TooMuch);
            }
            if let Some(name) = level.pending.pop() {
                self.pending -= 1;
                let device = level.id.0;
                let Ok(mut child) = open(&current, name.as_c_str()) else { continue };
                let below = self.level(&mut child)?;
                if below.id.0 == device {
                    levels.push(below);
                    current = child;
                }
                continue;
            }
            levels.pop();
            if let Some(parent) = levels.last() {
                current = open(&current, c"..")?;
                if id(&fstat(&current)?) != parent.id {
                    return Err(io::ErrorKind::StaleNetworkFileHandle.into());
                }
            }
        }
        Ok(Seen::All)
    }

    fn level(&mut self, directory: &mut Dir) -> io::Result<Level> {
        let (id, itself) = (id(&fstat(&*directory)?), directory.as_fd().try_clone_to_owned()?);
        let mut pending = Vec::new();
        for entry in directory.iter() {
            let name = entry?.file_name().to_owned();
            if name.as_c_str() == c"." || name.as_c_str() == c".." {
                continue;
            }
            let Ok(status) = fstatat(&itself, name.as_c_str(), AtFlags::AT_SYMLINK_NOFOLLOW) else { continue };
            self.count(&status);
            if is_directory(&status) {
                pending.push(name);
                self.pending += 1;
            }
            if self.is_too_much() {
                break;
            }
            self.rest();
        }
        Ok(Level { id, pending })
    }

    fn count(&mut self, status: &FileStat) {
        let is_counted = status.st_nlink > 1 && !is_directory(status) && !self.shared.insert(status.st_ino);
        if !is_counted {
            self.bytes += (u64::try_from(status.st_blocks).unwrap_or(0) * 512).max(ENTRY_BYTES);
        }
    }

    /// Files that have no name any more and are kept by a process that has them open.
    fn deleted(&mut self, pid: i32, devices: &BTreeSet<u64>) {
        for open in fs::read_dir(format!("/proc/{pid}/fd")).into_iter().flatten().flatten() {
            if let Ok(meta) = fs::metadata(open.path())
                && meta.is_file()
                && meta.nlink() == 0
                && devices.contains(&meta.dev())
                && self.shared.insert(meta.ino())
            {
                self.bytes += meta.blocks() * 512;
            }
            self.rest();
        }
    }

    fn is_too_much(&self) -> bool {
        self.bytes > self.bytes_max || self.pending.max(self.shared.len()) > PENDING_MAX
    }

    /// A look at a big tree is no reason to keep a processor busy.
    fn rest(&mut self) {
        if self.working_since.elapsed() > AT_A_TIME {
            thread::sleep(AT_A_TIME * REST);
            self.working_since = Instant::now();
        }
    }
}

fn open<P: nix::NixPath + ?Sized>(at: impl AsFd, name: &P) -> nix::Result<Dir> {
    let how = OFlag::O_RDONLY | OFlag::O_DIRECTORY | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
    Dir::from_fd(openat(at, name, how, Mode::empty())?)
}

fn id(status: &FileStat) -> (u64, u64) {
    (status.st_dev, status.st_ino)
}

fn is_directory(status: &FileStat) -> bool {
    SFlag::from_bits_truncate(status.st_mode) & SFlag::S_IFMT == SFlag::S_IFDIR
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The least limit that is enough.
    fn bytes(top: &Path) -> u64 {
        let (mut low, mut high) = (0_u64, 1_u64 << 30);
        while low < high {
            let middle = low.midpoint(high);
            if is_over(&[top.to_path_buf()], middle, &[]) { low = middle + 1 } else { high = middle }
        }
        low
    }

    #[test]
    fn what_files_take_is_counted_over_all_levels_and_once() {
        let root = tempfile::tempdir().unwrap();
        let deep = root.path().join("a/b/c");
        fs::create_dir_all(&deep).unwrap();
        let empty = bytes(root.path());
        fs::write(deep.join("file"), vec![7; 1 << 20]).unwrap();
        let full = bytes(root.path());
        assert!((1 << 20..(1 << 20) + 65_536).contains(&(full - empty)), "{empty} to {full}");
        fs::hard_link(deep.join("file"), root.path().join("again")).unwrap();
        assert_eq!(bytes(root.path()), full, "a second name is no second file");
        fs::File::create(root.path().join("sparse")).unwrap().set_len(1 << 40).unwrap();
        assert!(bytes(root.path()) < full + 65_536, "what is not written takes nothing");
        std::os::unix::fs::symlink("/usr", root.path().join("link")).unwrap();
        assert!(bytes(root.path()) < full + 65_536, "what is elsewhere is not counted");
    }

    #[test]
    fn empty_files_and_what_is_nested_ever_so_deep_count_too() {
        let root = tempfile::tempdir().unwrap();
        (0..100).for_each(|number| drop(fs::File::create(root.path().join(number.to_string())).unwrap()));
        assert!(bytes(root.path()) >= 100 * ENTRY_BYTES);
        let name = "x".repeat(200);
        let mut directory = open(AT_FDCWD, root.path()).unwrap();
        for _ in 0..100 {
            nix::sys::stat::mkdirat(&directory, name.as_str(), Mode::S_IRWXU).unwrap();
            directory = open(&directory, name.as_str()).unwrap();
        }
        let how = OFlag::O_CREAT | OFlag::O_WRONLY;
        let file = openat(&directory, "file", how, Mode::S_IRWXU).unwrap();
        io::Write::write_all(&mut fs::File::from(file), &vec![7; 4 << 20]).unwrap();
        assert!(is_over(&[root.path().to_path_buf()], 3 << 20, &[]), "a path longer than any that can be opened");
        crate::removal::remove(root.path(), &crate::removal::Enough::default()).unwrap();
    }

    #[test]
    fn what_is_deleted_and_open_counts_for_who_has_it_open() {
        let root = tempfile::tempdir().unwrap();
        let mut kept = tempfile::tempfile_in(root.path()).unwrap();
        io::Write::write_all(&mut kept, &vec![7; 4 << 20]).unwrap();
        let us = i32::try_from(std::process::id()).unwrap();
        assert!(is_over(&[root.path().to_path_buf()], 3 << 20, &[us]));
        assert!(!is_over(&[root.path().to_path_buf()], 3 << 20, &[]));
    }

    #[test]
    fn what_is_not_there_takes_nothing() {
        assert!(!is_over(&["/nowhere".into()], 0, &[]));
    }
}
