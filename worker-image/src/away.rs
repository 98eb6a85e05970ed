//! A build whose course is run away from here, by a runner in a task of its own: what becomes of it, and what the board is to be told.

use crate::api::{Api, Failure};
use crate::backoff::Backoff;
use crate::clock::{Boot, millis};
use crate::isolation::ecs::Ecs;
use crate::isolation::ecs::ending::ending;
use crate::isolation::ecs::errand::Over;
use crate::lease::Lease;
use crate::outcome::Fail;
use crate::stop::{Stop, Why};
use protocol::Status;
use protocol::runner::Report;
use protocol::worker::{Complete, Job};
use std::time::Duration;
use tokio::time::{sleep, timeout};
use tracing::warn;

/// How such a build ended.
#[derive(Debug)]
pub struct Afar {
    /// Whether it succeeded, or why not.
    pub ended: Result<(), Fail>,
    /// What the board is to be told of a success.
    pub complete: Complete,
}

/// Has `job` run in a task until that is over, and asks the board for what its runner reported, for no longer than `patience`.
pub async fn see_through(
    tasks: &Ecs,
    api: &Api,
    (job, lease, stop): (&Job, &Lease, &Stop),
    patience: Duration,
) -> Afar {
    match tasks.run(job, lease, stop).await {
        Ok(over) => {
            let reported = timeout(patience, reported(api, job, stop)).await.ok().flatten();
            let ended = ending(stop.why(), over.seen.as_ref(), reported.as_ref());
            Afar { ended, complete: complete(lease.sent_at, Some(&over), reported, Boot::now()) }
        }
        Err(fail) => never_started(fail, lease.sent_at),
    }
}

/// A build that had no task, or of whose task nobody knows any more.
#[must_use]
pub fn never_started(fail: Fail, sent_at: Boot) -> Afar {
    Afar { ended: Err(fail), complete: complete(sent_at, None, None, Boot::now()) }
}

async fn reported(api: &Api, job: &Job, stop: &Stop) -> Option<Report> {
    let mut backoff = Backoff::new(Duration::from_millis(250), Duration::from_secs(5));
    loop {
        match api.reported(job.build_id).await {
            Ok(reported) => return reported,
            Err(Failure::Again { after, .. }) => sleep(backoff.next_wait(after)).await,
            Err(Failure::NotOurs { .. }) => {
                stop.ask(Why::Lost);
                return None;
            }
            Err(failure @ (Failure::Resync { .. } | Failure::Refused { .. })) => {
                warn!(build.id = %job.build_id, ?failure, "the runner's report can't be had");
                return None;
            }
        }
    }
}

/// What a success is completed with. Without a report nobody knows how far the log came.
fn complete(sent_at: Boot, over: Option<&Over>, report: Option<Report>, now: Boot) -> Complete {
    let tidied_ms = report.as_ref().and_then(|report| report.tidied_ms).unwrap_or(0);
    let ran_ms = ran_ms(sent_at, over, now).saturating_sub(tidied_ms);
    let (commit, last_seq, logs_lost, steps) = match report {
        Some(report) => (report.commit, report.last_seq, report.logs_lost, report.steps),
        None => (None, 0, true, Vec::new()),
    };
    Complete {
        status: Status::Success,
        end_reason: None,
        error_message: None,
        commit,
        ran_ms,
        last_seq,
        logs_lost,
        steps,
    }
}

/// From the claim until RunTask by this host's clock, and from there until the containers had ended by ECS's: what either clock says of
/// the other's time counts for nothing. Never more than this host saw.
fn ran_ms(sent_at: Boot, over: Option<&Over>, now: Boot) -> u64 {
    let seen_ms = millis(now.since(sent_at));
    let by_ecs = over.and_then(|over| {
        let seen = over.seen.as_ref()?;
        let lived_ms = u64::try_from(seen.ended_at_ms?.checked_sub(seen.created_at_ms?)?).ok()?;
        Some(millis(over.asked_at.since(sent_at)).saturating_add(lived_ms))
    });
    by_ecs.map_or(seen_ms, |by_ecs| by_ecs.min(seen_ms))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::isolation::ecs::calls::Seen;
    use protocol::runner::Outcome;

    fn over(created_at_ms: Option<i64>, ended_at_ms: Option<i64>) -> Over {
        Over { asked_at: Boot(3000), seen: Some(Seen { created_at_ms, ended_at_ms, ..Seen::default() }) }
    }

    fn check(over: Option<&Over>, expected: u64) {
        assert_eq!(ran_ms(Boot(1000), over, Boot(101_000)), expected, "{over:?}");
    }

    #[test]
    fn a_build_ran_until_its_containers_had_ended_by_the_clock_that_saw_each_part() {
        check(Some(&over(Some(9_000_000), Some(9_050_000))), 52_000);
    }

    #[test]
    fn what_ecs_does_not_say_and_what_can_not_be_is_what_this_host_saw() {
        check(Some(&over(Some(9_000_000), None)), 100_000);
        check(Some(&over(Some(9_000_000), Some(8_000_000))), 100_000);
        check(Some(&over(Some(0), Some(i64::MAX))), 100_000);
        check(Some(&Over { asked_at: Boot(3000), seen: None }), 100_000);
        check(None, 100_000);
    }

    #[test]
    fn tidying_up_counts_for_nothing_and_the_report_is_taken_as_it_is() {
        let report = Report {
            outcome: Outcome::Stopped,
            end_reason: None,
            error_message: None,
            commit: Some("c".repeat(40)),
            steps: Vec::new(),
            last_seq: 7,
            logs_lost: false,
            tidied_ms: Some(2000),
        };
        let told = complete(Boot(1000), Some(&over(Some(0), Some(50_000))), Some(report), Boot(101_000));
        assert_eq!((told.ran_ms, told.last_seq, told.logs_lost, told.commit), (50_000, 7, false, Some("c".repeat(40))));
        let untold = complete(Boot(1000), None, None, Boot(101_000));
        assert_eq!((untold.last_seq, untold.logs_lost), (0, true));
    }
}
