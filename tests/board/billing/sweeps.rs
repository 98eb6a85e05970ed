//! Sweeps ask for the plans of workspaces with builds.

use super::{PATIENCE, back_off, billed, pass};
use crate::Board;
use crate::reference::{Manner, plan};
use serde_json::{Value, json};
use std::time::Duration;

#[tokio::test]
async fn a_sweep_asks_for_workspaces_with_builds_once_they_are_due() {
    let (service, board) = billed(PATIENCE).await;
    for slug in ["idle", "busy"] {
        service.set(slug, Manner::Says(plan(1000, 4, 10)));
    }
    board.tenant("idle", json!({ "minutes_per_month": 10 })).await;
    let busy = board.tenant("busy", Value::Null).await;
    board.submit_as(&busy).await;
    board.running().await;
    pass(&board, 50).await;
    assert_eq!(board.sweep().await["plans_fetched"], 0);
    pass(&board, 10).await;
    assert_eq!(board.sweep().await["plans_fetched"], 2, "one waits, one runs");
    assert_eq!(["idle", "busy", "acme"].map(|slug| service.asked(slug)), [0, 2, 2]);
}

#[tokio::test]
async fn a_sweep_asks_for_many_at_once_but_not_for_all() {
    let (service, board) = billed(PATIENCE).await;
    board.submit().await;
    for number in 0..30 {
        let slug = format!("ill-{number}");
        service.set(&slug, Manner::Says(plan(1000, 4, 10)));
        let api = board.tenant(&slug, Value::Null).await;
        board.submit_as(&api).await;
        service.set(&slug, Manner::Slow("nonsense".into()));
    }
    pass(&board, 60).await;
    let let_go = async {
        service.until_open(16).await;
        service.let_go(30);
    };
    let (swept, ()) = futures::join!(board.sweep(), let_go);
    assert_eq!([&swept["plans_fetched"], &swept["plans_failed"], &swept["errors"]], [1, 30, 0]);
    assert_eq!(service.open_max(), 16);
    back_off(&board, false).await;
    assert_eq!(board.sweep().await["plans_failed"], 0);
    assert_eq!(service.asked("ill-0"), 2);
    board.holds_together().await;
}

#[tokio::test]
async fn workspaces_that_fail_never_hold_up_a_sweep_for_the_others() {
    let (service, board) = billed(PATIENCE).await;
    board.submit().await;
    for number in 0..20 {
        let slug = format!("ill-{number}");
        service.set(&slug, Manner::Says(plan(1000, 4, 10)));
        let api = board.tenant(&slug, Value::Null).await;
        board.submit_as(&api).await;
        service.set(&slug, Manner::Slow("nonsense".into()));
    }
    board
        .execute(
            "update billing_fetches set failures = 3, next_attempt_at = attempted_at, last_error = 'timeout'
             where workspace_id <> (select id from workspaces where slug = 'acme')",
        )
        .await;
    pass(&board, 600).await;
    board.execute("update billing_fetches set attempted_at = clock_timestamp() where failures = 0").await;
    let meanwhile = async {
        service.until_open(8).await;
        service.until_asked("acme", 2).await;
        service.let_go(20);
    };
    let (swept, ()) = futures::join!(board.sweep(), meanwhile);
    assert_eq!([&swept["plans_fetched"], &swept["plans_failed"]], [1, 20]);
    assert!(service.open_max() <= 9, "eight that fail, and acme");
}

#[tokio::test]
async fn a_sweep_begins_no_question_after_a_third_of_the_time_to_the_next_which_goes_on_from_there() {
    let (service, board) = billed(PATIENCE).await;
    for number in 0..20 {
        let slug = format!("ill-{number}");
        service.set(&slug, Manner::Says(plan(1000, 4, 10)));
        let api = board.tenant(&slug, Value::Null).await;
        board.submit_as(&api).await;
        service.set(&slug, Manner::Hangs);
    }
    pass(&board, 60).await;
    let mut config = (*board.shell.config).clone();
    config.billing = Some(service.settings(Duration::from_secs(1)));
    config.timing.reap_every = Duration::from_secs(1);
    let shell = edge::Shell::new(config).expect("settings of the test itself");
    let board = Board { app: edge::app(localstack::routes(), shell), ..board };
    assert_eq!(board.sweep().await["plans_failed"], 16);
    back_off(&board, false).await;
    assert_eq!(board.sweep().await["plans_failed"], 4);
}
