//! Whose report on a build's steps is taken, and which: one per build, from the runner that fetched its job, while the build runs.

use crate::Status;

/// A build that was claimed, as the board knows it when a report on it comes. `F` is what fetchers call themselves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Claimed<F> {
    /// Its state.
    pub status: Status,
    /// Who fetched its job.
    pub fetched_by: Option<F>,
    /// What was reported on it before.
    pub before: Option<Before>,
}

/// A report that is stored, beside the one that comes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Before {
    /// It says the same.
    Same,
    /// It says something else.
    Other,
}

/// What becomes of a report.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Decision {
    /// It is stored.
    Store,
    /// It is stored already.
    Repeat,
    /// The build has ended: nobody waits for a report any more.
    Ended,
    /// It does not come from the runner that fetched the job.
    Stranger,
    /// That runner has reported something else.
    Conflict,
}

/// Decides on a report that `fetcher` makes. Its answer may be lost, and the worker may end the build before the repeat comes: a runner that
/// says what is stored is told so, whenever it does. For the rest, what can't change any more is said first.
///
/// It does not matter whether the lease has lapsed. If it is renewed, the worker needs the report; if not, nobody reads it.
#[must_use]
pub fn report<F: PartialEq>(build: &Claimed<F>, fetcher: &F) -> Decision {
    let is_runner = build.fetched_by.as_ref() == Some(fetcher);
    match build.before {
        Some(Before::Same) if is_runner => Decision::Repeat,
        _ if build.status != Status::Running => Decision::Ended,
        _ if !is_runner => Decision::Stranger,
        Some(Before::Same | Before::Other) => Decision::Conflict,
        None => Decision::Store,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FETCHED: Claimed<u8> = Claimed { status: Status::Running, fetched_by: Some(1), before: None };

    #[test]
    fn the_runner_that_fetched_the_job_reports_once_and_may_say_so_again() {
        assert_eq!(report(&FETCHED, &1), Decision::Store);
        assert_eq!(report(&Claimed { before: Some(Before::Same), ..FETCHED }, &1), Decision::Repeat);
        assert_eq!(report(&Claimed { before: Some(Before::Other), ..FETCHED }, &1), Decision::Conflict);
    }

    #[test]
    fn nobody_else_reports_whatever_they_say() {
        for before in [None, Some(Before::Same), Some(Before::Other)] {
            assert_eq!(report(&Claimed { before, ..FETCHED }, &2), Decision::Stranger);
            assert_eq!(report(&Claimed { before, fetched_by: None, ..FETCHED }, &1), Decision::Stranger);
        }
    }

    #[test]
    fn a_build_that_has_ended_takes_no_report_but_knows_the_one_it_has() {
        let ended = Claimed { status: Status::Failed, ..FETCHED };
        assert_eq!(report(&ended, &1), Decision::Ended);
        assert_eq!(report(&Claimed { before: Some(Before::Other), ..ended }, &1), Decision::Ended);
        assert_eq!(report(&Claimed { before: Some(Before::Same), ..ended }, &1), Decision::Repeat);
        assert_eq!(report(&Claimed { before: Some(Before::Same), ..ended }, &2), Decision::Ended);
    }

    #[test]
    fn of_all_there_can_be_only_the_first_of_the_runner_while_the_build_runs_is_stored() {
        for status in Status::ALL.iter().copied() {
            for fetched_by in [None, Some(1), Some(2)] {
                for before in [None, Some(Before::Same), Some(Before::Other)] {
                    let build = Claimed { status, fetched_by, before };
                    let first = status == Status::Running && fetched_by == Some(1) && before.is_none();
                    assert_eq!(report(&build, &1) == Decision::Store, first, "{build:?}");
                }
            }
        }
    }
}
