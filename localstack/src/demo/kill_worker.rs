//! What becomes of a build whose worker dies: shown with a short lease.

use super::Scene;
use super::source::FIRST_WORDS;
use crate::follow::{Lines, View, follow};
use crate::{leftovers, say};
use anyhow::{Context as _, bail, ensure};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use protocol::build::Build;
use protocol::log::{Chunk, Stream};
use protocol::{EndReason, Status};
use rules::Timing;
use std::collections::BTreeSet;
use std::io::{self, stdout};
use std::time::{Duration, Instant};
use tokio::sync::Notify;

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
    let works = Notify::new();
    let mut onlooker = Onlooker { lines: Lines::new(stdout(), scene.screen), seen: String::new(), works: &works };
    tokio::select! {
        ended = follow(&scene.client, build.id, &mut onlooker) => {
            bail!("the build ended as {} before its worker could be killed", ended?.status)
        }
        () = works.notified() => {}
    }
    onlooker.end()?;
    drop(onlooker);
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

/// Shows a build, and tells once the step itself was heard: before that, nobody sees that it was in the middle of one.
struct Onlooker<'a, V> {
    lines: V,
    /// What the step has written.
    seen: String,
    works: &'a Notify,
}

impl<V: View> View for Onlooker<'_, V> {
    fn build(&mut self, build: &Build) -> io::Result<()> {
        self.lines.build(build)
    }

    fn chunk(&mut self, chunk: &Chunk) -> io::Result<()> {
        self.lines.chunk(chunk)?;
        if chunk.stream == Stream::Stdout {
            self.seen.push_str(&String::from_utf8_lossy(&chunk.bytes().unwrap_or_default()));
        }
        if self.seen.lines().any(|line| line == FIRST_WORDS) && self.seen.ends_with('\n') {
            self.works.notify_one();
        }
        Ok(())
    }

    fn note(&mut self, text: &str) -> io::Result<()> {
        self.lines.note(text)
    }

    fn tick(&mut self) -> io::Result<()> {
        self.lines.tick()
    }

    fn end(&mut self) -> io::Result<()> {
        self.lines.end()
    }
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::follow::Silent;
    use std::pin::pin;
    use std::task::{Context, Waker};

    #[test]
    fn the_worker_is_killed_once_its_step_was_heard_and_not_before() {
        let works = Notify::new();
        let mut onlooker = Onlooker { lines: Silent, seen: String::new(), works: &works };
        let mut heard = |stream, text: &str| {
            onlooker.chunk(&Chunk::new(1, "work", stream, 0, text.as_bytes())).unwrap();
            pin!(works.notified()).poll(&mut Context::from_waker(Waker::noop())).is_ready()
        };
        assert!(!heard(Stream::System, "Step 1/1: work\n"));
        assert!(!heard(
            Stream::System,
            "$ for second in $(seq 600); do echo \"still working, second $second\"; done\n"
        ));
        assert!(!heard(Stream::System, "still working, second 1\n"));
        assert!(!heard(Stream::Stdout, "still working, sec"));
        assert!(!heard(Stream::Stdout, "ond 1"), "a line is shown once it has ended");
        assert!(heard(Stream::Stdout, "\nstill working, second 2\n"));
    }
}
