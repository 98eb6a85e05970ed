//! Says how the build went to the worker that holds it, by way of the board.

use super::End;
use crate::api::{Api, Failure};
use crate::backoff::Backoff;
use crate::outcome::Fail;
use crate::stop::Why;
use protocol::runner::{Outcome, Report};
use std::time::Duration;
use tokio::time::sleep;
use tracing::{info, warn};
use uuid::Uuid;

/// How it went, in `report`'s words. Nobody waits for those of a build that is not ours any more.
pub(super) fn outcome(fail: Option<&Fail>, report: Report, masked: impl Fn(&str) -> String) -> Option<Report> {
    let Some(fail) = fail else {
        return Some(report);
    };
    let told = fail.outcome()?;
    Some(Report {
        outcome: if is_stopped(fail) { Outcome::Stopped } else { Outcome::Failed },
        end_reason: Some(told.reason),
        error_message: Some(masked(&told.message)),
        ..report
    })
}

/// Whether it was told to stop, rather than found a reason by itself.
fn is_stopped(fail: &Fail) -> bool {
    match fail {
        Fail::Stopped(Why::Cancel(_) | Why::Shutdown) => true,
        Fail::Stopped(Why::Lost | Why::Fenced | Why::NetworkLost | Why::Deadline | Why::StepTimeout | Why::Silent)
        | Fail::Clone(_)
        | Fail::Image(_)
        | Fail::NeverStarted(_)
        | Fail::Step { .. }
        | Fail::Limit(_)
        | Fail::Internal(_)
        | Fail::HostLost(_)
        | Fail::Told(..) => false,
    }
}

/// Who reports, and on what.
#[derive(Clone, Copy)]
pub(super) struct Reporter<'a> {
    pub(super) api: &'a Api,
    pub(super) build: Uuid,
    pub(super) log_token: &'a str,
    pub(super) fetch_id: Uuid,
}

impl Reporter<'_> {
    /// Says it until the board has heard it: it knows a report that it has.
    pub(super) async fn post(self, report: &Report) -> End {
        let mut backoff = Backoff::new(Duration::from_millis(250), Duration::from_secs(5));
        loop {
            match self.api.report(self.build, self.log_token, self.fetch_id, report).await {
                Ok(()) => {
                    info!(build.id = %self.build, outcome = ?report.outcome, "reported");
                    return End::Reported;
                }
                Err(Failure::Again { after, why }) => {
                    warn!(build.id = %self.build, why, "not reported yet");
                    sleep(backoff.next_wait(after)).await;
                }
                Err(Failure::NotOurs { code }) => {
                    warn!(build.id = %self.build, code = code.as_str(), "the build ended without this report");
                    return End::Lost;
                }
                Err(Failure::Refused { code, detail }) => {
                    return End::Unreported(format!("{}: {detail}", code.as_str()));
                }
                Err(Failure::Resync { .. }) => return End::Unreported("an answer to another call".into()),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use protocol::{CancelReason, EndReason};

    fn check(fail: &Fail, outcome: Outcome, reason: EndReason) {
        let report = super::super::build::success(&[]);
        let report = super::outcome(Some(fail), report, str::to_uppercase).unwrap();
        assert_eq!((report.outcome, report.end_reason), (outcome, Some(reason)));
        assert_eq!(report.error_message, Some(fail.message().to_uppercase()), "masked");
    }

    #[test]
    fn what_stopped_it_from_outside_is_told_apart_from_what_it_found_by_itself() {
        check(&Fail::Stopped(Why::Cancel(CancelReason::User)), Outcome::Stopped, EndReason::User);
        check(&Fail::Stopped(Why::Shutdown), Outcome::Stopped, EndReason::WorkerShutdown);
        check(&Fail::Stopped(Why::Deadline), Outcome::Failed, EndReason::Deadline);
        check(&Fail::Step { name: "test".into(), code: 1 }, Outcome::Failed, EndReason::StepFailed);
        assert_eq!(
            super::outcome(Some(&Fail::Stopped(Why::Lost)), super::super::build::success(&[]), str::to_owned),
            None
        );
    }
}
