//! Plans of a billing service: whatever it does concerns one workspace, and nothing of the database waits for it (SPEC.md,
//! Budget; docs/billing.md).

mod asking;
mod held;
mod sweeps;

use crate::Board;
use crate::reference::{Manner, Service, plan};
use crate::scenario::Answer;
use futures::future::join_all;
use http::{Method, Request};
use rules::billing::{Unreadable, is_fresh};
use rules::{Timestamp, Timing};
use serde_json::{Value, json};
use std::time::Duration;

/// Long enough for an answer on a machine that is busy, short enough to wait for once.
const TIMEOUT: Duration = Duration::from_secs(3);
/// Where nothing hangs, or the test itself lets it go.
const PATIENCE: Duration = Duration::from_secs(10);

/// A service that has a plan for `acme`, and a board that asks it.
async fn billed(timeout: Duration) -> (Service, Board) {
    let service = Service::start().await;
    service.set("acme", Manner::Says(plan(1000, 100, 1000)));
    let board = Board::with(|config| config.billing = Some(service.settings(timeout))).await;
    (service, board)
}

async fn submit(board: &Board, api: &str) -> Answer {
    board.call(Method::POST, "/api/v1/builds", api, &json!({ "pipeline": "main" })).await
}

async fn shown(board: &Board, api: &str) -> Value {
    board.call(Method::GET, "/api/v1/workspace", api, &Value::Null).await.ok()
}

/// Lets `seconds` pass for all that is stored of plans and of the asking for them.
async fn pass(board: &Board, seconds: u32) {
    let by = format!("interval '{seconds} s'");
    board.execute(&format!("update plans set fetched_at = fetched_at - {by}")).await;
    board
        .execute(&format!(
            "update billing_fetches set attempted_at = attempted_at - {by}, next_attempt_at = next_attempt_at - {by}"
        ))
        .await;
}

/// Ends every back-off, or makes it last.
async fn back_off(board: &Board, is_over: bool) {
    let to = if is_over { "- interval '1 ms'" } else { "+ interval '1 h'" };
    board
        .execute(&format!("update billing_fetches set next_attempt_at = clock_timestamp() {to} where failures > 0"))
        .await;
}

async fn failures(board: &Board, slug: &str) -> i64 {
    let of = format!("(select id from workspaces where slug = '{slug}')");
    board
        .number(&format!("select coalesce(sum(failures), 0)::bigint from billing_fetches where workspace_id = {of}"))
        .await
}

#[tokio::test]
async fn a_first_submit_fetches_the_plan_and_is_decided_by_it() {
    let (service, board) = billed(PATIENCE).await;
    service.set("new", Manner::Says(plan(30, 2, 1)));
    let api = board.tenant("new", Value::Null).await;
    assert_eq!(submit(&board, &api).await.status.as_u16(), 201);
    assert_eq!(submit(&board, &api).await.said(), (429, "queue_full"));
    let seen = shown(&board, &api).await;
    let limits = json!({ "minutes_per_month": 30, "build_seconds_max": 1800, "running_max": 2, "pending_max": 1,
        "previews_max": 4, "preview_seconds_max": 86_400 });
    assert_eq!((&seen["limits"], &seen["left_seconds"]), (&limits, &json!(1800)));
    assert!(seen["plan_fetched_at"].is_string());
    assert_eq!((service.asked("new"), service.others()), (1, 0));
    board.holds_together().await;
}

