//! How a build ended that ran in a task of its own: what its runner reports, what ECS saw and what this worker wanted, put together.

use super::calls::{Room, Seen};
use super::definition::{CLONE, RUNNER};
use super::plain::plain;
use crate::isolation::Exceeded;
use crate::outcome::Fail;
use crate::stop::Why;
use protocol::EndReason;
use protocol::runner::{Outcome, Report};

/// The runner's exit codes.
mod code {
    /// It was told something that can't be.
    pub(super) const ENVIRONMENT: i32 = 64;
    /// It got no job.
    pub(super) const NO_JOB: i32 = 69;
    /// The board took the build away, or did not answer until the fence.
    pub(super) const FENCED: i32 = 75;
    /// It could not report.
    pub(super) const UNREPORTED: i32 = 76;
}

/// How the build ended; `own` is why this worker wanted it to stop, if it did.
///
/// What the runner says of the steps stands, unless it was told to stop: then who told it knows why. Without its word, ECS's counts.
///
/// # Errors
///
/// Why it did not succeed.
pub fn ending(own: Option<Why>, seen: Option<&Seen>, report: Option<&Report>) -> Result<(), Fail> {
    match (own, report) {
        (Some(Why::Lost), _) => Err(Fail::Stopped(Why::Lost)),
        (_, Some(report)) if report.outcome == Outcome::Success => Ok(()),
        (_, Some(report)) if report.outcome == Outcome::Failed => Err(failed(report, seen)),
        (Some(why), _) => Err(Fail::Stopped(why)),
        (None, Some(report)) => Err(stopped(report, seen)),
        (None, None) => Err(unreported(seen)),
    }
}

/// A step's last process may have been ended by the kernel, which the runner can't see in each case, but ECS says.
fn failed(report: &Report, seen: Option<&Seen>) -> Fail {
    let reason = report.end_reason.filter(|reason| reason.is_workers()).unwrap_or(EndReason::Internal);
    if reason == EndReason::StepFailed && seen.is_some_and(ran_out_of_memory) {
        return Fail::Limit(Exceeded::Memory);
    }
    Fail::Told(reason, report.error_message.clone().unwrap_or_default())
}

/// Somebody else had it stopped: ECS, a person who may, or the board, whose word reached the runner first.
fn stopped(report: &Report, seen: Option<&Seen>) -> Fail {
    let by_host = seen.and_then(host_lost);
    let cancelled = report.end_reason.filter(|reason| matches!(reason, EndReason::User | EndReason::Superseded));
    let said = |reason| Fail::Told(reason, report.error_message.clone().unwrap_or_default());
    by_host
        .or_else(|| cancelled.map(said))
        .unwrap_or_else(|| Fail::Internal(format!("its task was stopped: {}", why(seen))))
}

fn unreported(seen: Option<&Seen>) -> Fail {
    let Some(seen) = seen else {
        return Fail::Internal("ECS does not know the build's task any more".into());
    };
    if let Some(lost) = host_lost(seen) {
        return lost;
    }
    if let Some(unpulled) = unpulled(seen) {
        return unpulled;
    }
    if seen.stop_code.as_deref() == Some("TaskFailedToStart") {
        return Fail::NeverStarted(why(Some(seen)));
    }
    if ran_out_of_memory(seen) {
        return Fail::Limit(Exceeded::Memory);
    }
    match seen.room(RUNNER).and_then(|runner| runner.exit_code) {
        Some(code::ENVIRONMENT) => Fail::NeverStarted("the runner can't make out what it was told".into()),
        Some(code::NO_JOB) => Fail::NeverStarted("the runner got no job from the board".into()),
        Some(code::FENCED) => Fail::Stopped(Why::Fenced),
        Some(code::UNREPORTED) => Fail::Internal("the runner could not tell the board how the steps went".into()),
        Some(code) => Fail::Internal(format!("the runner ended with exit code {code} and without a report")),
        None => Fail::Internal(format!("the build's task ended without a report: {}", why(Some(seen)))),
    }
}

/// The machine below it was taken away.
fn host_lost(seen: &Seen) -> Option<Fail> {
    let by_code = matches!(seen.stop_code.as_deref(), Some("SpotInterruption" | "TerminationNotice"));
    let by_word = seen.stopped_reason.as_deref().is_some_and(|reason| reason.starts_with("Host EC2"));
    (by_code || by_word).then(|| Fail::HostLost(why(Some(seen))))
}

