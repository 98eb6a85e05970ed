//! Who gets a build's job by its log token: one fetcher per claim, while the claim holds.

use crate::{Status, Timestamp};

/// A build that was claimed, as the board knows it when its job is asked for. `F` is what fetchers call themselves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Claimed<F> {
    /// Its state.
    pub status: Status,
    /// Until when its worker holds it.
    pub lease_expires_at: Timestamp,
    /// Who fetched its job before.
    pub fetched_by: Option<F>,
}

/// What a fetcher is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Decision {
    /// The job, now or again.
    Job,
    /// The build has ended: nobody gets its job any more.
    Ended,
    /// Another fetcher has it.
    Taken,
    /// The lease has lapsed. It may be renewed or the build be lost: nobody knows yet, so nobody gets the job yet.
    Lapsed,
}

/// Decides whether `fetcher` gets a build's job. An answer may be lost, so whoever has the job gets it again; nobody else does, however
/// they came by the token. What can't change any more is said first.
#[must_use]
pub fn fetch<F: PartialEq>(build: &Claimed<F>, fetcher: &F, now: Timestamp) -> Decision {
    if build.status != Status::Running {
        Decision::Ended
    } else if build.fetched_by.as_ref().is_some_and(|known| known != fetcher) {
        Decision::Taken
    } else if build.lease_expires_at <= now {
        Decision::Lapsed
    } else {
        Decision::Job
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use proptest::sample::select;

    const HELD: Claimed<u8> =
        Claimed { status: Status::Running, lease_expires_at: Timestamp(60_000), fetched_by: None };

    fn asked(build: Claimed<u8>, fetcher: u8) -> Decision {
        fetch(&build, &fetcher, Timestamp(59_999))
    }

    #[test]
    fn the_first_fetcher_gets_the_job_and_gets_it_again() {
        assert_eq!(asked(HELD, 1), Decision::Job);
        assert_eq!(asked(Claimed { fetched_by: Some(1), ..HELD }, 1), Decision::Job);
    }

    #[test]
    fn a_second_fetcher_gets_nothing() {
        assert_eq!(asked(Claimed { fetched_by: Some(1), ..HELD }, 2), Decision::Taken);
    }

    #[test]
    fn a_lease_lapses_at_its_end_and_not_before() {
        let at = |now| fetch(&HELD, &1, Timestamp(now));
        assert_eq!((at(59_999), at(60_000)), (Decision::Job, Decision::Lapsed));
    }

    #[test]
    fn an_end_is_said_before_all_else_and_another_fetcher_before_a_lapse() {
        let taken = Claimed { fetched_by: Some(1), ..HELD };
        let late = |build| fetch(&build, &2, Timestamp(60_000));
        assert_eq!(late(taken), Decision::Taken);
        assert_eq!(late(Claimed { status: Status::Failed, ..taken }), Decision::Ended);
    }

    proptest! {
        #[test]
        fn no_two_fetchers_get_one_job_and_none_gets_that_of_a_build_that_does_not_run(
            status in select(Status::ALL), left_ms in -5_i64..5, before in prop::option::of(0_u8..3), one in 0_u8..3, two in 0_u8..3,
        ) {
            let build = Claimed { status, lease_expires_at: Timestamp(left_ms), fetched_by: before };
            if fetch(&build, &one, Timestamp(0)) == Decision::Job {
                prop_assert!(status == Status::Running && left_ms > 0 && before.is_none_or(|known| known == one));
                let after = Claimed { fetched_by: Some(one), ..build };
                prop_assert_eq!(fetch(&after, &two, Timestamp(0)) == Decision::Job, one == two);
            }
        }
    }
}
