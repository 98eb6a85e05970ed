//! Gives the volumes of a build to its user: what the container does that is root for a moment.

use nix::unistd::{Gid, Uid, chown};
use std::fs::{self, Permissions};
use std::io;
use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;

/// Gives each of `directories`, and nothing in them, to `user`.
///
/// # Errors
///
/// If the file system does not let us.
pub fn hand_over(directories: &[PathBuf], user: u32) -> io::Result<()> {
    directories.iter().try_for_each(|directory| {
        chown(directory, Some(Uid::from_raw(user)), Some(Gid::from_raw(user)))?;
        fs::set_permissions(directory, Permissions::from_mode(0o755))
    })
}
