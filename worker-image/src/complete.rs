//! Reports a build's end until the board has taken note of it.

use crate::api::{Api, Failure};
use crate::backoff::Backoff;
use protocol::worker::Complete;
use protocol::{Code, EndReason, Status};
use std::time::Duration;
use tracing::{info, warn};
use uuid::Uuid;

/// What became of a report.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reported {
    /// The board took note.
    Yes,
    /// The build is not ours any more.
    NotOurs,
    /// The board does not know our token, so nobody was told.
    TokenRefused,
    /// The board takes no report of ours; the reaper will end the build.
    Refused,
}

/// Reports `end` until there is an answer. A report that is refused is sent again as `internal`.
pub async fn report(api: &Api, build: Uuid, mut end: Complete) -> Reported {
    let mut backoff = Backoff::new(Duration::from_millis(250), Duration::from_secs(10));
    loop {
        match api.complete(build, &end).await {
            Ok(completed) => {
                let charged = completed.charged_seconds;
                info!(build.id = %build, build.status = %completed.status, charged.seconds = charged, "build ended");
                return Reported::Yes;
            }
            Err(Failure::Again { after, why }) => {
                warn!(build.id = %build, why, "end not reported yet");
                tokio::time::sleep(backoff.next_wait(after)).await;
            }
            Err(Failure::NotOurs { code: Code::Unauthorized }) => {
                warn!(build.id = %build, "the board does not know this worker's token, so the end is not reported");
                return Reported::TokenRefused;
            }
            Err(Failure::NotOurs { code }) => {
                warn!(build.id = %build, code = code.as_str(), "the build ended without us");
                return Reported::NotOurs;
            }
            Err(Failure::Resync { .. }) if !end.logs_lost => end.logs_lost = true,
            Err(Failure::Resync { .. }) => return Reported::Refused,
            Err(Failure::Refused { code, detail }) => {
                warn!(build.id = %build, code = code.as_str(), detail, "the board refused the report");
                if end.end_reason == Some(EndReason::Internal) {
                    return Reported::Refused;
                }
                end = as_internal(&end, &detail);
            }
        }
    }
}

/// The plainest report that there is of the same build.
fn as_internal(end: &Complete, detail: &str) -> Complete {
    let said = end.end_reason.map_or(end.status.as_str(), EndReason::as_str);
    Complete {
        status: Status::Failed,
        end_reason: Some(EndReason::Internal),
        error_message: Some(format!("the board refused the report {said:?}: {}", short(detail))),
        commit: None,
        ran_ms: end.ran_ms,
        last_seq: end.last_seq,
        logs_lost: end.logs_lost,
        steps: Vec::new(),
    }
}

fn short(detail: &str) -> &str {
    &detail[..detail.floor_char_boundary(500)]
}
