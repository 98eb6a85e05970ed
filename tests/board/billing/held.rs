//! Nothing of the database is held while the service is waited for.

use super::{PATIENCE, pass, shown, submit};
use crate::Board;
use crate::reference::{Manner, Service, plan};

#[tokio::test]
async fn nothing_of_the_database_is_held_while_a_submit_waits_for_the_service() {
    let service = Service::start().await;
    service.set("acme", Manner::Slow(plan(1000, 4, 10)));
    let board = Board::with(|config| {
        config.database_connections = 1;
        config.billing = Some(service.settings(PATIENCE));
    })
    .await;
    let meanwhile = async {
        service.until_asked("acme", 1).await;
        nothing_is_held(&board).await;
        service.let_go(1);
    };
    let (answer, ()) = futures::join!(submit(&board, &board.api), meanwhile);
    assert_eq!(answer.status.as_u16(), 201);
}

#[tokio::test]
async fn nothing_of_the_database_is_held_while_a_sweep_waits_for_the_service() {
    let service = Service::start().await;
    service.set("acme", Manner::Says(plan(1000, 4, 10)));
    let board = Board::with(|config| {
        config.database_connections = 1;
        config.billing = Some(service.settings(PATIENCE));
    })
    .await;
    board.submit().await;
    service.set("acme", Manner::Slow(plan(1000, 4, 10)));
    pass(&board, 60).await;
    let meanwhile = async {
        service.until_asked("acme", 2).await;
        nothing_is_held(&board).await;
        assert!(board.claim().await.is_some());
        service.let_go(1);
    };
    let (swept, ()) = futures::join!(board.sweep(), meanwhile);
    assert_eq!(swept["plans_fetched"], 1);
}

/// The pool's only connection is free, in no transaction, and nobody holds a lock of the workspace.
async fn nothing_is_held(board: &Board) {
    assert!(shown(board, &board.api).await["slug"].is_string());
    let open = "select count(*) from pg_stat_activity where datname = current_database()
        and application_name = 'callboard' and xact_start is not null";
    assert_eq!(board.number(open).await, 0);
    board.execute("select from workspaces for update nowait").await;
}