/// Each misbehaviour with the word that is noted of it.
fn misbehaviours() -> Vec<(Manner, Unreadable)> {
    use Unreadable as U;
    let says = |from: &str, to: &str| Manner::Says(plan(1000, 100, 1000).replace(from, to));
    let answers = |status, kind, body: &str| Manner::Answers(status, kind, body.to_owned());
    let good = plan(1000, 100, 1000);
    vec![
        (Manner::Hangs, U::Timeout),
        (Manner::Drips, U::Timeout),
        (Manner::Slow(good.clone()), U::Timeout),
        (Manner::ClosesMidBody, U::Broken),
        (Manner::Closes, U::Broken),
        (Manner::Babbles, U::Broken),
        (Manner::IsEndless, U::TooLarge),
        (Manner::AnnouncesTooMuch, U::TooLarge),
        (Manner::Redirects, U::Status),
        (answers(500, "application/json", &good), U::Status),
        (answers(404, "application/json", &good), U::Status),
        (answers(203, "application/json", &good), U::Status),
        (answers(200, "text/html", "<!doctype html><title>Sign in</title>"), U::ContentType),
        (answers(200, "text/plain", &good), U::ContentType),
        (Manner::Says("<!doctype html><title>Sign in</title>".into()), U::NotJson),
        (Manner::Says(String::new()), U::NotJson),
        (Manner::Says("null".into()), U::NotJson),
        (Manner::Says(format!("[{good}]")), U::NotJson),
        (says("\"pending_max\": 1000", "\"pending_max\": NaN"), U::NotJson),
        (says("running_max", "runs"), U::Missing),
        (Manner::Says("{}".into()), U::Missing),
        (says(": 1000,", ": -1000,"), U::Invalid),
        (says(": 1000,", ": 10.5,"), U::Invalid),
        (says(": 1000,", ": \"NaN\","), U::Invalid),
        (says(": 1000,", ": null,"), U::Invalid),
        (says(": 1000,", ": 35000001,"), U::Invalid),
        (says(": 1000,", ": 99999999999999999999999,"), U::Invalid),
        (says(": 1800,", ": 0,"), U::Invalid),
        (says(": 1800,", ": 86401,"), U::Invalid),
    ]
}

#[tokio::test]
async fn each_misbehaviour_refuses_its_own_workspace_and_no_other() {
    let (service, board) = billed(TIMEOUT).await;
    let cases = misbehaviours();
    let mut submits = Vec::new();
    for (number, (manner, _)) in cases.iter().enumerate() {
        let slug = format!("ill-{number}");
        service.set(&slug, manner.clone());
        submits.push(board.tenant(&slug, Value::Null).await);
    }
    let answers = join_all(submits.iter().map(|api| submit(&board, api))).await;
    for (number, ((manner, word), answer)) in cases.iter().zip(&answers).enumerate() {
        assert_eq!(answer.said(), (503, "billing_unavailable"), "{manner:?}");
        assert!(answer.headers.contains_key("retry-after"), "{manner:?}");
        let noted = format!(
            "select count(*) from billing_fetches f join workspaces w on w.id = f.workspace_id
             where w.slug = 'ill-{number}' and f.failures = 1 and f.last_error = '{}'",
            word.as_str()
        );
        assert_eq!(board.number(&noted).await, 1, "{manner:?}");
    }
    assert_eq!(board.number("select count(*) from builds").await, 0);
    assert_eq!(service.asked("elsewhere"), 0, "no redirect is followed");
    let build = board.submit().await;
    assert_eq!(board.claim().await, Some(build));
    board.holds_together().await;
}

#[tokio::test]
async fn a_dead_service_is_noted_and_a_plan_comes_once_it_is_back() {
    let (mut service, board) = billed(PATIENCE).await;
    let api = board.tenant("new", Value::Null).await;
    service.set("new", Manner::Says(plan(30, 2, 10)));
    service.stop().await;
    assert_eq!(submit(&board, &api).await.said(), (503, "billing_unavailable"));
    assert_eq!(board.number("select count(*) from billing_fetches where last_error = 'unreachable'").await, 1);
    service.restart().await;
    back_off(&board, true).await;
    assert_eq!(submit(&board, &api).await.status.as_u16(), 201);
    assert_eq!(failures(&board, "new").await, 0);
}

