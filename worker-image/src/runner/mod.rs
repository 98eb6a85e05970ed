//! `callboard-worker runner`: runs a build's steps inside of a task of ECS's, away from the worker that holds the build.
//!
//! It is one container of the task; each step has another one, its *room*, of the step's image, and so has the clone, of this program's
//! own. All start together; the course of the build is the same as everywhere ([`crate::course`]), with rooms in the place of sandboxes.
//! The job comes from the board, by the build's log token; how the build went goes back to the worker by way of the board.
//!
//! What the task must give, besides the variables of [`settings`]:
//!
//! * A volume at `/run/callboard`, filled from this program's image: the runner can write it, the rooms can't. In it are [`shim::PROGRAM`], which is the
//!   rooms' first process (with the room's number as its argument: 0 for the clone's, then the steps in order, then those of `on_cancel`), and
//!   [`shim::SOCKET`].
//! * A volume at `/workspace` and one at [`shim::HOME`], in the runner and in all rooms.
//! * A volume at `/tmp` in each room, its own: the clone's password is in it. The runner has it as `/rooms/N`, so that it is filled from this
//!   program's image too.
//!
//! All of them belong to the user as whom all containers run, as worker-image/Dockerfile makes them. `step-N` of a definition is room N.

mod build;
mod door;
mod fetch;
mod report;
mod room;
mod rooms;
pub mod settings;
mod told;
mod volumes;
mod waiting;

use crate::api::Api;
use crate::clock::{Boot, sleep_until};
use crate::clone;
use crate::isolation::bubblewrap::names;
use crate::site::Site;
use build::Build;
use door::Door;
use settings::Settings;
use std::fs;
use std::io;
use std::os::unix::fs::{MetadataExt as _, symlink};
use std::path::Path;
use std::time::Duration;
use thiserror::Error;
use told::Told;
use tracing::info;
use uuid::Uuid;

/// How a runner ends.
#[derive(Debug, Error)]
pub enum End {
    /// The board has its report: exit code 0.
    #[error("the build is reported")]
    Reported,
    /// It is not told what it needs, or can't work here: exit code 64.
    #[error("{0}")]
    Unfit(String),
    /// It did not get its job: exit code 69.
    #[error("no job: {0}")]
    NoJob(String),
    /// The build is not its any more, or the board fell silent: exit code 75.
    #[error("the build is lost")]
    Lost,
    /// The board does not take its report: exit code 76.
    #[error("the board refused the report: {0}")]
    Unreported(String),
}

impl End {
    /// The exit code.
    #[must_use]
    pub fn exit_code(&self) -> u8 {
        match self {
            Self::Reported => 0,
            Self::Unfit(_) => 64,
            Self::NoJob(_) => 69,
            Self::Lost => 75,
            Self::Unreported(_) => 76,
        }
    }
}

/// Runs the build that the variables that `of` has are about.
pub async fn run(of: impl Fn(&str) -> Option<String>) -> End {
    match begin(of).await {
        Ok((build, site, door)) => build.run(site, door).await,
        Err(end) => end,
    }
}

async fn begin(of: impl Fn(&str) -> Option<String>) -> Result<(Build, Site, Door), End> {
    let settings = Settings::read(of).map_err(End::Unfit)?;
    let unfit = |error: io::Error| End::Unfit(error.to_string());
    let told = Told::listen().map_err(unfit)?;
    let site = site(&settings).map_err(unfit)?;
    // Rooms come as soon as they can.
    let door = Door::open(&settings.place.socket).map_err(unfit)?;
    let pem = settings.pem.as_ref().map(String::as_bytes);
    let api = Api::at(&settings.url, settings.log_token.clone(), pem)
        .map_err(|_| End::Unfit("CALLBOARD_CA_PEM is none".into()))?;
    let fetch_id = Uuid::new_v4();
    let patience = patience(&settings);
    let until = Boot::now().plus(patience);
    let fetched = tokio::select! {
        fetched = fetch::fetch(&api, &settings, fetch_id) => fetched.map_err(End::NoJob)?,
        () = told.stop() => return Err(End::NoJob("told to stop before it came".into())),
        () = sleep_until(|| until) => return Err(End::NoJob(format!("not after {} s", patience.as_secs()))),
    };
    info!(build.id = %settings.build, "job fetched");
    Ok((Build::new(settings, api, fetch_id, fetched, told), site, door))
}

/// As long as a build that was claimed just now would have until its fence.
fn patience(settings: &Settings) -> Duration {
    let milliseconds = Duration::from_millis;
    let (lease, lease_grace) = (milliseconds(settings.lease_ttl_ms), milliseconds(settings.lease_grace_ms));
    rules::lease::fence_after(lease, lease_grace, settings.grace.kill, settings.grace.fence_margin)
}

/// The runner's own directory, in which the workspace is where it is in a build's.
fn site(settings: &Settings) -> io::Result<Site> {
    let directory = &settings.place.directory;
    fs::create_dir_all(directory)?;
    for (name, volume) in [(names::WORKSPACE, settings.place.workspace.as_path()), (names::HOME, Path::new(shim::HOME))]
    {
        // What is another's no step can have closed.
        let is_ours = fs::metadata(volume).is_ok_and(|meta| meta.uid() == nix::unistd::geteuid().as_raw());
        let path = directory.join(name);
        if is_ours { symlink(volume, path)? } else { fs::create_dir(path)? }
    }
    if let Some(pem) = &settings.pem {
        clone::write_certificates(&directory.join(names::CERTIFICATES), pem.as_bytes())?;
    }
    Ok(Site::made(directory.clone()))
}
