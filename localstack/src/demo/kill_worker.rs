//! What becomes of a build whose worker dies: shown with a short lease.

use super::Scene;
use crate::client::Client;
use crate::follow::{Lines, View as _, follow};
use crate::{leftovers, say};
use anyhow::{Context as _, bail, ensure};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use protocol::build::Build;
use protocol::{EndReason, Status};
use rules::Timing;
use std::collections::BTreeSet;
use std::io::stdout;
use std::time::{Duration, Instant};
use uuid::Uuid;

const LEASE: Duration = Duration::from_secs(6);
const GRACE: Duration = Duration::from_secs(6);
const REAP_EVERY: Duration = Duration::from_secs(1);
/// How long a stopped sandbox may still be seen.
const CLEAN_UP: Duration = Duration::from_secs(15);

/// SPEC.md's numbers, shorter.
pub(super) fn timing() -> Timing {
    Timing {
        lease: LEASE,
        heartbeat_every: Duration::from_secs(2),
        lease_grace: GRACE,
        reap_every: REAP_EVERY,
        kill_grace: Duration::from_secs(1),
        fence_margin: Duration::from_secs(1),
        ..Timing::default()
    }
}

pub(super) fn worker_arguments() -> Vec<String> {
    ["--kill-grace-ms", "1000", "--fence-margin-ms", "1000"].map(str::to_owned).into()
}

/// Kills the worker in the middle of a step, waits for the reaper, and starts the next worker.
pub(super) async fn play(scene: &mut Scene, build: Build) -> anyhow::Result<u8> {
    let paint = scene.screen.paint;
    let mut lines = Lines::new(stdout(), scene.screen);
    tokio::select! {
        ended = follow(&scene.client, build.id, &mut lines) => {
            bail!("the build ended as {} before its worker could be killed", ended?.status)
        }
        reached = reaches(&scene.client, build.id, "work") => reached?,
    }
    lines.end()?;
    let pid = scene.stack.worker().and_then(crate::worker::Worker::pid).context("the worker has ended by itself")?;
    kill(Pid::from_raw(pid), Signal::SIGKILL)?;
    say::out(paint.bold(&format!("\nkill -9 {pid}: the worker is gone in the middle of a step")))?;
    let ended = count_down(scene, &build).await?;
    say::out(format_args!(
        "build    {} ({}): {}, charged {} s: from its claim to the end of its lease",
        paint.status(ended.status),
        ended.end_reason.map_or("", EndReason::as_str),
        ended.error_message.as_deref().unwrap_or(""),
        ended.charged_seconds.unwrap_or(0)
    ))?;
    scene.stack.stop_worker().await;
    scene.start_worker(true)?;
    let left = clean(scene, &build).await;
    say::out(format_args!("the next worker's start: {left} left behind\n"))?;
    let as_it_should = ended.status == Status::Failed && ended.end_reason == Some(EndReason::WorkerLost) && left == 0;
    Ok(u8::from(!as_it_should))
}

/// Waits until the build is at a step.
async fn reaches(client: &Client, id: Uuid, step: &str) -> anyhow::Result<()> {
    while client.build(id).await?.phase.as_deref() != Some(step) {
        tokio::time::sleep(Duration::from_millis(250)).await;
    }
    Ok(())
}

async fn count_down(scene: &Scene, build: &Build) -> anyhow::Result<Build> {
    let begun = Instant::now();
    let longest = LEASE + GRACE + REAP_EVERY;
    say::out(format_args!(
        "lease {} s + grace {} s, then the reaper; it sweeps every {} s",
        LEASE.as_secs(),
        GRACE.as_secs(),
        REAP_EVERY.as_secs()
    ))?;
    loop {
        let seen = scene.client.build(build.id).await?;
        if seen.status.is_final() {
            return Ok(seen);
        }
        let left = longest.saturating_sub(begun.elapsed());
        say::out(format_args!("  {} for at most {} s more", seen.status, left.as_secs() + 1))?;
        ensure!(begun.elapsed() < longest * 3, "the reaper did not end the build");
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
}

/// Waits until nothing of the build is left; how much is, if that takes too long.
async fn clean(scene: &Scene, build: &Build) -> usize {
    let begun = Instant::now();
    let site = scene.stack.dir().join("builds").join(build.id.to_string());
    loop {
        // No build runs now: whatever is in a sandbox was left.
        let processes: BTreeSet<u32> = leftovers::sandboxed().into_iter().chain(leftovers::processes(&site)).collect();
        let left = processes.len() + leftovers::mounts(&site) + usize::from(site.exists());
        if left == 0 || begun.elapsed() > CLEAN_UP {
            return left;
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}
