//! What keeps a pending build waiting, and how many builds are ahead of it (SPEC.md, 2).

use crate::Seconds;
use crate::budget::{Grant, Plan, Usage, reserve};
use crate::status::words;
use serde::{Deserialize, Deserializer};

words! {
    /// What keeps a pending build waiting: the first reason that would keep it even if all others went away.
    WaitingFor {
        /// All workers are busy, or builds that came before go first.
        Capacity = "capacity",
        /// As many of the workspace's builds run as its plan allows.
        RunningLimit = "running_limit",
        /// What running builds have reserved leaves too few minutes.
        Minutes = "minutes",
        /// The workspace's plan can't be read.
        Billing = "billing",
        /// No worker that was seen of late can take it.
        NoWorkerMatches = "no_worker_matches",
    }
}

/// An unknown word reads as `capacity`, which says the least: the command and the board are upgraded apart.
impl<'de> Deserialize<'de> for WaitingFor {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        Ok(Self::parse(&String::deserialize(from)?).unwrap_or(Self::Capacity))
    }
}

/// Decides what a pending build of a workspace waits for. `head`: how long the oldest build of its queue asks to run, which is
/// the next to go; `matched`: a worker that was seen of late can take it.
#[must_use]
pub fn waiting_for(plan: Option<Plan>, usage: Usage, head: Seconds, matched: bool) -> WaitingFor {
    let Some(plan) = plan else { return WaitingFor::Billing };
    if lacks_minutes(plan, usage, head) {
        WaitingFor::Minutes
    } else if usage.running >= plan.running_max {
        WaitingFor::RunningLimit
    } else if matched {
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

/// How many builds are ahead of the one that has `number`, as far as the front of its queue shows them. Its numbers rise.
#[must_use]
pub fn position(front: &[i64], number: i64) -> u32 {
    u32::try_from(front.partition_point(|ahead| *ahead < number)).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::budget::PreviewLimits;

    const PLAN: Plan = Plan {
        seconds_per_month: Seconds(6000),
        build_seconds_max: Seconds(1800),
        running_max: 1,
        pending_max: 9,
        previews: PreviewLimits { live_max: 4, seconds_max: Seconds(86_400) },
    };

    fn check(plan: Option<Plan>, usage: Usage, matched: bool, expected: WaitingFor) {
        assert_eq!(waiting_for(plan, usage, Seconds(1800), matched), expected);
    }

    #[test]
    fn the_workspaces_own_limits_come_before_the_workers() {
        let reserved = Usage { reserved: Seconds(5000), ..Usage::default() };
        let running = Usage { running: 1, ..Usage::default() };
        check(None, Usage::default(), true, WaitingFor::Billing);
        check(Some(PLAN), reserved, true, WaitingFor::Minutes);
        check(Some(PLAN), running, true, WaitingFor::RunningLimit);
        check(Some(PLAN), Usage { reserved: Seconds(5000), ..running }, true, WaitingFor::Minutes);
        check(Some(PLAN), Usage { charged: Seconds(6000), ..running }, false, WaitingFor::Minutes);
        check(Some(PLAN), Usage::default(), true, WaitingFor::Capacity);
        check(Some(PLAN), Usage::default(), false, WaitingFor::NoWorkerMatches);
    }

    #[test]
    fn a_word_of_a_newer_release_reads_as_the_plainest() {
        fn read(word: &str) -> serde::de::value::StrDeserializer<'_, serde::de::value::Error> {
            serde::de::value::StrDeserializer::new(word)
        }
        assert_eq!(WaitingFor::deserialize(read("minutes")), Ok(WaitingFor::Minutes));
        assert_eq!(WaitingFor::deserialize(read("approval")), Ok(WaitingFor::Capacity));
    }

    #[test]
    fn a_position_counts_the_builds_ahead() {
        let front = [3, 5, 9];
        for (number, expected) in [(3, 0), (5, 1), (8, 2), (9, 2), (10, 3)] {
            assert_eq!(position(&front, number), expected);
        }
    }
}
