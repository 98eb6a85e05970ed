//! Which keepers live: what no recovery may touch.

use super::call::Call;
use super::folder::{self, Folder};
use super::keeper::Ask;
use futures::future::join_all;
use std::collections::BTreeMap;
use std::io;
use std::path::Path;
use uuid::Uuid;

/// The processes of the keepers that live and answer, by build. A step can't pretend to be one: it sees no keeper's socket.
///
/// # Errors
///
/// If the builds root can't be read.
pub async fn living(builds_root: &Path) -> io::Result<BTreeMap<Uuid, i32>> {
    let kept = folder::kept(builds_root)?;
    let asked = kept.iter().map(async |folder: &Folder| {
        let (_call, told) = Call::to(folder, Ask::Watch).await?;
        Some((folder.build, told.pid))
    });
    Ok(join_all(asked).await.into_iter().flatten().collect())
}