#[tokio::test]
async fn a_stale_plan_keeps_its_workspaces_builds_waiting_and_no_others() {
    let (service, board) = billed(TIMEOUT).await;
    service.set("ill", Manner::Says(plan(1000, 100, 1000)));
    let ill = board.tenant("ill", Value::Null).await;
    let waiting = board.submit_as(&ill).await;
    let build = board.submit().await;
    service.set("ill", Manner::Hangs);
    pass(&board, 15 * 60 + 1).await;
    let swept = board.sweep().await;
    assert_eq!([&swept["plans_fetched"], &swept["plans_failed"], &swept["plans_lapsed"]], [1, 1, 1]);
    assert_eq!(board.claim().await, Some(build));
    assert_eq!(board.claim().await, None);
    let path = format!("/api/v1/builds/{waiting}");
    let seen = board.call(Method::GET, &path, &ill, &Value::Null).await.ok();
    assert_eq!((&seen["status"], &seen["waiting_for"]), (&json!("pending"), &json!("billing")));
    let seen = shown(&board, &ill).await;
    assert_eq!(seen["limits"], Value::Null);
    assert!(seen["plan_fetched_at"].is_string(), "when it was last known is told");

    service.set("ill", Manner::Says(plan(1000, 100, 1000)));
    back_off(&board, true).await;
    assert_eq!(board.sweep().await["plans_fetched"], 1);
    assert_eq!(board.claim().await, Some(waiting));
    board.holds_together().await;
}

#[tokio::test]
async fn a_failure_leaves_a_plan_in_effect_until_it_is_stale() {
    let (service, board) = billed(PATIENCE).await;
    board.submit().await;
    service.set("acme", Manner::Answers(500, "text/plain", String::new()));
    pass(&board, 14 * 60).await;
    board.submit().await;
    assert_eq!((service.asked("acme"), failures(&board, "acme").await), (2, 1));
    assert_eq!(board.sweep().await["plans_lapsed"], 0);
    assert!(shown(&board, &board.api).await["limits"].is_object());
    pass(&board, 61).await;
    assert_eq!(shown(&board, &board.api).await["limits"], Value::Null, "stale, though no sweep has been");
    assert_eq!(submit(&board, &board.api).await.said(), (503, "billing_unavailable"));
    assert_eq!(board.sweep().await["plans_lapsed"], 1);
    assert_eq!(board.claim().await, None);
}

#[tokio::test]
async fn a_build_that_runs_under_a_stale_plan_goes_on_and_is_charged() {
    let (service, board) = billed(PATIENCE).await;
    let build = board.running().await;
    service.set("acme", Manner::Closes);
    pass(&board, 16 * 60).await;
    let _ = board.sweep().await;
    let _ = board.work(&format!("builds/{build}/heartbeat"), &json!({})).await.ok();
    board.age(build, 10).await;
    let _ = board.work(&format!("builds/{build}/heartbeat"), &json!({})).await.ok();
    let done = board.complete(build, &json!({ "status": "success", "ran_ms": 5000 })).await.ok();
    assert_eq!(done["charged_seconds"], 5);
    board.holds_together().await;
}

