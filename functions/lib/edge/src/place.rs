//! Where a pending build stands: how many are ahead of it, and what keeps it waiting, which is the first reason that would keep
//! it even if all others went away. Submit tells it as well as the calls that read builds.

use crate::{Rejection, Shell};
use protocol::Status;
use protocol::build::{Build, WaitingFor};
use rules::Seconds;
use rules::budget::{Grant, Plan, Usage, reserve};
use rules::routing::Needs;
use store::listing::{self, Listed};
use store::workers::{self, Able};
use store::workspaces;
use uuid::Uuid;

/// The builds of a workspace, those that wait with their place in the queue and what they wait for. Nothing is locked: another
/// call may change it a moment later.
///
/// # Errors
///
/// [`Rejection::Store`] if the database fails; [`Rejection::NotFound`] if there is no such workspace.
pub async fn placed(shell: &Shell, workspace: Uuid, listed: Vec<Listed>) -> Result<Vec<Build>, Rejection> {
    if listed.iter().all(|listed| listed.build.status != Status::Pending) {
        return Ok(listed.into_iter().map(|listed| listed.build).collect());
    }
    let standing = workspaces::standing(&shell.store, workspace, &shell.config.timing).await?;
    let standing = standing.ok_or(Rejection::NotFound)?;
    let able = workers::at_work(&shell.store, workspace).await?;
    let ids: Vec<Uuid> = listed.iter().map(|listed| listed.build.id).collect();
    let fronts = listing::fronts(&shell.store, workspace, &ids).await?;
    let place = |Listed { mut build, number, class, requires, images }: Listed| {
        if build.status == Status::Pending {
            let front = fronts.iter().find(|front| Some(front.class) == class);
            let needs = Needs::of(&requires, images.iter().map(String::as_str));
            let head = front.map(|front| Seconds(u32::try_from(front.head_seconds).unwrap_or(0)));
            build.position = Some(front.map_or(0, |front| position(&front.numbers, number)));
            build.waiting_for = Some(waiting_for(standing.plan, standing.usage, head, &needs, &able));
        }
        build
    };
    Ok(listed.into_iter().map(place).collect())
}

/// How many builds are ahead of `number`, as far as the front of the queue shows them. Its numbers rise.
fn position(front: &[i64], number: i64) -> u32 {
    u32::try_from(front.partition_point(|ahead| *ahead < number)).unwrap_or(u32::MAX)
}

/// Decides what a pending build of a workspace waits for. `head` is how long the oldest build of its queue asks to
/// run, which is the next to go.
fn waiting_for(plan: Option<Plan>, usage: Usage, head: Option<Seconds>, needs: &Needs, workers: &[Able]) -> WaitingFor {
    let Some(plan) = plan else { return WaitingFor::Billing };
    if lacks_minutes(plan, usage, head.unwrap_or(Seconds::ZERO)) {
        WaitingFor::Minutes
    } else if usage.running >= plan.running_max {
        WaitingFor::RunningLimit
    } else if workers.iter().any(|worker| needs.covered_by(&worker.isolation, &worker.labels)) {
        WaitingFor::Capacity
    } else {
        WaitingFor::NoWorkerMatches
    }
}

/// Whether minutes are what the next build lacks, however many may run.
fn lacks_minutes(plan: Plan, usage: Usage, head: Seconds) -> bool {
    match reserve(Plan { running_max: u32::MAX, ..plan }, usage, head) {
        Grant::Exhausted | Grant::Wait => true,
        Grant::RunningLimit | Grant::Run(_) => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rules::budget::PreviewLimits;

    const PLAN: Plan = Plan {
        seconds_per_month: Seconds(6000),
        build_seconds_max: Seconds(1800),
        running_max: 1,
        pending_max: 9,
        previews: PreviewLimits { live_max: 4, seconds_max: Seconds(86_400) },
    };

    fn bubblewrap(labels: &[&str]) -> Able {
        Able { isolation: vec!["bubblewrap".into()], labels: labels.iter().map(|label| (*label).to_owned()).collect() }
    }

    fn check(plan: Option<Plan>, usage: Usage, workers: &[Able], expected: WaitingFor) {
        let needs = Needs::of(&["arch=arm64".to_owned()], ["host"]);
        assert_eq!(waiting_for(plan, usage, Some(Seconds(1800)), &needs, workers), expected);
    }

    #[test]
    fn the_workspaces_own_limits_come_before_the_workers() {
        let fits = [bubblewrap(&["arch=arm64"])];
        let reserved = Usage { reserved: Seconds(5000), ..Usage::default() };
        let running = Usage { running: 1, ..Usage::default() };
        check(None, Usage::default(), &fits, WaitingFor::Billing);
        check(Some(PLAN), reserved, &fits, WaitingFor::Minutes);
        check(Some(PLAN), running, &fits, WaitingFor::RunningLimit);
        check(Some(PLAN), Usage { reserved: Seconds(5000), ..running }, &fits, WaitingFor::Minutes);
        check(Some(PLAN), Usage { charged: Seconds(6000), ..running }, &[], WaitingFor::Minutes);
        check(Some(PLAN), Usage::default(), &fits, WaitingFor::Capacity);
    }

    #[test]
    fn a_worker_matches_with_every_label_and_a_back_end_for_every_image() {
        check(Some(PLAN), Usage::default(), &[], WaitingFor::NoWorkerMatches);
        check(Some(PLAN), Usage::default(), &[bubblewrap(&["arch=x86"])], WaitingFor::NoWorkerMatches);
        let docker = Able { isolation: vec!["docker".into()], labels: vec!["arch=arm64".into()] };
        check(Some(PLAN), Usage::default(), &[docker], WaitingFor::NoWorkerMatches);
        check(Some(PLAN), Usage::default(), &[bubblewrap(&["arch=arm64", "x=y"])], WaitingFor::Capacity);
    }

    #[test]
    fn a_position_counts_the_builds_ahead() {
        let front = [3, 5, 9];
        for (number, expected) in [(3, 0), (5, 1), (8, 2), (9, 2), (10, 3)] {
            assert_eq!(position(&front, number), expected);
        }
    }
}
