//! The order of claims under `fair`: the eligible workspace with the fewest running builds first, then its oldest (SPEC.md, Claim).

use crate::Board;
use edge::config::ClaimOrder;
use serde_json::json;
use uuid::Uuid;

async fn fair() -> Board {
    let board = Board::with(|config| config.claim_order = ClaimOrder::Fair).await;
    let _ = board.sweep().await;
    board
}

async fn submits(board: &Board, api: &str, count: usize) -> Vec<Uuid> {
    let mut builds = Vec::new();
    for _ in 0..count {
        builds.push(board.submit_as(api).await);
    }
    builds
}

#[tokio::test]
async fn the_workspace_with_the_fewest_running_builds_goes_first() {
    let board = fair().await;
    let many = submits(&board, &board.api, 4).await;
    let api = board.tenant("umbrella", json!({ "minutes_per_month": 1000 })).await;
    let few = submits(&board, &api, 2).await;
    for expected in [many[0], few[0], many[1], few[1], many[2], many[3]] {
        assert_eq!(board.claim().await, Some(expected));
    }
    board.holds_together().await;
}

#[tokio::test]
async fn an_end_gives_a_workspace_its_turn_back() {
    let board = fair().await;
    let many = submits(&board, &board.api, 3).await;
    let api = board.tenant("umbrella", json!({ "minutes_per_month": 1000 })).await;
    let few = submits(&board, &api, 2).await;
    assert_eq!((board.claim().await, board.claim().await), (Some(many[0]), Some(few[0])));
    let _ = board.complete(few[0], &json!({ "status": "success", "ran_ms": 1 })).await.ok();
    assert_eq!(board.claim().await, Some(few[1]), "none of its builds runs, one of the other's does");
    board.holds_together().await;
}

#[tokio::test]
async fn a_workspace_that_comes_late_does_not_wait_behind_anothers_queue() {
    let board = fair().await;
    submits(&board, &board.api, 30).await;
    for _ in 0..5 {
        assert!(board.claim().await.is_some());
    }
    let api = board.tenant("late", json!({ "minutes_per_month": 1000 })).await;
    let late = board.submit_as(&api).await;
    assert_eq!(board.claim().await, Some(late));
    board.holds_together().await;
}

#[tokio::test]
async fn the_order_can_be_changed_while_builds_wait_and_run() {
    let board = Board::new().await;
    let many = submits(&board, &board.api, 3).await;
    let api = board.tenant("umbrella", json!({ "minutes_per_month": 1000 })).await;
    let few = submits(&board, &api, 2).await;
    assert_eq!(board.claim().await, Some(many[0]));
    board.execute("update board set fair = true").await;
    board.holds_together().await;
    assert_eq!(board.claim().await, Some(few[0]));
    board.execute("update board set fair = false").await;
    board.holds_together().await;
    assert_eq!(board.claim().await, Some(many[1]));
}

#[tokio::test]
async fn a_sweep_sets_the_order_that_is_configured() {
    let board = fair().await;
    assert_eq!(board.number("select fair::int::bigint from board").await, 1);
    let oldest = Board::new().await;
    oldest.execute("update board set fair = true").await;
    let _ = oldest.sweep().await;
    assert_eq!(oldest.number("select fair::int::bigint from board").await, 0);
}
