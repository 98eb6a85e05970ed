//! Ends a preview for good: its keeper, whatever runs, its port; then what is not to stay.

use super::call::Call;
use super::decide::{self, End};
use super::exact::Root;
use super::folder::Folder;
use super::keeper::{Ask, port};
use crate::config::Config;
use crate::isolation::{Isolation, cgroup, end_containers_of};
use crate::recovery::end_build;
use crate::site;
use protocol::preview::PreviewReport;
use rules::preview::Seen;
use std::fs::File;
use std::io;
use std::time::Duration;
use tokio::task::spawn_blocking;
use tokio::time::{sleep, timeout};

/// How much longer than the grace a keeper may take to end.
const PATIENCE: Duration = Duration::from_secs(15);
/// How often it is looked whether a keeper that was killed is gone.
const LOOK_EVERY: Duration = Duration::from_millis(20);

/// Ends what is in `folder`, and leaves behind what `how` says. To be tried again if it fails; every part of it may have been done.
pub(super) async fn end(
    config: &Config,
    isolation: Option<&dyn Isolation>,
    root: &Root,
    folder: &Folder,
    how: End,
) -> io::Result<()> {
    ask(config, folder).await;
    end_build(&config.place, folder.build).await?;
    let place = place(folder).await?;
    let (builds, build) = (config.place.builds_root.clone(), folder.build.to_string());
    spawn_blocking(move || cgroup::end_of(&builds, &build)).await.map_err(io::Error::other)??;
    end_containers(config, folder, how).await?;
    let freed = free(config, folder);
    if how == End::Forget {
        return forget(isolation, root, folder).await;
    }
    if how == End::Destroy {
        folder.remove_logs();
    }
    let left = left(&folder.report(), how, &freed);
    folder.say(&left)?;
    drop(place);
    freed
}

/// Asks the keeper to end, and waits for it, but not for ever.
async fn ask(config: &Config, folder: &Folder) {
    if let Some((mut call, _)) = Call::to(folder, Ask::Stop).await {
        let over = async { while call.next().await.is_some() {} };
        timeout(config.grace.kill + PATIENCE, over).await.ok();
    }
}

/// The keeper's place, once nobody has it.
async fn place(folder: &Folder) -> io::Result<File> {
    let placed = async {
        loop {
            match folder.take()? {
                Some(place) => return Ok(place),
                None => sleep(LOOK_EVERY).await,
            }
        }
    };
    timeout(PATIENCE, placed).await.map_err(|_| io::Error::other("its keeper can't be ended"))?
}

/// What failed may stay as evidence, stopped.
async fn end_containers(config: &Config, folder: &Folder, how: End) -> io::Result<()> {
    let is_evidence = match how {
        End::Lost(_) | End::Stop => folder.container() == Some(true),
        End::Destroy | End::Forget => false,
    };
    match folder.container() {
        Some(_) if !is_evidence => end_containers_of(config, folder.build).await,
        Some(_) | None => Ok(()),
    }
}

/// Whether its port can be bound again: only then does nobody have it any more.
fn free(config: &Config, folder: &Folder) -> io::Result<()> {
    let Some(port) = folder.report().port else { return Ok(()) };
    port::is_free(config.previews.address, port)
        .map_err(|error| io::Error::other(format!("port {port} can't be bound again: {error}")))
}

/// What is said of it from now on.
fn left(said: &PreviewReport, how: End, freed: &io::Result<()>) -> PreviewReport {
    let mut left = PreviewReport { url: None, no_port: false, ..said.clone() };
    match how {
        End::Lost(lost) => left = decide::failed(&left, lost),
        End::Stop if said.state == Seen::Destroyed => {}
        End::Stop => left.state = Seen::Failed,
        End::Destroy | End::Forget => {
            (left.state, left.stage, left.message) = (Seen::Destroyed, None, None);
        }
    }
    match freed {
        Ok(()) => left.port = None,
        Err(why) if matches!(how, End::Destroy | End::Forget) => {
            (left.state, left.message) = (Seen::Destroying, Some(why.to_string()));
        }
        Err(_) => {}
    }
    left
}

async fn forget(isolation: Option<&dyn Isolation>, root: &Root, folder: &Folder) -> io::Result<()> {
    if let Some(isolation) = isolation {
        isolation.clear(&folder.build.to_string()).await.map_err(io::Error::other)?;
    }
    match root.directory(folder.build)? {
        Some(directory) => site::remove(&directory).await,
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::previews::decide::Lost;
    use crate::previews::folder::of;
    use uuid::Uuid;

    fn check(state: Seen, how: End, is_free: bool, expected: (Seen, Option<u16>)) {
        let said = PreviewReport { port: Some(7), url: Some("http://x".into()), ..of(Uuid::nil(), state) };
        let freed = if is_free { Ok(()) } else { Err(io::Error::other("taken")) };
        let left = left(&said, how, &freed);
        assert_eq!((left.state, left.port), expected, "{state} {how:?} {is_free}");
        assert_eq!(left.url, None);
    }

    #[test]
    fn a_preview_is_destroyed_only_once_its_port_is_free() {
        check(Seen::Running, End::Destroy, true, (Seen::Destroyed, None));
        check(Seen::Running, End::Destroy, false, (Seen::Destroying, Some(7)));
        check(Seen::Destroying, End::Destroy, true, (Seen::Destroyed, None));
    }

    #[test]
    fn what_was_stopped_or_lost_has_failed_and_holds_its_port_until_that_is_free() {
        check(Seen::Running, End::Stop, true, (Seen::Failed, None));
        check(Seen::Failed, End::Stop, false, (Seen::Failed, Some(7)));
        check(Seen::Destroyed, End::Stop, true, (Seen::Destroyed, None));
        check(Seen::Starting, End::Lost(Lost::Missing), true, (Seen::Failed, None));
        check(Seen::Running, End::Lost(Lost::Killed), false, (Seen::Failed, Some(7)));
    }
}