#[tokio::test]
async fn a_key_is_looked_up_before_the_service_is_asked() {
    let (service, board) = billed(TIMEOUT).await;
    let request = || {
        Request::post("/api/v1/builds")
            .header("authorization", format!("Bearer {}", board.api))
            .header("content-type", "application/json")
            .header("idempotency-key", "k1")
            .body(axum::body::Body::from(r#"{"pipeline": "main"}"#))
            .expect("a request")
    };
    let first = board.send(request()).await.id();
    service.set("acme", Manner::Hangs);
    pass(&board, 16 * 60).await;
    assert_eq!(board.send(request()).await.id(), first);
    assert_eq!(service.asked("acme"), 1);
}

#[tokio::test]
async fn operators_set_no_plan_that_the_service_gives() {
    let (_service, board) = billed(PATIENCE).await;
    let limits = json!({ "minutes_per_month": 7 });
    let path = "/api/v1/admin/workspaces/acme";
    let plan = format!("{path}/plan");
    let set = board.call(Method::PUT, &plan, &board.operator, &limits).await;
    assert_eq!(set.said(), (409, "billed_elsewhere"));
    assert!(set.body["detail"].as_str().is_some_and(|detail| detail.contains("billing service")));
    let taken = board.call(Method::DELETE, &plan, &board.operator, &Value::Null).await;
    assert_eq!(taken.said(), (409, "billed_elsewhere"));
    let put = board.call(Method::PUT, path, &board.operator, &json!({ "plan": limits })).await;
    assert_eq!(put.said(), (409, "billed_elsewhere"));
    let path = "/api/v1/admin/workspaces/new";
    assert_eq!(board.call(Method::PUT, path, &board.operator, &json!({})).await.status.as_u16(), 201);
    board.submit().await;
    let seen = board.call(Method::GET, &plan, &board.operator, &Value::Null).await.ok();
    assert_eq!(seen["minutes_per_month"], 1000, "the plan in effect is shown");
    let all = board.call(Method::GET, "/api/v1/admin/workspaces", &board.operator, &Value::Null).await.ok();
    assert!(all["workspaces"][0]["plan_fetched_at"].is_string(), "{all}");
}

#[tokio::test]
async fn a_plan_of_the_tables_holds_as_long_as_an_answer_when_a_service_takes_over_and_is_dead() {
    let (mut service, board) = billed(PATIENCE).await;
    assert!(shown(&board, &board.api).await.get("plan_fetched_at").is_none());
    service.stop().await;
    board.submit().await;
    pass(&board, 15 * 60 + 1).await;
    assert_eq!(submit(&board, &board.api).await.said(), (503, "billing_unavailable"));
    assert_eq!(board.sweep().await["plans_lapsed"], 1);
    assert_eq!(board.claim().await, None);
}

#[tokio::test]
async fn a_board_without_the_service_that_it_had_keeps_what_it_gave_last_until_an_operator_sets_another() {
    let board = Board::new().await;
    let build = board.submit().await;
    board.plans("fetched_at = clock_timestamp() - interval '20 min', lapsed = true").await;
    assert_eq!(board.claim().await, None);
    let _ = board.sweep().await;
    let seen = shown(&board, &board.api).await;
    assert_eq!((&seen["limits"]["minutes_per_month"], seen.get("plan_fetched_at")), (&json!(100_000), None));
    assert_eq!(board.claim().await, Some(build));
    board.holds_together().await;
}

#[tokio::test]
async fn sql_keeps_a_plan_fresh_as_long_as_the_rule() {
    let board = Board::new().await;
    let now = 1_796_083_200_000_i64;
    for age in [-1, 0, 1, 899_999, 900_000, 900_001, 1_000_000_000] {
        for stale_ms in [1_u32, 900_000] {
            let timing = Timing { billing_stale: Duration::from_millis(stale_ms.into()), ..Timing::default() };
            let expected = is_fresh(Some(Timestamp(now - age)), &timing, Timestamp(now));
            let at = |ms: i64| format!("'epoch'::timestamptz + {ms} * interval '1 ms'");
            let query = format!("select plan_is_fresh({}, {stale_ms}, {})::integer::bigint", at(now - age), at(now));
            assert_eq!(board.number(&query).await, i64::from(expected), "{age} of {stale_ms}");
        }
    }
    assert_eq!(board.number("select plan_is_fresh(null, 1, now())::integer::bigint").await, 1);
}

#[tokio::test]
async fn the_words_of_failures_in_the_schema_are_those_of_the_rules() {
    let board = Board::new().await;
    let words: Vec<_> = Unreadable::ALL.iter().map(|word| word.as_str().to_owned()).collect();
    assert_eq!(board.check_words("billing_fetches_error_known").await, words);
}
