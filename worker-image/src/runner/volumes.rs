//! The volumes of a task: each has a file in it from the image, so that none is filled again from the image of another container.

use std::fs;
use std::path::{Path, PathBuf};

/// The file.
const MARK: &str = ".volume";
/// Where the runner has each room's `/tmp`.
const ROOMS: &str = "/rooms";

/// Empties them, once all containers are there.
pub(super) fn empty(workspace: &Path, steps: u8) {
    let own = (0..=steps).map(|room| Path::new(ROOMS).join(room.to_string()));
    let shared = [workspace.to_path_buf(), PathBuf::from(shim::HOME)];
    for volume in shared.into_iter().chain(own) {
        fs::remove_file(volume.join(MARK)).ok();
    }
}
