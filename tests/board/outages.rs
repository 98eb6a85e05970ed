//! A database that restarts below the functions: calls fail with 503 at the worst, and then go on.

use crate::Board;
use serde_json::json;

#[tokio::test]
async fn connections_that_were_killed_cost_503s_at_the_worst_and_no_wrong_answer() {
    let board = Board::new().await;
    let build = board.running().await;
    let path = format!("builds/{build}/heartbeat");
    let _ = board.work(&path, &json!({})).await.ok();
    let ours = "select pg_terminate_backend(pid) from pg_stat_activity
        where datname = current_database() and application_name = 'callboard'";
    board.execute(ours).await;
    let mut refusals = 0;
    loop {
        let answer = board.work(&path, &json!({})).await;
        match answer.said() {
            (200, _) => break,
            said => assert_eq!(said, (503, "unavailable")),
        }
        refusals += 1;
        assert!(refusals <= 20, "one for each connection of the pool");
    }
}
