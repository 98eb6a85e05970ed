//! Whether a sandbox works here: a worker that can't run any build must not claim one.

use crate::clock::Boot;
use crate::config::Config;
use crate::isolation::plan::Env;
use crate::isolation::{Ended, Isolation, Limits, Running, StartError, Task};
use crate::site::Site;
use protocol::pipeline::Network;
use std::time::Duration;
use tokio::io::AsyncReadExt as _;
use uuid::Uuid;

/// Runs what does nothing in a sandbox just as a step would be run, in the first slot.
///
/// # Errors
///
/// What is wrong, for a person.
pub async fn sandbox(config: &Config, isolation: &dyn Isolation) -> Result<(), String> {
    let id = Uuid::new_v4();
    let site = Site::make(&config.place, id, 0, None).map_err(|error| format!("no directory for a build: {error}"))?;
    let works = try_it(isolation, &site, config.limits).await;
    site.remove().await.map_err(|error| format!("the directory of a build can't be removed: {error}"))?;
    works
}

async fn try_it(isolation: &dyn Isolation, site: &Site, limits: Limits) -> Result<(), String> {
    let (image, argv) = isolation.probe();
    let task = Task {
        image,
        argv,
        env: Env::new(),
        files: Vec::new(),
        directory: site.directory.clone(),
        slot: 0,
        network: Network::None,
        limits,
        fence_at: Boot::now().plus(Duration::from_secs(20)),
        kill_grace: Duration::ZERO,
    };
    let Running { mut stderr, ended, control: _control, .. } = isolation.start(task).await.map_err(said)?;
    let mut complaint = String::new();
    let (ended, _) = tokio::join!(ended, stderr.read_to_string(&mut complaint));
    match ended {
        Ended::Exited { code: 0, .. } => Ok(()),
        Ended::Exited { code, .. } => {
            Err(format!("what does nothing ended with exit code {code}: {}", complaint.trim()))
        }
        Ended::Fenced => Err("it did not come up in time".into()),
        Ended::NeverStarted(why) | Ended::Broken(why) => Err(format!("{why} {}", complaint.trim())),
    }
}

fn said(error: StartError) -> String {
    match error {
        StartError::Image(why) | StartError::Trouble(why) => why,
    }
}