/// An image that can't be had: a step's is its pipeline's trouble, our own is ours.
fn unpulled(seen: &Seen) -> Option<Fail> {
    let is_pull = |reason: &&str| reason.starts_with("CannotPull");
    let said = |room: &Room| room.reason.as_deref().filter(is_pull).map(plain);
    let of = |is_ours: bool| {
        let rooms = seen.containers.iter().filter(move |room| (room.name == RUNNER || room.name == CLONE) == is_ours);
        rooms.filter_map(said).next()
    };
    let by_task = || seen.stopped_reason.as_deref().filter(is_pull).map(|why| Fail::Image(plain(why)));
    of(true).map(Fail::NeverStarted).or_else(|| of(false).map(Fail::Image)).or_else(by_task)
}

fn ran_out_of_memory(seen: &Seen) -> bool {
    let is_memory = |reason: &str| reason.starts_with("OutOfMemory");
    seen.containers.iter().filter_map(|room| room.reason.as_deref()).any(is_memory)
}

fn why(seen: Option<&Seen>) -> String {
    let said = seen.and_then(|seen| seen.stopped_reason.clone().or_else(|| seen.stop_code.clone()));
    said.map_or_else(|| "ECS does not say why".into(), |said| plain(&said))
}

#[cfg(test)]
mod tests {
    use super::*;
    use protocol::CancelReason;

    /// A task that stopped with this code and reason, whose containers ended so.
    fn seen(stop_code: &str, reason: &str, rooms: &[(&str, Option<i32>, &str)]) -> Seen {
        let room = |(name, exit_code, reason): &(&str, Option<i32>, &str)| Room {
            name: (*name).into(),
            exit_code: *exit_code,
            reason: Some((*reason).to_owned()).filter(|reason| !reason.is_empty()),
        };
        Seen {
            status: "STOPPED".into(),
            stop_code: Some(stop_code.into()),
            stopped_reason: Some(reason.into()),
            containers: rooms.iter().map(room).collect(),
            ..Seen::default()
        }
    }

    fn exited(code: i32) -> Seen {
        seen("EssentialContainerExited", "Essential container in task exited", &[("runner", Some(code), "")])
    }

    fn report(outcome: Outcome, end_reason: Option<EndReason>) -> Report {
        Report {
            outcome,
            end_reason,
            error_message: Some("as the runner says".into()),
            commit: None,
            steps: Vec::new(),
            last_seq: 0,
            logs_lost: false,
            tidied_ms: None,
        }
    }

    fn check(own: Option<Why>, seen: Option<&Seen>, report: Option<&Report>, reason: Option<EndReason>) {
        let ended = ending(own, seen, report);
        let told = ended.as_ref().err().and_then(Fail::outcome).map(|outcome| outcome.reason);
        assert_eq!(told, reason, "{own:?} {seen:?} {report:?}: {ended:?}");
        assert_eq!(ended.is_ok(), reason.is_none() && own != Some(Why::Lost), "{ended:?}");
    }

    #[test]
    fn without_a_report_ecs_says_why() {
        let pull = "CannotPullContainerError: pull image manifest has been retried 1 time(s): not found";
        for (seen, reason) in [
            (seen("TaskFailedToStart", pull, &[("runner", None, ""), ("step-1", None, "")]), EndReason::ImageFailed),
            (seen("TaskFailedToStart", "Task failed to start", &[("step-2", None, pull)]), EndReason::ImageFailed),
            (seen("TaskFailedToStart", pull, &[("runner", None, pull)]), EndReason::NeverStarted),
            (
                seen("TaskFailedToStart", pull, &[("clone", None, pull), ("step-1", None, pull)]),
                EndReason::NeverStarted,
            ),
            (
                seen("TaskFailedToStart", "Timeout waiting for network interface provisioning to complete.", &[]),
                EndReason::NeverStarted,
            ),
            (seen("TaskFailedToStart", "ResourceInitializationError: failed", &[]), EndReason::NeverStarted),
            (
                seen("SpotInterruption", "Your Spot Task was interrupted.", &[("runner", Some(137), "")]),
                EndReason::HostLost,
            ),
            (seen("TerminationNotice", "", &[]), EndReason::HostLost),
            (seen("", "Host EC2 (instance i-0123) terminated.", &[]), EndReason::HostLost),
            (
                seen(
                    "EssentialContainerExited",
                    "Essential container in task exited",
                    &[("runner", Some(137), "OutOfMemoryError: Container killed due to memory usage")],
                ),
                EndReason::OutOfMemory,
            ),
            (exited(0), EndReason::Internal),
            (exited(1), EndReason::Internal),
            (exited(64), EndReason::NeverStarted),
            (exited(69), EndReason::NeverStarted),
            (exited(75), EndReason::Internal),
            (exited(76), EndReason::Internal),
            (exited(137), EndReason::Internal),
            (seen("UserInitiated", "somebody", &[("runner", None, "")]), EndReason::Internal),
        ] {
            check(None, Some(&seen), None, Some(reason));
        }
        check(None, None, None, Some(EndReason::Internal));
    }

