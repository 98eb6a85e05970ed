//! What a workspace does with its previews.

use super::{FakeHost, board, destroy, holds_together, if_match, of, path, running, succeeded};
use http::Method;
use serde_json::{Value, json};
use uuid::Uuid;

#[tokio::test]
async fn previews_are_listed_newest_first_and_by_page_state_and_build() {
    let board = board().await;
    let mut host = FakeHost::of(&board);
    let mut builds = Vec::new();
    for _ in 0..3 {
        builds.push(running(&board, &mut host).await);
    }
    destroy(&board, builds[0]).await;
    let of_page = |list: &Value| -> Vec<Uuid> {
        let previews = list["previews"].as_array().expect("previews").iter();
        previews.map(|preview| preview["build_id"].as_str().and_then(|id| id.parse().ok()).expect("an id")).collect()
    };
    let first = board.get("/api/v1/previews?limit=2").await.ok();
    assert_eq!(of_page(&first), [builds[2], builds[1]]);
    let cursor = first["next_cursor"].as_str().expect("a cursor");
    let second = board.get(&format!("/api/v1/previews?limit=2&cursor={cursor}")).await.ok();
    assert_eq!((of_page(&second), &second["next_cursor"]), (vec![builds[0]], &Value::Null));
    assert_eq!(of_page(&board.get("/api/v1/previews?status=destroying").await.ok()), [builds[0]]);
    assert_eq!(of_page(&board.get(&format!("/api/v1/previews?build={}", builds[1])).await.ok()), [builds[1]]);
    for (field, value) in
        [("limit", "0"), ("limit", "101"), ("limit", "ten"), ("status", "paused"), ("build", "1"), ("cursor", "1")]
    {
        let answer = board.get(&format!("/api/v1/previews?{field}={value}")).await;
        assert_eq!((answer.said(), &answer.body["field"]), ((422, "invalid"), &json!(field)), "{value}");
    }
}

#[tokio::test]
async fn a_preview_is_read_with_its_version_as_its_etag() {
    let board = board().await;
    let build = succeeded(&board).await;
    let preview = of(&board, build).await;
    let answer = board.get(&path(&preview)).await;
    assert_eq!(answer.headers["etag"], "\"1\"");
    assert_eq!(answer.ok(), preview);
}

#[tokio::test]
async fn another_workspaces_preview_is_the_same_404_as_none() {
    let board = board().await;
    let mut host = FakeHost::of(&board);
    let build = running(&board, &mut host).await;
    let known = path(&of(&board, build).await);
    let other = board.tenant("umbrella", json!({ "minutes_per_month": 10 })).await;
    for (method, rest) in [(Method::GET, ""), (Method::POST, "/extend"), (Method::DELETE, "")] {
        let mut bodies = Vec::new();
        for path in [known.clone(), format!("/api/v1/previews/{}", Uuid::new_v4())] {
            let mut answer = board.call(method.clone(), &format!("{path}{rest}"), &other, &Value::Null).await;
            assert_eq!(answer.said(), (404, "not_found"), "{method} {rest}");
            answer.body["request_id"] = Value::Null;
            bodies.push(answer.body);
        }
        assert_eq!(bodies[0], bodies[1]);
    }
    let list = board.call(Method::GET, "/api/v1/previews", &other, &Value::Null).await.ok();
    assert_eq!(list["previews"], json!([]));
    assert_eq!(of(&board, build).await["status"], "running");
    assert_eq!(board.get("/api/v1/previews/seven").await.said(), (400, "bad_request"));
}

#[tokio::test]
async fn an_extension_counts_from_now_up_to_what_the_plan_allows() {
    let board = board().await;
    let mut host = FakeHost::of(&board);
    let build = running(&board, &mut host).await;
    let path = format!("{}/extend", path(&of(&board, build).await));
    let extend = async |body: Value| board.call(Method::POST, &path, &board.api, &body).await;
    let left = "select round(extract(epoch from expires_at - clock_timestamp()))::bigint from previews";
    board.execute("update previews set expires_at = clock_timestamp() + interval '60 s'").await;
    let _ = extend(json!({ "ttl_seconds": 600 })).await.ok();
    assert!((599..=600).contains(&board.number(left).await));
    let _ = extend(json!({ "ttl_seconds": 60 })).await.ok();
    assert!((598..=600).contains(&board.number(left).await), "never shorter");
    let _ = extend(Value::Null).await.ok();
    assert!((3598..=3600).contains(&board.number(left).await), "as long as its pipeline says");
    for (seconds, field) in [(86_401, "ttl_seconds"), (0, "ttl_seconds")] {
        let answer = extend(json!({ "ttl_seconds": seconds })).await;
        assert_eq!((answer.said(), &answer.body["field"]), ((422, "invalid"), &json!(field)), "{seconds}");
    }
    assert_eq!(extend(json!({ "ttl": 5 })).await.said(), (400, "bad_request"));
    board.plans("preview_seconds_max = 100").await;
    board.execute("update previews set expires_at = clock_timestamp() + interval '60 s'").await;
    let _ = extend(Value::Null).await.ok();
    assert!((99..=100).contains(&board.number(left).await), "the plan was lowered");
    board.execute("delete from plans").await;
    assert_eq!(extend(Value::Null).await.said(), (503, "billing_unavailable"));
}

