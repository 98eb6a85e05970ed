//! Plans of a billing service: fetched while builds need them, taken out of effect once they are stale.

use crate::sweep::{BATCHES_MAX, batch, failed};
use edge::billing::Refreshed;
use edge::{Billing, Rejection, Shell};
use futures::stream::{self, StreamExt as _};
use protocol::admin::Swept;
use std::pin::pin;
use store::billing;
use tokio::time::{Instant, sleep_until};
use uuid::Uuid;

/// How many questions are on their way at once for workspaces whose last one was answered.
const AT_ONCE: usize = 16;
/// And for those whose last one was not. They have a lane of their own: however many hang, the others are not late for it.
const FAILING_AT_ONCE: usize = 8;
/// The part of the time between sweeps for which one goes on beginning questions: a third, so 10 s of 30. Those that it began
/// it waits for, at most a question's timeout more.
const ASKING_PART: u32 = 3;

/// Brings plans up to date that builds wait or run under, and lets those lapse that are stale.
///
/// # Errors
///
/// [`Rejection::Store`] if the database could not be asked what is due.
pub(crate) async fn tend(shell: &Shell, swept: &mut Swept) -> Result<(), Rejection> {
    match shell.billing {
        Billing::PlanTables => return_to_tables(shell).await,
        Billing::Service(_) => {
            fetch(shell, swept).await?;
            lapse(shell, swept).await
        }
    }
}

async fn fetch(shell: &Shell, swept: &mut Swept) -> Result<(), Rejection> {
    let until = Instant::now() + shell.config.timing.reap_every / ASKING_PART;
    let lanes = (lane(shell, false, AT_ONCE, until), lane(shell, true, FAILING_AT_ONCE, until));
    let (answered, failing) = futures::join!(lanes.0, lanes.1);
    for lane in [answered?, failing?] {
        swept.plans_fetched += lane.plans_fetched;
        swept.plans_failed += lane.plans_failed;
        swept.errors += lane.errors;
    }
    Ok(())
}

/// Those that were not asked for longest come first, so that the next sweep goes on where this one ends.
async fn lane(shell: &Shell, failing: bool, at_once: usize, until: Instant) -> Result<Swept, Rejection> {
    let timing = &shell.config.timing;
    let mut swept = Swept::default();
    for _ in 0..BATCHES_MAX {
        let due = billing::due(&shell.store, timing, failing).await?;
        let is_last = due.len() < batch();
        let questions = stream::iter(due)
            .take_until(sleep_until(until))
            .map(|workspace| async move { (workspace, shell.billing.refresh(&shell.store, workspace, timing).await) });
        let mut answers = pin!(questions.buffer_unordered(at_once));
        while let Some((workspace, answer)) = answers.next().await {
            count(workspace, answer, &mut swept);
        }
        if is_last || Instant::now() >= until {
            break;
        }
    }
    Ok(swept)
}

fn count(workspace: Uuid, answer: Result<Refreshed, store::Error>, swept: &mut Swept) {
    match answer {
        Ok(Refreshed::Stored) => swept.plans_fetched += 1,
        Ok(Refreshed::Failed(_)) => swept.plans_failed += 1,
        Ok(Refreshed::NotDue) => {}
        Err(error) => failed(workspace, &error, swept),
    }
}

async fn lapse(shell: &Shell, swept: &mut Swept) -> Result<(), Rejection> {
    for _ in 0..BATCHES_MAX {
        let lapsed = billing::lapse(&shell.store, &shell.config.timing).await?;
        swept.plans_lapsed += lapsed;
        if is_last(lapsed) {
            break;
        }
    }
    Ok(())
}

/// Without a billing service, what one gave last is the plan until an operator sets another.
async fn return_to_tables(shell: &Shell) -> Result<(), Rejection> {
    for _ in 0..BATCHES_MAX {
        if is_last(billing::return_to_tables(&shell.store).await?) {
            break;
        }
    }
    Ok(())
}

fn is_last(touched: u64) -> bool {
    usize::try_from(touched).unwrap_or(usize::MAX) < batch()
}
