//! Removes a tree that somebody else made: of any depth, with three descriptors and no recursion, without following a link.
//!
//! A build may nest directories deeper than any stack or limit of descriptors. So nothing descends: a directory that is not
//! empty loses its files, and hands its directories up to the top, where their turn comes. Each directory moves once. All
//! names are single ones, relative to an open directory that was never reached through a link, so that nothing outside the
//! tree can be meant.

use nix::dir::Dir;
use nix::errno::Errno;
use nix::fcntl::{AT_FDCWD, AtFlags, OFlag, openat, renameat};
use nix::sys::stat::{FchmodatFlags, Mode, SFlag, dev_t, fchmod, fchmodat, fstat, fstatat};
use nix::unistd::{UnlinkatFlags, unlinkat};
use std::ffi::{CStr, CString};
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use uuid::Uuid;

/// Tells a removal, from anywhere, that nobody waits for it any more.
#[derive(Clone, Debug, Default)]
pub struct Enough(Arc<AtomicBool>);

impl Enough {
    /// Ends the removal at its next entry.
    pub fn say(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    fn is_said(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

/// Removes `tree`, also where its directories may not be read or written (package caches make theirs so). Gone already is
/// as well. What can't be removed does not keep the rest.
///
/// # Errors
///
/// The first thing that could not be removed, or [`io::ErrorKind::Interrupted`] if it was told that it is enough.
pub fn remove(tree: &Path, enough: &Enough) -> io::Result<()> {
    let top = match open(AT_FDCWD, tree) {
        Ok(top) => top,
        Err(Errno::ENOENT) => return Ok(()),
        Err(error) => return Err(error.into()),
    };
    let device = opened_up(&top)?;
    let mut removal = Removal { top, device, prefix: Uuid::new_v4().simple().to_string(), moved: 0, enough };
    removal.empty()?;
    match unlinkat(AT_FDCWD, tree, UnlinkatFlags::RemoveDir) {
        Ok(()) | Err(Errno::ENOENT) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

struct Removal<'a> {
    top: Dir,
    /// What is mounted inside is somebody else's.
    device: dev_t,
    prefix: String,
    moved: u64,
    enough: &'a Enough,
}

/// What became of one entry.
enum Entry {
    Gone,
    /// It is still there, but less is in it.
    Lighter,
}

impl Removal<'_> {
    /// Goes over the top's entries until none is left, or none can be helped.
    fn empty(&mut self) -> io::Result<()> {
        loop {
            let (mut seen, mut got_on, mut first_error) = (false, false, None);
            let mut entries = reopened(&self.top)?;
            for name in names(&mut entries) {
                seen = true;
                match name.map_err(io::Error::from).and_then(|name| self.entry(&name)) {
                    Ok(Entry::Gone | Entry::Lighter) => got_on = true,
                    Err(error) if error.kind() == io::ErrorKind::Interrupted => return Err(error),
                    Err(error) => first_error = first_error.or(Some(error)),
                }
            }
            match first_error {
                _ if !seen => return Ok(()),
                Some(error) if !got_on => return Err(error),
                Some(_) | None => {}
            }
        }
    }

    /// Removes an entry of the top, or makes it lighter by what can be taken out of it.
    fn entry(&mut self, name: &CStr) -> io::Result<Entry> {
        if !self.is_directory(name)? {
            unlinkat(&self.top, name, UnlinkatFlags::NoRemoveDir)?;
            return Ok(Entry::Gone);
        }
        if unlinkat(&self.top, name, UnlinkatFlags::RemoveDir).is_ok() {
            return Ok(Entry::Gone);
        }
        let mut directory = open(&self.top, name)?;
        if fstat(&directory)?.st_dev != self.device {
            return Err(io::Error::new(io::ErrorKind::ResourceBusy, "something is mounted in it"));
        }
        opened_up(&directory)?;
        let (got_on, error) = self.lighten(&mut directory)?;
        drop(directory);
        match (unlinkat(&self.top, name, UnlinkatFlags::RemoveDir), error) {
            (Ok(()), _) => Ok(Entry::Gone),
            (Err(_), _) if got_on => Ok(Entry::Lighter),
            (Err(_), Some(error)) => Err(error),
            (Err(error), None) => Err(error.into()),
        }
    }

    /// Removes the files of `directory`, and moves its directories to the top. Says whether that did anything, and what was in
    /// its way first.
    fn lighten(&mut self, directory: &mut Dir) -> io::Result<(bool, Option<io::Error>)> {
        let (mut got_on, mut first_error) = (false, None);
        let itself = directory.as_fd().try_clone_to_owned()?;
        for name in names(directory) {
            if self.enough.is_said() {
                return Err(io::ErrorKind::Interrupted.into());
            }
            match name.and_then(|name| self.take_out(itself.as_fd(), &name)) {
                Ok(()) => got_on = true,
                Err(error) => first_error = first_error.or(Some(error.into())),
            }
        }
        Ok((got_on, first_error))
    }

    fn take_out(&mut self, directory: BorrowedFd<'_>, name: &CStr) -> nix::Result<()> {
        match unlinkat(directory, name, UnlinkatFlags::NoRemoveDir) {
            // Linux says EISDIR, POSIX EPERM.
            Err(Errno::EISDIR | Errno::EPERM) => {}
            done => return done,
        }
        match unlinkat(directory, name, UnlinkatFlags::RemoveDir) {
            Ok(()) => return Ok(()),
            Err(Errno::ENOTDIR) => return Err(Errno::EPERM),
            Err(_) => {}
        }
        self.moved += 1;
        let place = format!("{}-{}", self.prefix, self.moved);
        match renameat(directory, name, &self.top, place.as_str()) {
            // A directory that moves is written: its ".." is.
            Err(Errno::EACCES) => {
                fchmodat(directory, name, Mode::S_IRWXU, FchmodatFlags::NoFollowSymlink)?;
                renameat(directory, name, &self.top, place.as_str())
            }
            done => done,
        }
    }

    fn is_directory(&self, name: &CStr) -> io::Result<bool> {
        if self.enough.is_said() {
            return Err(io::ErrorKind::Interrupted.into());
        }
        let entry = fstatat(&self.top, name, AtFlags::AT_SYMLINK_NOFOLLOW)?;
        Ok(SFlag::from_bits_truncate(entry.st_mode) & SFlag::S_IFMT == SFlag::S_IFDIR)
    }
}

const DIRECTORY: OFlag = OFlag::O_RDONLY.union(OFlag::O_DIRECTORY).union(OFlag::O_NOFOLLOW).union(OFlag::O_CLOEXEC);

/// Opens a directory that is no link, also one that may not be read.
fn open<P: nix::NixPath + ?Sized>(at: impl AsFd, name: &P) -> nix::Result<Dir> {
    let opened = match openat(&at, name, DIRECTORY, Mode::empty()) {
        Err(Errno::EACCES) => {
            fchmodat(&at, name, Mode::S_IRWXU, FchmodatFlags::NoFollowSymlink)?;
            openat(&at, name, DIRECTORY, Mode::empty())
        }
        opened => opened,
    };
    Dir::from_fd(opened?)
}

/// Lets its owner do everything in it; returns the file system that it is on.
fn opened_up(directory: &Dir) -> nix::Result<dev_t> {
    let status = fstat(directory)?;
    if !Mode::from_bits_truncate(status.st_mode).contains(Mode::S_IRWXU) {
        fchmod(directory, Mode::S_IRWXU)?;
    }
    Ok(status.st_dev)
}

/// The same directory, read from its beginning.
fn reopened(directory: &Dir) -> io::Result<Dir> {
    Ok(Dir::from_fd(openat(directory, c".", DIRECTORY, Mode::empty())?)?)
}

fn names(directory: &mut Dir) -> impl Iterator<Item = nix::Result<CString>> + '_ {
    let names = directory.iter().map(|entry| entry.map(|entry| entry.file_name().to_owned()));
    names.filter(|name| !name.as_ref().is_ok_and(|name| name.as_c_str() == c"." || name.as_c_str() == c".."))
}

#[cfg(test)]
mod tests {
    use super::*;
    use nix::sys::resource::{Resource, getrlimit, setrlimit};
    use std::fs::{self, File, Permissions};
    use std::os::unix::fs::{PermissionsExt as _, symlink};

    fn removed(tree: &Path) {
        remove(tree, &Enough::default()).unwrap();
        assert!(fs::symlink_metadata(tree).is_err());
    }

    /// Levels in levels, made as a build makes them: step by step.
    fn nest(top: &Path, levels: usize) {
        fs::create_dir(top).unwrap();
        let mut at = File::open(top).unwrap();
        for _ in 0..levels {
            nix::sys::stat::mkdirat(&at, c"d", Mode::S_IRWXU).unwrap();
            at = File::from(openat(&at, c"d", DIRECTORY, Mode::empty()).unwrap());
        }
    }

    #[test]
    fn depth_takes_neither_descriptors_nor_stack() {
        let root = tempfile::tempdir().unwrap();
        nest(&root.path().join("tree"), 1500);
        let (_, hard) = getrlimit(Resource::RLIMIT_NOFILE).unwrap();
        setrlimit(Resource::RLIMIT_NOFILE, 64, hard).unwrap();
        let tree = root.path().join("tree");
        std::thread::Builder::new().stack_size(128 * 1024).spawn(move || removed(&tree)).unwrap().join().unwrap();
    }

    #[test]
    fn directories_that_nobody_may_read_write_or_enter_are_removed() {
        let root = tempfile::tempdir().unwrap();
        for mode in [0o000, 0o111, 0o222, 0o333, 0o444, 0o555, 0o666] {
            let tree = root.path().join("tree");
            fs::create_dir_all(tree.join("cache/inner/empty")).unwrap();
            fs::write(tree.join("cache/inner/file"), "x").unwrap();
            for inner in ["cache/inner/empty", "cache/inner", "cache", ""] {
                fs::set_permissions(tree.join(inner), Permissions::from_mode(mode)).unwrap();
            }
            removed(&tree);
            removed(&tree);
        }
    }

    #[test]
    fn a_link_is_removed_and_not_followed() {
        let (root, outside) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        fs::write(outside.path().join("kept"), "x").unwrap();
        let tree = root.path().join("tree");
        fs::create_dir_all(tree.join("a/b")).unwrap();
        symlink(outside.path(), tree.join("link")).unwrap();
        symlink(outside.path(), tree.join("a/b/link")).unwrap();
        symlink("/nowhere", tree.join("a/dangling")).unwrap();
        removed(&tree);
        assert!(outside.path().join("kept").exists());
    }

    #[test]
    fn a_tree_that_is_a_link_is_refused() {
        let (root, outside) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        symlink(outside.path(), root.path().join("tree")).unwrap();
        assert!(remove(&root.path().join("tree"), &Enough::default()).is_err());
        assert!(outside.path().exists());
    }

    #[test]
    fn a_wide_tree_is_removed_too() {
        let root = tempfile::tempdir().unwrap();
        let tree = root.path().join("tree");
        for number in 0..600 {
            fs::create_dir_all(tree.join(format!("{number}/a/b"))).unwrap();
            fs::write(tree.join(format!("{number}/a/f")), "x").unwrap();
        }
        removed(&tree);
    }

    #[test]
    fn a_removal_that_nobody_waits_for_ends() {
        let root = tempfile::tempdir().unwrap();
        nest(&root.path().join("tree"), 3);
        let enough = Enough::default();
        enough.say();
        let ended = remove(&root.path().join("tree"), &enough).unwrap_err();
        assert_eq!(ended.kind(), io::ErrorKind::Interrupted);
        removed(&root.path().join("tree"));
    }
}
