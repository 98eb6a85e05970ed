//! The order of claims under `fair`: the eligible workspace with the fewest running builds first, then its oldest (SPEC.md, Claim).

use crate::Board;
use rules::fairness::{Contender, Order, next};
use serde_json::json;
use uuid::Uuid;

async fn fair() -> Board {
    let board = Board::with(|config| config.claim_order = Order::Fair).await;
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

#[tokio::test]
async fn the_database_takes_in_the_order_of_the_rule() {
    for order in [Order::Oldest, Order::Fair] {
        let board = Board::with(|config| config.claim_order = order).await;
        let _ = board.sweep().await;
        let mut queues: Vec<Vec<(i64, Uuid)>> = vec![Vec::new(); 4];
        let mut running = [0_u32; 4];
        let mut tokens = Vec::new();
        for name in ["a", "b", "c", "d"] {
            tokens.push(board.tenant(name, json!({ "minutes_per_month": 100_000, "running_max": 3 })).await);
        }
        for (number, tenant) in (0..).zip([0, 0, 1, 0, 2, 2, 0, 1, 3, 0, 2, 1, 3, 0, 0]) {
            queues[tenant].push((number, board.submit_as(&tokens[tenant]).await));
        }
        for turn in 0..12 {
            let places: Vec<usize> = (0..4).filter(|place| !queues[*place].is_empty() && running[*place] < 3).collect();
            let contender = |place: &usize| Contender { running: running[*place], head: queues[*place][0].0 };
            let contenders: Vec<_> = places.iter().map(contender).collect();
            let Some(place) = next(order, &contenders).map(|chosen| places[chosen]) else { break };
            let (_, build) = queues[place].remove(0);
            assert_eq!(board.claim().await, Some(build), "{order:?}, turn {turn}");
            // Now and then a build ends.
            if turn % 3 == 0 {
                let _ = board.complete(build, &json!({ "status": "success", "ran_ms": 1 })).await.ok();
            } else {
                running[place] += 1;
            }
        }
        board.holds_together().await;
    }
}

/// The table in docs/fairness.md; `CALLBOARD_WRITE_FAIRNESS=1` writes it.
#[test]
fn the_table_of_waits_is_that_of_the_simulation() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/fairness.md");
    let text = std::fs::read_to_string(path).expect("docs/fairness.md");
    let (before, rest) = text.split_once("| tenant |").expect("the table");
    let after = rest.split_once("\n\n").map_or("", |(_, after)| after);
    let made = format!("{before}{}\n{after}", callboard_tests::fairness::table());
    if std::env::var_os("CALLBOARD_WRITE_FAIRNESS").is_some() {
        std::fs::write(path, &made).expect("written");
    }
    let kept = std::fs::read_to_string(path).expect("docs/fairness.md");
    assert!(made == kept, "run CALLBOARD_WRITE_FAIRNESS=1 ./tests/run board and commit docs/fairness.md");
}

#[test]
fn a_backlog_keeps_nobody_waiting_longer_than_one_build_under_fair() {
    use callboard_tests::fairness::{BUILD_MS_MAX, Outcome, SMALL, simulate};
    let (oldest, fair) = (simulate(Order::Oldest), simulate(Order::Fair));
    assert_eq!((oldest.len(), fair.len()), (SMALL + 1, SMALL + 1));
    for small in 1..=SMALL {
        assert!(fair[small].started > 100 && fair[small].percentile(100) <= BUILD_MS_MAX, "small {small}");
        assert!(oldest[small].started == 0, "under `oldest` small {small} waits for the whole backlog");
    }
    let started = |all: &[Outcome]| all.iter().map(|one| one.started).sum::<usize>();
    assert!(started(&fair) * 100 >= started(&oldest) * 99, "fairness costs no slots");
}