#[tokio::test]
async fn what_has_ended_is_not_extended() {
    let board = board().await;
    let mut host = FakeHost::of(&board);
    let build = running(&board, &mut host).await;
    let path = format!("{}/extend", path(&of(&board, build).await));
    destroy(&board, build).await;
    let answer = board.call(Method::POST, &path, &board.api, &Value::Null).await;
    assert_eq!(answer.said(), (409, "preview_ended"));
    assert!(answer.body["detail"].as_str().is_some_and(|detail| detail.contains("destroying")));
}

#[tokio::test]
async fn a_stale_version_is_refused_and_changes_nothing() {
    let board = board().await;
    let mut host = FakeHost::of(&board);
    let build = running(&board, &mut host).await;
    let seen = of(&board, build).await;
    let path = path(&seen);
    let extended = if_match(&board, Method::POST, &format!("{path}/extend"), &seen["version"]).await.ok();
    assert_eq!(extended["version"].as_i64(), seen["version"].as_i64().map(|version| version + 1));
    for (method, path) in [(Method::POST, format!("{path}/extend")), (Method::DELETE, path.clone())] {
        let answer = if_match(&board, method, &path, &seen["version"]).await;
        assert_eq!(answer.said(), (412, "concurrent_update"));
        assert_eq!(of(&board, build).await, extended);
    }
    let gone = if_match(&board, Method::DELETE, &path, &extended["version"]).await.ok();
    assert_eq!((&gone["status"], gone["url"].is_string()), (&json!("destroying"), false));
}

#[tokio::test]
async fn a_destroy_is_idempotent_in_every_state() {
    let board = board().await;
    let mut host = FakeHost::of(&board);
    let build = running(&board, &mut host).await;
    let first = destroy(&board, build).await;
    assert_eq!(destroy(&board, build).await, first);
    host.settle(&board).await;
    let gone = of(&board, build).await;
    assert_eq!((&gone["status"], destroy(&board, build).await), (&json!("destroyed"), gone.clone()));
    holds_together(&board).await;
}

#[tokio::test]
async fn a_failed_preview_with_its_evidence_is_kept_until_somebody_destroys_it() {
    let board = super::board_with(&json!({ "retain_failed": true })).await;
    let mut host = FakeHost::of(&board);
    let build = running(&board, &mut host).await;
    host.fails(build, rules::preview::Stage::Run);
    host.settle(&board).await;
    board.execute("update previews set expires_at = clock_timestamp() - interval '1 day'").await;
    let _ = board.sweep().await;
    host.settle(&board).await;
    assert_eq!(of(&board, build).await["status"], "failed");
    destroy(&board, build).await;
    host.settle(&board).await;
    assert_eq!(of(&board, build).await["status"], "destroyed");
}

#[tokio::test]
async fn the_workspace_shows_its_previews_and_what_its_plan_allows() {
    let board = board().await;
    let usage = board.usage().await;
    assert_eq!((&usage["previews"], &usage["limits"]["previews_max"]), (&json!(0), &json!(4)));
    running(&board, &mut FakeHost::of(&board)).await;
    assert_eq!(board.usage().await["previews"], 1);
    let plan = json!({ "minutes_per_month": 5, "previews_max": 7, "preview_seconds_max": 600 });
    let path = "/api/v1/admin/workspaces/acme/plan";
    let _ = board.call(Method::PUT, path, &board.operator, &plan).await.ok();
    let limits = &board.usage().await["limits"];
    assert_eq!((&limits["previews_max"], &limits["preview_seconds_max"]), (&json!(7), &json!(600)));
    for (field, value) in [("previews_max", 1_000_001), ("preview_seconds_max", 0), ("preview_seconds_max", 86_401)] {
        let mut plan = plan.clone();
        plan[field] = json!(value);
        let answer = board.call(Method::PUT, path, &board.operator, &plan).await;
        assert_eq!((answer.said(), &answer.body["field"]), ((422, "invalid"), &json!(field)));
    }
}

#[tokio::test]
async fn the_metrics_count_what_lives_what_is_being_destroyed_and_ports() {
    let board = board().await;
    let mut host = FakeHost::of(&board);
    let build = running(&board, &mut host).await;
    running(&board, &mut host).await;
    destroy(&board, build).await;
    let answer = board.get("/metrics").await;
    let text = String::from_utf8(answer.bytes).expect("text");
    for line in ["callboard_previews_live 1", "callboard_previews_destroying 1", "callboard_port_leases 2"] {
        assert!(text.contains(&format!("\n{line}\n")), "{line}: {text}");
    }
}
