//! When the service is asked again, and whose answer counts where several cross.

use super::{PATIENCE, back_off, billed, failures, pass, shown, submit};
use crate::Board;
use crate::reference::{Manner, Service, plan};
use futures::future::join_all;
use serde_json::Value;
use std::time::Duration;

#[tokio::test]
async fn a_changed_plan_takes_effect_once_the_last_answer_is_a_minute_old() {
    let (service, board) = billed(PATIENCE).await;
    service.set("acme", Manner::Says(plan(1000, 100, 1)));
    board.submit().await;
    service.set("acme", Manner::Says(plan(1000, 0, 3)));
    pass(&board, 50).await;
    assert_eq!(submit(&board, &board.api).await.said(), (429, "queue_full"));
    assert_eq!(service.asked("acme"), 1);
    pass(&board, 10).await;
    board.submit().await;
    assert_eq!(service.asked("acme"), 2);
    assert_eq!(board.claim().await, None, "none may run by the new plan");
    service.set("acme", Manner::Says(plan(1000, 1, 3)));
    pass(&board, 60).await;
    assert_eq!(board.sweep().await["plans_fetched"], 1);
    assert!(board.claim().await.is_some());
    assert_eq!(board.claim().await, None);
    board.holds_together().await;
}

#[tokio::test]
async fn within_the_back_off_the_service_is_not_asked() {
    let (service, board) = billed(PATIENCE).await;
    service.set("ill", Manner::Closes);
    let api = board.tenant("ill", Value::Null).await;
    for (failed, least_ms) in [(1, 1000), (2, 2000), (3, 4000)] {
        assert_eq!(submit(&board, &api).await.said(), (503, "billing_unavailable"));
        assert_eq!(
            (service.asked("ill"), failures(&board, "ill").await),
            (failed, i64::try_from(failed).expect("few"))
        );
        let waits = "select (extract(epoch from next_attempt_at - attempted_at) * 1000)::bigint from billing_fetches";
        assert!(board.number(waits).await >= least_ms, "after {failed} failures");
        back_off(&board, false).await;
        assert_eq!(submit(&board, &api).await.said(), (503, "billing_unavailable"));
        assert_eq!(service.asked("ill"), failed);
        back_off(&board, true).await;
    }
}

#[tokio::test]
async fn after_failures_one_call_alone_asks_again() {
    let (service, board) = billed(PATIENCE).await;
    let api = board.tenant("ill", Value::Null).await;
    assert_eq!(submit(&board, &api).await.said(), (503, "billing_unavailable"));
    service.set("ill", Manner::Slow(plan(1000, 4, 10)));
    back_off(&board, true).await;
    let others = async {
        service.until_asked("ill", 2).await;
        for _ in 0..3 {
            assert_eq!(submit(&board, &api).await.said(), (503, "billing_unavailable"));
        }
        service.let_go(1);
    };
    let (first, ()) = futures::join!(submit(&board, &api), others);
    assert_eq!((first.status.as_u16(), service.asked("ill")), (201, 2));
}

#[tokio::test]
async fn many_that_fail_together_count_as_one_failure() {
    let (service, board) = billed(PATIENCE).await;
    service.set("ill", Manner::Slow("nonsense".into()));
    let api = board.tenant("ill", Value::Null).await;
    let all = async {
        service.until_asked("ill", 5).await;
        service.let_go(5);
    };
    let (answers, ()) = futures::join!(join_all((0..5).map(|_| submit(&board, &api))), all);
    assert!(answers.iter().all(|answer| answer.said() == (503, "billing_unavailable")));
    assert_eq!(failures(&board, "ill").await, 1);
}

#[tokio::test]
async fn one_submit_asks_for_all_while_a_plan_is_in_effect() {
    let (service, board) = billed(PATIENCE).await;
    board.submit().await;
    service.set("acme", Manner::Slow(plan(1000, 4, 1)));
    pass(&board, 60).await;
    let others = async {
        service.until_asked("acme", 2).await;
        let answers = join_all((0..5).map(|_| submit(&board, &board.api))).await;
        assert!(answers.iter().all(|answer| answer.status.as_u16() == 201), "by the plan before");
        service.let_go(1);
    };
    let (first, ()) = futures::join!(submit(&board, &board.api), others);
    assert_eq!((first.said(), service.asked("acme")), ((429, "queue_full"), 2), "by the new one");
}

#[tokio::test]
async fn a_question_that_nobody_finished_is_asked_again() {
    let (service, board) = billed(PATIENCE).await;
    board.submit().await;
    service.set("acme", Manner::Hangs);
    pass(&board, 60).await;
    let gone = tokio::time::timeout(Duration::from_secs(5), async {
        tokio::select! {
            answer = submit(&board, &board.api) => panic!("{answer:?}"),
            () = service.until_asked("acme", 2) => {}
        }
    });
    gone.await.expect("it was asked, and its caller has gone");
    service.set("acme", Manner::Says(plan(1000, 4, 9)));
    board.submit().await;
    assert_eq!(service.asked("acme"), 2);
    pass(&board, 21).await;
    board.submit().await;
    assert_eq!(service.asked("acme"), 3);
    assert_eq!(shown(&board, &board.api).await["limits"]["pending_max"], 9);
}

/// A workspace that is asked for twice, where the first answer, in the manner `slow`, comes after the second; and the answers to both submits.
async fn crossing(slow: Manner) -> (Service, Board, String, [u16; 2]) {
    let (service, board) = billed(PATIENCE).await;
    service.set("new", slow);
    let api = board.tenant("new", Value::Null).await;
    let later = async {
        service.until_asked("new", 1).await;
        board.execute("select pg_sleep(0.002)").await;
        service.set("new", Manner::Says(plan(1000, 4, 9)));
        let second = submit(&board, &api).await;
        service.let_go(1);
        second
    };
    let (first, second) = futures::join!(submit(&board, &api), later);
    let statuses = [first.status.as_u16(), second.status.as_u16()];
    (service, board, api, statuses)
}

#[tokio::test]
async fn of_two_answers_that_cross_the_later_questions_stays() {
    let (service, board, api, statuses) = crossing(Manner::Slow(plan(1000, 4, 1))).await;
    assert_eq!((statuses, service.asked("new")), ([201, 201], 2));
    assert_eq!(shown(&board, &api).await["limits"]["pending_max"], 9);
}

#[tokio::test]
async fn a_failure_that_comes_late_does_not_undo_a_later_success() {
    let (_service, board, _, statuses) = crossing(Manner::Slow("nonsense".into())).await;
    assert_eq!(statuses, [201, 201], "by the plan that came meanwhile");
    assert_eq!(failures(&board, "new").await, 0);
}
