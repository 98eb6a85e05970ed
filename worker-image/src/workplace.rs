//! The builds root: one directory per build, what all sandboxes share, and the lock that keeps a second worker out.
//!
//! ```text
//! <builds_root>/.lock                 held by the worker that lives
//! <builds_root>/.host-id              this host's number, stable over restarts
//! <builds_root>/.bin/callboard-worker the guard, and the first process of every sandbox
//! <builds_root>/.etc/                 passwd, group, hosts, nsswitch.conf and resolv.conf of every sandbox
//! <builds_root>/<build_id>/           workspace, home, the proxy's socket, and a record for recovery
//! ```

use crate::config::Place;
use std::fs::{self, File, OpenOptions, Permissions, TryLockError};
use std::io;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use thiserror::Error;
use uuid::Uuid;

/// The directory of [`ETC_FILES`].
pub const ETC: &str = ".etc";
/// What a sandbox has of its own in /etc: one user, one group, its own name, and the resolver of its build's network.
pub const ETC_FILES: [(&str, &str); 5] = [
    ("passwd", "build:x:1000:1000:build:/home/build:/bin/sh\nnobody:x:65534:65534:nobody:/:/usr/sbin/nologin\n"),
    ("group", "build:x:1000:\nnogroup:x:65534:\n"),
    ("hosts", "127.0.0.1 localhost callboard\n::1 localhost\n"),
    ("nsswitch.conf", "passwd: files\ngroup: files\nhosts: files dns\n"),
    ("resolv.conf", "nameserver 127.0.0.1\n"),
];

/// Why a worker can't work here.
#[derive(Debug, Error)]
pub enum Unfit {
    /// Another one does.
    #[error("another worker runs on {0}; give each its own --builds-root")]
    Taken(PathBuf),
    /// Users that own a build can't get to its directory.
    #[error(
        "builds can't reach {root}: other users may not enter {closed}; run `chmod o+x {closed}`, or use another --builds-root"
    )]
    Closed {
        /// The builds root.
        root: PathBuf,
        /// The directory that is closed.
        closed: PathBuf,
    },
    /// It can't be made or written.
    #[error("the builds root {0} can't be used: {1}; make it writable, or use another --builds-root")]
    Unusable(PathBuf, io::Error),
}

/// A builds root that is ours as long as this lives.
#[derive(Debug)]
pub struct Workplace {
    /// The builds root.
    pub root: PathBuf,
    _lock: File,
}

impl Place {
    /// The worker's binary where every user of a build can reach it.
    #[must_use]
    pub fn installed(&self) -> PathBuf {
        self.binaries().join("callboard-worker")
    }

    /// The directory that holds it, and what it needs where this host's libraries are not.
    #[must_use]
    pub fn binaries(&self) -> PathBuf {
        self.builds_root.join(".bin")
    }

    /// The user that the processes of `slot` run as; `None` for the worker's own.
    #[must_use]
    pub fn run_as(&self, slot: u32) -> Option<u32> {
        nix::unistd::geteuid().is_root().then(|| self.first_uid.saturating_add(slot))
    }
}

impl Workplace {
    /// Makes the builds root ready and takes it.
    ///
    /// # Errors
    ///
    /// See [`Unfit`].
    pub fn take(place: &Place) -> Result<Self, Unfit> {
        let root = place.builds_root.clone();
        let unusable = |error| Unfit::Unusable(root.clone(), error);
        fs::create_dir_all(&root).map_err(unusable)?;
        if nix::unistd::geteuid().is_root() {
            closed(&root).map_or(Ok(()), |closed| Err(Unfit::Closed { root: root.clone(), closed }))?;
        }
        let lock = lock(&root).map_err(unusable)?.ok_or_else(|| Unfit::Taken(root.clone()))?;
        furnish(place).map_err(unusable)?;
        Ok(Self { root, _lock: lock })
    }

    /// This host's number, made at its first start.
    ///
    /// # Errors
    ///
    /// If it can neither be read nor written.
    pub fn host_id(&self, file: Option<&Path>) -> io::Result<String> {
        let path = file.map_or_else(|| self.root.join(".host-id"), Path::to_path_buf);
        match fs::read_to_string(&path) {
            Ok(id) if !id.trim().is_empty() => return Ok(id.trim().to_owned()),
            Ok(_) => {}
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(error),
        }
        let id = Uuid::new_v4().to_string();
        fs::write(&path, &id)?;
        Ok(id)
    }

    /// The builds whose directories are here.
    ///
    /// # Errors
    ///
    /// If the builds root can't be read.
    pub fn builds(&self) -> io::Result<Vec<Uuid>> {
        let names = fs::read_dir(&self.root)?.flatten().map(|entry| entry.file_name());
        Ok(names.filter_map(|name| Uuid::try_parse(name.to_str()?).ok()).collect())
    }
}

/// The nearest directory on the way to `root` that others may not enter.
#[must_use]
pub fn closed(root: &Path) -> Option<PathBuf> {
    let root = root.canonicalize().ok()?;
    let is_closed = |path: &&Path| fs::metadata(path).is_ok_and(|meta| meta.mode() & 0o001 == 0);
    root.ancestors().find(is_closed).map(Path::to_path_buf)
}

/// Whether there is something at `path`.
#[must_use]
pub fn has(path: &Path) -> bool {
    path.try_exists().unwrap_or(false)
}

fn lock(root: &Path) -> io::Result<Option<File>> {
    let file = OpenOptions::new().create(true).truncate(false).write(true).open(root.join(".lock"))?;
    match file.try_lock() {
        Ok(()) => Ok(Some(file)),
        Err(TryLockError::WouldBlock) => Ok(None),
        Err(TryLockError::Error(error)) => Err(error),
    }
}

/// Puts a new binary beside the old one and renames it, since a guard of an earlier worker may still run the old one.
fn furnish(place: &Place) -> io::Result<()> {
    let (installed, etc) = (place.installed(), place.builds_root.join(ETC));
    for directory in [place.binaries(), etc.clone()] {
        fs::create_dir_all(&directory)?;
        fs::set_permissions(&directory, Permissions::from_mode(0o755))?;
    }
    let fresh = installed.with_extension("new");
    fs::copy(&place.binary, &fresh)?;
    fs::set_permissions(&fresh, Permissions::from_mode(0o755))?;
    fs::rename(&fresh, &installed)?;
    for (name, content) in ETC_FILES {
        let path = etc.join(name);
        fs::write(&path, content)?;
        fs::set_permissions(&path, Permissions::from_mode(0o644))?;
    }
    Ok(())
}