    #[test]
    fn what_the_worker_wanted_goes_before_what_ecs_says() {
        for (why, reason) in [
            (Why::Deadline, EndReason::Deadline),
            (Why::Cancel(CancelReason::User), EndReason::User),
            (Why::Cancel(CancelReason::Superseded), EndReason::Superseded),
            (Why::Shutdown, EndReason::WorkerShutdown),
            (Why::Fenced, EndReason::Internal),
        ] {
            let stopped = report(Outcome::Stopped, Some(EndReason::WorkerShutdown));
            for seen in [seen("UserInitiated", "deadline", &[]), seen("SpotInterruption", "", &[]), exited(137)] {
                check(Some(why), Some(&seen), None, Some(reason));
                check(Some(why), Some(&seen), Some(&stopped), Some(reason));
            }
            check(Some(why), None, None, Some(reason));
        }
    }

    #[test]
    fn steps_that_ended_before_the_stop_reached_them_have_ended() {
        check(Some(Why::Shutdown), Some(&exited(0)), Some(&report(Outcome::Success, None)), None);
        let failed = report(Outcome::Failed, Some(EndReason::StepFailed));
        check(Some(Why::Deadline), Some(&exited(0)), Some(&failed), Some(EndReason::StepFailed));
    }

    #[test]
    fn a_lost_build_is_lost_whatever_became_of_it() {
        check(Some(Why::Lost), Some(&exited(0)), Some(&report(Outcome::Success, None)), None);
    }

    #[test]
    fn what_the_runner_reports_stands() {
        check(None, Some(&exited(0)), Some(&report(Outcome::Success, None)), None);
        for reason in [EndReason::StepFailed, EndReason::CloneFailed, EndReason::DiskFull, EndReason::StepTimeout] {
            check(None, Some(&exited(0)), Some(&report(Outcome::Failed, Some(reason))), Some(reason));
        }
        check(None, Some(&exited(0)), Some(&report(Outcome::Failed, None)), Some(EndReason::Internal));
        // Not a worker's to say.
        let odd = report(Outcome::Failed, Some(EndReason::WorkerLost));
        check(None, Some(&exited(0)), Some(&odd), Some(EndReason::Internal));
    }

    #[test]
    fn a_step_that_the_kernel_ended_has_run_out_of_memory() {
        let killed =
            [("runner", Some(0), ""), ("step-1", Some(137), "OutOfMemoryError: Container killed due to memory usage")];
        let seen = seen("EssentialContainerExited", "", &killed);
        let failed = report(Outcome::Failed, Some(EndReason::StepFailed));
        check(None, Some(&seen), Some(&failed), Some(EndReason::OutOfMemory));
        check(None, Some(&seen), Some(&report(Outcome::Success, None)), None);
    }

    #[test]
    fn a_stop_that_was_not_this_workers_is_the_hosts_or_the_boards_or_nobody_knows() {
        let shutdown = report(Outcome::Stopped, Some(EndReason::WorkerShutdown));
        let cancelled = report(Outcome::Stopped, Some(EndReason::User));
        check(None, Some(&seen("SpotInterruption", "", &[])), Some(&shutdown), Some(EndReason::HostLost));
        check(None, Some(&exited(0)), Some(&cancelled), Some(EndReason::User));
        check(None, Some(&seen("UserInitiated", "by hand", &[])), Some(&shutdown), Some(EndReason::Internal));
    }
}
