//! What keeps a pending build waiting: the first reason that would keep it even if all others went away.

use protocol::build::WaitingFor;
use rules::Seconds;
use rules::budget::{Grant, Plan, Usage, reserve};
use rules::routing::Needs;
use store::workers::Able;

/// Decides what a pending build of a workspace waits for. `head` is how long the oldest build of its queue asks to
/// run, which is the next to go.
pub(crate) fn waiting_for(
    plan: Option<Plan>,
    usage: Usage,
    head: Option<Seconds>,
    needs: &Needs,
    workers: &[Able],
) -> WaitingFor {
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
}
