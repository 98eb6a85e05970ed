//! What there is only so much of: the ports of a host, the live previews of a plan, their time.

use super::{FakeHost, board, destroy, holds_together, of, pass, running, succeeded};
use crate::Board;
use rules::preview::{Order, Seen};
use serde_json::{Value, json};
use uuid::Uuid;

#[tokio::test]
async fn a_port_that_another_preview_of_the_host_holds_is_refused_and_another_one_taken() {
    let board = board().await;
    let mut host = FakeHost::of(&board);
    running(&board, &mut host).await;
    let second = succeeded(&board).await;
    host.keep(second);
    host.sync(&board).await;
    let report = host.previews.get_mut(&second).expect("its report");
    report.port = Some(20_000);
    host.sync(&board).await;
    assert_eq!(host.order(second), Some(Order::Rebind));
    assert_eq!(of(&board, second).await["status"], "starting");
    host.settle(&board).await;
    let preview = of(&board, second).await;
    assert_eq!((&preview["status"], &preview["port"]), (&json!("running"), &json!(20_002)));
    holds_together(&board).await;
}

#[tokio::test]
async fn the_same_port_of_two_hosts_is_two_ports() {
    let board = board().await;
    let mut hosts = [FakeHost::of(&board), FakeHost { id: "h2".into(), ..FakeHost::of(&board) }];
    for host in &mut hosts {
        running(&board, host).await;
    }
    assert_eq!(board.number("select count(*) from port_leases where port = 20000").await, 2);
}

#[tokio::test]
async fn a_range_without_a_free_port_is_waited_for_and_told() {
    let board = board().await;
    let mut host = FakeHost::of(&board);
    let build = succeeded(&board).await;
    host.keep(build);
    host.previews.get_mut(&build).expect("its report").no_port = true;
    host.sync(&board).await;
    let mut waiting = host.clone();
    let report = waiting.previews.get_mut(&build).expect("its report");
    (report.state, report.port, report.url) = (Seen::Kept, None, None);
    waiting.sync(&board).await;
    let preview = of(&board, build).await;
    assert_eq!((&preview["status"], &preview["waiting_for"]), (&json!("starting"), &json!("port")));
    host = waiting;
    host.previews.get_mut(&build).expect("its report").no_port = false;
    host.settle(&board).await;
    assert_eq!(of(&board, build).await["status"], "running");
}

#[tokio::test]
async fn more_live_previews_than_the_plan_allows_wait_visibly_for_a_place() {
    let board = board().await;
    board.plans("previews_max = 2").await;
    let mut host = FakeHost::of(&board);
    let mut builds = Vec::new();
    for _ in 0..4 {
        let build = succeeded(&board).await;
        host.keep(build);
        builds.push(build);
    }
    host.settle(&board).await;
    let mut states = Vec::new();
    for build in &builds {
        let preview = of(&board, *build).await;
        states.push((preview["status"].clone(), preview["waiting_for"].clone()));
    }
    let (run, wait) = ((json!("running"), Value::Null), (json!("starting"), json!("quota")));
    assert_eq!(states, [run.clone(), run.clone(), wait.clone(), wait], "the oldest first");
    assert_eq!(board.usage().await["previews"], 2);
    destroy(&board, builds[0]).await;
    host.settle(&board).await;
    assert_eq!(of(&board, builds[2]).await["status"], "running");
    assert_eq!(of(&board, builds[3]).await["waiting_for"], "quota");
    holds_together(&board).await;
}

#[tokio::test]
async fn a_preview_that_waits_for_a_place_is_destroyed_at_its_expiry() {
    let board = board().await;
    board.plans("previews_max = 0").await;
    let mut host = FakeHost::of(&board);
    let build = succeeded(&board).await;
    host.keep(build);
    host.settle(&board).await;
    assert_eq!(host.order(build), Some(Order::Wait));
    pass(&board, 3601).await;
    board.execute("update preview_hosts set synced_at = clock_timestamp()").await;
    let _ = board.sweep().await;
    host.settle(&board).await;
    assert_eq!(of(&board, build).await["status"], "destroyed");
    holds_together(&board).await;
}

#[tokio::test]
async fn a_preview_lives_no_longer_than_its_plan_allows_and_counts_from_when_it_answers() {
    let board = board().await;
    board.plans("preview_seconds_max = 60").await;
    let mut host = FakeHost::of(&board);
    running(&board, &mut host).await;
    let left = "select round(extract(epoch from expires_at - started_at))::bigint from previews";
    assert_eq!(board.number(left).await, 60);
}

#[tokio::test]
async fn under_a_plan_that_is_stale_nothing_new_starts() {
    let board = board().await;
    board.plans("fetched_at = clock_timestamp() - interval '16 min'").await;
    let mut host = FakeHost::of(&board);
    let build = succeeded_anyway(&board).await;
    host.keep(build);
    host.settle(&board).await;
    assert_eq!(of(&board, build).await["waiting_for"], "quota");
    board.plans("fetched_at = clock_timestamp()").await;
    host.settle(&board).await;
    assert_eq!(of(&board, build).await["status"], "running");
}

/// A build that ends while its plan is stale: it was claimed before.
async fn succeeded_anyway(board: &Board) -> Uuid {
    board.plans("fetched_at = clock_timestamp()").await;
    let build = board.running().await;
    board.plans("fetched_at = clock_timestamp() - interval '16 min'").await;
    let _ = board.complete(build, &json!({ "status": "success", "ran_ms": 1 })).await.ok();
    build
}
