//! How a worker's report of an end is taken: applied, repeated, or refused (SPEC.md, Per-build worker calls).

use crate::{CancelReason, EndReason, Status};

/// A build as the board knows it when its worker reports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Held {
    /// The build's state.
    pub status: Status,
    /// Why it ended, if it did.
    pub end_reason: Option<EndReason>,
    /// Whether somebody asked for its end.
    pub cancel: Option<CancelReason>,
    /// The `seq` that the board expects next.
    pub next_seq: u64,
    /// Whether it was its worker that ended it.
    pub completed: bool,
}

/// A worker's report.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Report {
    /// A final state.
    pub status: Status,
    /// Why; `None` for success.
    pub end_reason: Option<EndReason>,
    /// The last `seq` the worker sent; 0 for none.
    pub last_seq: u64,
    /// Whether the worker gave up on the chunks that are missing.
    pub logs_lost: bool,
}

/// What becomes of the report.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Decision {
    /// The build ends this way.
    End,
    /// It ended this way already: the same answer again.
    Repeat,
    /// It ended in another way: 409 `build_ended`.
    Ended,
    /// Chunks up to `last_seq` are missing: 409 `logs_missing`.
    LogsMissing {
        /// Where to go on from.
        expected_seq: u64,
    },
    /// The report contradicts itself or the board: 422.
    Refused(Refusal),
}

/// What is wrong with a report.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// `pending` and `running` are not ends.
    NotFinal,
    /// `cancelled` that nobody asked for.
    NobodyCancelled,
    /// The reason belongs to another status, or is one that only the board may give.
    ReasonMismatch,
}

/// Fills in what a report leaves out: for the others than success the plainest reason of that status. A success has none: one that is
/// given is left out rather than refused, since what is refused comes again as `internal`, and the outcome would be lost.
#[must_use]
pub fn reason_or_default(status: Status, reason: Option<EndReason>, cancel: Option<CancelReason>) -> Option<EndReason> {
    match status {
        Status::Pending | Status::Running | Status::Success => None,
        Status::Failed => Some(reason.unwrap_or(EndReason::Internal)),
        Status::TimedOut => Some(reason.unwrap_or(EndReason::Deadline)),
        Status::Cancelled => Some(cancel.map_or(reason.unwrap_or(EndReason::User), EndReason::from)),
    }
}

/// Decides what a worker's report of an end does.
#[must_use]
pub fn complete(held: Held, report: Report) -> Decision {
    if !report.status.is_final() {
        return Decision::Refused(Refusal::NotFinal);
    }
    let reason = reason_or_default(report.status, report.end_reason, held.cancel);
    if held.status.is_final() {
        let same = held.completed && held.status == report.status && held.end_reason == reason;
        return if same { Decision::Repeat } else { Decision::Ended };
    }
    if report.status == Status::Cancelled && held.cancel.is_none() {
        return Decision::Refused(Refusal::NobodyCancelled);
    }
    if reason.is_some_and(|reason| reason.status() != report.status || !reason.is_workers()) {
        return Decision::Refused(Refusal::ReasonMismatch);
    }
    if held.next_seq <= report.last_seq && !report.logs_lost {
        return Decision::LogsMissing { expected_seq: held.next_seq };
    }
    Decision::End
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use proptest::sample::select;

    const RUNNING: Held =
        Held { status: Status::Running, end_reason: None, cancel: None, next_seq: 4, completed: false };
    const SUCCESS: Report = Report { status: Status::Success, end_reason: None, last_seq: 3, logs_lost: false };

    #[test]
    fn a_report_with_all_its_logs_ends_a_running_build() {
        assert_eq!(complete(RUNNING, SUCCESS), Decision::End);
    }

    #[test]
    fn a_report_ahead_of_its_logs_waits_for_them_unless_they_are_given_up() {
        let ahead = Report { last_seq: 4, ..SUCCESS };
        assert_eq!(complete(RUNNING, ahead), Decision::LogsMissing { expected_seq: 4 });
        assert_eq!(complete(RUNNING, Report { logs_lost: true, ..ahead }), Decision::End);
    }

    #[test]
    fn the_same_end_again_is_a_repeat_and_another_is_not() {
        let ended = Held { status: Status::Success, completed: true, ..RUNNING };
        assert_eq!(complete(ended, SUCCESS), Decision::Repeat);
        let failed = Report { status: Status::Failed, end_reason: Some(EndReason::StepFailed), ..SUCCESS };
        assert_eq!(complete(ended, failed), Decision::Ended);
        assert_eq!(complete(Held { completed: false, ..ended }, SUCCESS), Decision::Ended, "ended by somebody else");
    }

    #[test]
    fn cancelled_needs_somebody_who_asked_and_keeps_that_reason() {
        let report = Report { status: Status::Cancelled, ..SUCCESS };
        assert_eq!(complete(RUNNING, report), Decision::Refused(Refusal::NobodyCancelled));
        let asked = Held { cancel: Some(CancelReason::Superseded), ..RUNNING };
        assert_eq!(complete(asked, report), Decision::End);
        let reason = reason_or_default(Status::Cancelled, Some(EndReason::User), asked.cancel);
        assert_eq!(reason, Some(EndReason::Superseded));
    }

    #[test]
    fn a_success_stays_one_whatever_reason_is_given_with_it() {
        for reason in EndReason::ALL.iter().copied() {
            let report = Report { end_reason: Some(reason), ..SUCCESS };
            assert_eq!(complete(RUNNING, report), Decision::End, "{reason}");
            assert_eq!(reason_or_default(Status::Success, report.end_reason, None), None, "{reason}");
            let ended = Held { status: Status::Success, completed: true, ..RUNNING };
            assert_eq!(complete(ended, report), Decision::Repeat, "{reason}");
        }
    }

    proptest! {
        #[test]
        fn whatever_is_reported_a_final_build_never_ends_again(
            held in select(Status::ALL), said in select(Status::ALL), reason in prop::option::of(select(EndReason::ALL)),
            lost in any::<bool>(), completed in any::<bool>(),
        ) {
            prop_assume!(held.is_final());
            let report = Report { status: said, end_reason: reason, last_seq: 0, logs_lost: lost };
            prop_assert_ne!(complete(Held { status: held, completed, ..RUNNING }, report), Decision::End);
        }

        #[test]
        fn what_ends_a_build_fits_its_status(said in select(Status::ALL), reason in prop::option::of(select(EndReason::ALL))) {
            let report = Report { status: said, end_reason: reason, ..SUCCESS };
            if complete(RUNNING, report) == Decision::End {
                let kept = reason_or_default(said, reason, None);
                prop_assert!(said.is_final());
                prop_assert_eq!(kept.map(EndReason::status), (said != Status::Success).then_some(said));
            }
        }
    }
}
