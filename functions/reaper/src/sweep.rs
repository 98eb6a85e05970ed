//! One sweep: after the pause rule, each kind of what is due, in its order.

use crate::{plans, previews, tasks};
use edge::{Rejection, Shell};
use protocol::EndReason;
use protocol::admin::Swept;
use rules::fairness::Order;
use rules::lease::Due;
use rules::runnable;
use store::{endings, submissions, sweeps};
use uuid::Uuid;

/// How many batches of one kind a sweep works through; what is left is the next sweep's.
pub(crate) const BATCHES_MAX: usize = 20;

/// Sweeps the board once, as the schedule has it.
///
/// # Errors
///
/// [`Rejection::Store`] if the database could not be asked what is due. A row that could not be ended is counted in
/// `errors`, and the next sweep tries it again.
pub async fn sweep(shell: &Shell) -> Result<Swept, Rejection> {
    sweep_for(shell, Asked::BySchedule).await
}

/// Who asks for a sweep. An operator's cleans previews up whether or not that is due.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Asked {
    BySchedule,
    ByOperator,
}

pub(crate) async fn sweep_for(shell: &Shell, asked: Asked) -> Result<Swept, Rejection> {
    let paused = sweeps::begin(&shell.store, &shell.config.timing).await?;
    let mut swept = Swept { paused, ..Swept::default() };
    if !paused {
        end_due(shell, &mut swept).await?;
    }
    if sweeps::set_order(&shell.store, shell.config.claim_order == Order::Fair).await? {
        tracing::info!(order = shell.config.claim_order.as_str(), "order of claims set");
    }
    roll_month(shell).await?;
    expire(shell, &mut swept).await?;
    end_unrunnable(shell, &mut swept).await?;
    // Before builds are purged: those whose preview goes now go with it.
    previews::tend(shell, asked, &mut swept).await?;
    purge(shell, &mut swept).await?;
    sweeps::forget(&shell.store, &shell.config.timing).await?;
    sweeps::forget_queues(&shell.store).await?;
    // Last, since they wait for others: nothing else of a sweep is late for it.
    plans::tend(shell, &mut swept).await?;
    tasks::stop(shell, &mut swept).await?;
    tell(&swept);
    Ok(swept)
}

/// A sweep that did nothing but fetch plans is no news: the metrics say when the last one was.
fn tell(swept: &Swept) {
    if (Swept { plans_fetched: 0, ..*swept }) == Swept::default() {
        return;
    }
    tracing::info!(
        sweep.lost = swept.lost,
        sweep.overdue = swept.overdue,
        sweep.expired = swept.expired,
        sweep.purged = swept.purged,
        sweep.plans_failed = swept.plans_failed,
        sweep.plans_lapsed = swept.plans_lapsed,
        sweep.previews_expired = swept.previews_expired,
        sweep.previews_lost = swept.previews_lost,
        sweep.previews_purged = swept.previews_purged,
        sweep.errors = swept.errors,
        sweep.paused = swept.paused,
        "swept"
    );
}

/// Ends builds whose lease lapsed or whose deadline passed, longer ago than the grace.
async fn end_due(shell: &Shell, swept: &mut Swept) -> Result<(), Rejection> {
    let timing = &shell.config.timing;
    for _ in 0..BATCHES_MAX {
        let errors = swept.errors;
        let due = sweeps::due(&shell.store, timing).await?;
        for (build, why) in &due {
            match endings::reap(&shell.store, *build, *why, timing).await {
                Ok(Some(ended)) => note(*build, *why, ended.charged_seconds, swept),
                // Renewed or ended since it was found.
                Ok(None) => {}
                Err(error) => failed(*build, &error, swept),
            }
        }
        if due.len() < batch() || swept.errors > errors {
            break;
        }
    }
    Ok(())
}

fn note(build: Uuid, why: Due, charged_seconds: u32, swept: &mut Swept) {
    match why {
        Due::Lost => swept.lost += 1,
        Due::Overdue => swept.overdue += 1,
    }
    tracing::warn!(build.id = %build, why = ?why, charged_seconds, "build reaped");
}

pub(crate) fn failed(id: Uuid, error: &store::Error, swept: &mut Swept) {
    swept.errors += 1;
    tracing::error!(id = %id, %error, "could not be swept");
}

async fn roll_month(shell: &Shell) -> Result<(), Rejection> {
    for _ in 0..BATCHES_MAX {
        if sweeps::roll_month(&shell.store).await? == 0 {
            break;
        }
    }
    Ok(())
}

/// Ends builds that waited longer than a build may.
async fn expire(shell: &Shell, swept: &mut Swept) -> Result<(), Rejection> {
    for _ in 0..BATCHES_MAX {
        let errors = swept.errors;
        let mut expired = sweeps::expired(&shell.store, &shell.config.timing).await?;
        expired.sort_unstable();
        for of_one in expired.chunk_by(|a, b| a.0 == b.0) {
            let builds: Vec<Uuid> = of_one.iter().map(|(_, build)| *build).collect();
            end_pending(shell, of_one[0].0, Some(&builds), EndReason::QueueExpired, swept).await;
        }
        if expired.len() < batch() || swept.errors > errors {
            break;
        }
    }
    Ok(())
}

/// Ends builds that can't be run: the month is spent, or what is at the head of a queue does not pass the rules.
async fn end_unrunnable(shell: &Shell, swept: &mut Swept) -> Result<(), Rejection> {
    for workspace in sweeps::exhausted(&shell.store).await? {
        end_pending(shell, workspace, None, EndReason::MinutesExhausted, swept).await;
    }
    for _ in 0..BATCHES_MAX {
        let before = (swept.expired, swept.errors);
        for build in sweeps::unverified(&shell.store).await? {
            let facts = &build.facts;
            if let Some(reason) = runnable::unrunnable(facts.has_pipeline, &facts.repository, &facts.git_ref) {
                end_pending(shell, build.workspace, Some(&[build.build]), reason, swept).await;
            }
        }
        if swept.expired == before.0 || swept.errors > before.1 {
            break;
        }
    }
    Ok(())
}

async fn end_pending(shell: &Shell, workspace: Uuid, builds: Option<&[Uuid]>, reason: EndReason, swept: &mut Swept) {
    let limit = i32::try_from(sweeps::BATCH).unwrap_or(i32::MAX);
    let message = runnable::explain(reason);
    match submissions::end_pending(&shell.store, workspace, builds, limit, reason, message).await {
        Ok(ended) => {
            swept.expired += u64::try_from(ended.len()).unwrap_or(u64::MAX);
            for build in ended {
                tracing::info!(build.id = %build, end_reason = %reason, "build never started");
            }
        }
        Err(error) => failed(workspace, &error, swept),
    }
}

/// Purges builds and logs that were kept long enough.
async fn purge(shell: &Shell, swept: &mut Swept) -> Result<(), Rejection> {
    for _ in 0..BATCHES_MAX {
        let purged = sweeps::purge(&shell.store, &shell.config.timing).await?;
        swept.purged += purged;
        if usize::try_from(purged).unwrap_or(usize::MAX) < batch() {
            break;
        }
    }
    Ok(())
}

pub(crate) fn batch() -> usize {
    usize::try_from(sweeps::BATCH).unwrap_or(usize::MAX)
}
