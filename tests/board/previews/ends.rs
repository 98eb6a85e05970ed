//! The ends that make previews, and the jobs that say what a preview is.

use super::{board, holds_together, pipeline};
use crate::Board;
use edge::WorkerToken;
use protocol::worker::Complete;
use serde_json::{Value, json};
use store::endings::{self, Reported};
use uuid::Uuid;

/// Ends builds by one call of the database, as their workers say.
async fn end(board: &Board, reports: &[(Uuid, &str)]) {
    let token = WorkerToken::of(&board.worker);
    let said = |status: &str| serde_json::from_value(json!({ "status": status, "ran_ms": 1 })).expect("a report");
    let completes: Vec<Complete> = reports.iter().map(|(_, status)| said(status)).collect();
    let reported: Vec<_> = reports
        .iter()
        .zip(&completes)
        .map(|((build, status), report)| Reported {
            build: *build,
            token: (&token.id, &token.digest),
            report,
            reason: (*status == "failed").then_some(rules::EndReason::StepFailed),
        })
        .collect();
    let ended = endings::complete(&board.shell.store, &reported).await.expect("the database answers");
    assert_eq!(ended.len(), reports.len());
}

/// The builds that have a preview, in their order.
async fn previewed(board: &Board, builds: &[Uuid]) -> Vec<bool> {
    let mut found = Vec::new();
    for build in builds {
        found.push(board.number(&format!("select count(*) from previews where build_id = '{build}'")).await == 1);
    }
    found
}

#[tokio::test]
async fn a_success_makes_its_preview_by_itself_and_among_others() {
    let board = board().await;
    let mut builds = Vec::new();
    for _ in 0..5 {
        builds.push(board.running().await);
    }
    end(&board, &[(builds[0], "success")]).await;
    end(&board, &[(builds[1], "failed")]).await;
    end(&board, &[(builds[2], "success"), (builds[3], "failed"), (builds[4], "success")]).await;
    assert_eq!(previewed(&board, &builds).await, [true, false, true, false, true]);
    holds_together(&board).await;
}

#[tokio::test]
async fn a_job_says_what_its_preview_is_also_when_it_is_asked_for_again() {
    let board = board().await;
    board.submit().await;
    let claim = Uuid::new_v4();
    let job = board.claim_as(&board.worker, claim).await.ok();
    let again = board.claim_as(&board.worker, claim).await.ok();
    let spec = pipeline(&json!({}));
    for field in ["commands", "port", "health_path", "ttl_seconds"] {
        assert_eq!(
            (&job["preview"][field], &again["preview"][field]),
            (&spec["preview"][field], &spec["preview"][field])
        );
    }
    board.pipeline(&board.api, "main", &crate::scenario::pipeline()).await;
    board.submit().await;
    assert_eq!(
        board.claim_as(&board.worker, Uuid::new_v4()).await.ok()["preview"],
        Value::Null,
        "none where none is set up"
    );
}
