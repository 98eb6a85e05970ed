//! Which build a worker gets, and which workspaces are skipped (SPEC.md, Claim).

use crate::Board;
use http::{Method, StatusCode};
use serde_json::{Value, json};
use uuid::Uuid;

#[tokio::test]
async fn the_oldest_build_of_all_workspaces_goes_first() {
    let board = Board::new().await;
    let other = board.tenant("umbrella", json!({ "minutes_per_month": 1000 })).await;
    let first = board.submit_as(&other).await;
    let second = board.submit().await;
    let third = board.submit_as(&other).await;
    for expected in [Some(first), Some(second), Some(third), None] {
        assert_eq!(board.claim().await, expected);
    }
    board.holds_together().await;
}

#[tokio::test]
async fn nothing_to_do_is_204_with_retry_after() {
    let board = Board::new().await;
    let answer = board.claim_as(&board.worker, Uuid::new_v4()).await;
    assert_eq!(answer.status, StatusCode::NO_CONTENT);
    let after: u32 = answer.headers["retry-after"].to_str().ok().and_then(|s| s.parse().ok()).expect("seconds");
    assert!((1..=15).contains(&after));
}

#[tokio::test]
async fn a_repeated_claim_id_gets_the_same_job_and_renews_the_lease() {
    let board = Board::new().await;
    let build = board.submit().await;
    board.submit().await;
    let claim = Uuid::new_v4();
    let mut first = board.claim_as(&board.worker, claim).await.ok();
    board.age(build, 50).await;
    let mut again = board.claim_as(&board.worker, claim).await.ok();
    for job in [&mut first, &mut again] {
        job["deadline_in_ms"] = Value::Null;
    }
    assert_eq!(first, again);
    let left = format!("select extract(epoch from lease_expires_at - now())::bigint from builds where id = '{build}'");
    assert!(board.number(&left).await > 50);
    board.holds_together().await;
}

#[tokio::test]
async fn a_claim_id_whose_build_has_ended_is_409() {
    let board = Board::new().await;
    let build = board.submit().await;
    let claim = Uuid::new_v4();
    let _ = board.claim_as(&board.worker, claim).await.ok();
    let _ = board.complete(build, &json!({ "status": "success", "ran_ms": 1 })).await.ok();
    let answer = board.claim_as(&board.worker, claim).await;
    assert_eq!(answer.said(), (409, "build_ended"));
    assert_eq!(answer.body["build_status"], "success");
}

#[tokio::test]
async fn another_tokens_claim_id_is_another_claim() {
    let board = Board::new().await;
    let (first, second) = (board.submit().await, board.submit().await);
    let other = board.token(protocol::admin::TokenKind::Worker, None).await;
    let claim = Uuid::new_v4();
    assert_eq!(board.claim_as(&board.worker, claim).await.id(), first);
    assert_eq!(board.claim_as(&other, claim).await.id(), second);
}

#[tokio::test]
async fn an_unknown_or_revoked_or_other_token_claims_nothing() {
    let board = Board::new().await;
    let build = board.submit().await;
    for token in ["nonsense", board.api.as_str(), board.operator.as_str()] {
        assert_eq!(board.claim_as(token, Uuid::new_v4()).await.said(), (401, "unauthorized"));
    }
    let id = edge::WorkerToken::of(&board.worker).id;
    let revoke = format!("/api/v1/admin/tokens/{id}");
    let answer = board.call(Method::DELETE, &revoke, &board.operator, &Value::Null).await;
    assert!(answer.status.is_success(), "{}", answer.body);
    assert_eq!(board.claim_as(&board.worker, Uuid::new_v4()).await.said(), (401, "unauthorized"));
    assert_eq!(board.build(build).await["status"], "pending");
}

#[tokio::test]
async fn a_workspace_without_a_readable_plan_never_delays_another() {
    let board = Board::new().await;
    let first = board.submit().await;
    let other = board.tenant("umbrella", json!({ "minutes_per_month": 1000 })).await;
    let second = board.submit_as(&other).await;
    board.execute("delete from plans using workspaces where id = workspace_id and slug = 'acme'").await;
    assert_eq!(board.claim().await, Some(second));
    assert_eq!(board.claim().await, None);
    let seen = board.build(first).await;
    assert_eq!((&seen["status"], &seen["waiting_for"]), (&json!("pending"), &json!("billing")));
}

#[tokio::test]
async fn a_workspace_at_its_running_limit_waits_and_never_delays_another() {
    let board = Board::new().await;
    board.plans("running_max = 1").await;
    let (first, second) = (board.submit().await, board.submit().await);
    let other = board.tenant("umbrella", json!({ "minutes_per_month": 1000 })).await;
    let third = board.submit_as(&other).await;
    assert_eq!(board.claim().await, Some(first));
    assert_eq!(board.claim().await, Some(third));
    assert_eq!(board.claim().await, None);
    assert_eq!(board.build(second).await["waiting_for"], "running_limit");
    let _ = board.complete(first, &json!({ "status": "success", "ran_ms": 1 })).await.ok();
    assert_eq!(board.claim().await, Some(second));
    board.holds_together().await;
}

#[tokio::test]
async fn reserved_minutes_make_a_build_wait_and_a_release_lets_it_go() {
    let board = Board::new().await;
    let api = board.tenant("small", json!({ "minutes_per_month": 45, "running_max": 10 })).await;
    let (first, second) = (board.submit_as(&api).await, board.submit_as(&api).await);
    assert_eq!(board.claim().await, Some(first));
    assert_eq!(board.claim().await, None, "30 of 45 minutes are reserved, the second asks for 30");
    let seen = board.call(Method::GET, &format!("/api/v1/builds/{second}"), &api, &Value::Null).await.ok();
    assert_eq!(seen["waiting_for"], "minutes");
    let _ = board.complete(first, &json!({ "status": "success", "ran_ms": 1 })).await.ok();
    assert_eq!(board.claim().await, Some(second));
    board.holds_together().await;
}

#[tokio::test]
async fn a_deadline_is_the_shorter_of_30_minutes_and_what_is_left() {
    let board = Board::new().await;
    for (minutes, expected) in [(10, 600), (30, 1800), (31, 1800)] {
        let api = board.tenant(&format!("m{minutes}"), json!({ "minutes_per_month": minutes })).await;
        board.submit_as(&api).await;
        let job = board.claim_as(&board.worker, Uuid::new_v4()).await.ok();
        assert_eq!(job["max_duration_seconds"], expected, "{minutes} minutes left");
    }
}

#[tokio::test]
async fn a_pipelines_own_shorter_timeout_is_what_is_reserved() {
    let board = Board::new().await;
    let mut spec = crate::scenario::pipeline();
    spec["timeout_seconds"] = json!(90);
    board.pipeline(&board.api, "main", &spec).await;
    board.submit().await;
    let job = board.claim_as(&board.worker, Uuid::new_v4()).await.ok();
    assert_eq!(job["max_duration_seconds"], 90);
    assert_eq!(board.usage().await["reserved_seconds"], 90);
}

#[tokio::test]
async fn a_spent_month_delays_no_other_workspace_and_the_sweep_fails_its_builds_with_the_reason() {
    let board = Board::new().await;
    let first = board.submit().await;
    let other = board.tenant("umbrella", json!({ "minutes_per_month": 1000 })).await;
    let second = board.submit_as(&other).await;
    board.spend("acme").await;
    assert_eq!(board.claim().await, Some(second));
    assert_eq!(board.build(first).await["waiting_for"], "minutes");
    assert_eq!(board.sweep().await["expired"], 1);
    let seen = board.build(first).await;
    assert_eq!((&seen["status"], &seen["end_reason"]), (&json!("failed"), &json!("minutes_exhausted")));
    assert_eq!((&seen["charged_seconds"], &seen["started_at"]), (&json!(0), &Value::Null));
}

#[tokio::test]
async fn a_claim_ends_at_most_ten_and_the_sweep_does_the_rest() {
    let board = Board::new().await;
    for _ in 0..15 {
        board.submit().await;
    }
    let answer = board.call(Method::DELETE, "/api/v1/pipelines/main", &board.api, &Value::Null).await;
    assert!(answer.status.is_success(), "{}", answer.body);
    let other = board.tenant("umbrella", json!({ "minutes_per_month": 1000 })).await;
    let last = board.submit_as(&other).await;
    assert_eq!(board.claim().await, Some(last));
    let failed = "select count(*) from builds where end_reason = 'no_pipeline'";
    assert_eq!(board.number(failed).await, 10);
    assert_eq!(board.sweep().await["expired"], 5);
    assert_eq!(board.number(failed).await, 15);
}

#[tokio::test]
async fn a_build_whose_pipeline_is_gone_fails_and_the_claim_goes_on() {
    let board = Board::new().await;
    let first = board.submit().await;
    let answer = board.call(Method::DELETE, "/api/v1/pipelines/main", &board.api, &Value::Null).await;
    assert!(answer.status.is_success(), "{}", answer.body);
    board.pipeline(&board.api, "main", &crate::scenario::pipeline()).await;
    let second = board.submit().await;
    assert_eq!(board.claim().await, Some(second));
    assert_eq!(board.build(first).await["end_reason"], "no_pipeline");
    board.holds_together().await;
}

/// A row of a release whose rules let more pass.
async fn admitted_before(board: &Board, change: &str) -> Uuid {
    let build = board.submit().await;
    board.execute(&format!("update builds set rules_version = 0 where id = '{build}'")).await;
    board.execute(&format!("update build_specs set {change} where build_id = '{build}'")).await;
    build
}

#[tokio::test]
async fn builds_of_an_older_release_are_checked_again_and_fail_with_their_reason() {
    let board = Board::new().await;
    let cases = [
        ("repository = 'http://git.example/a.git'", "repository_not_https"),
        ("repository = 'https://u:p@git.example/a.git'", "repository_not_https"),
        ("git_ref = '--upload-pack=x'", "bad_ref"),
        ("git_ref = 'a..b'", "bad_ref"),
    ];
    let mut builds = Vec::new();
    for (change, reason) in cases {
        builds.push((admitted_before(&board, change).await, reason));
    }
    let fine = admitted_before(&board, "git_ref = 'main'").await;
    assert_eq!(board.claim().await, Some(fine));
    for (build, reason) in builds {
        let seen = board.build(build).await;
        assert_eq!((&seen["status"], &seen["end_reason"]), (&json!("failed"), &json!(reason)));
        assert_eq!((&seen["charged_seconds"], &seen["started_at"]), (&json!(0), &Value::Null));
    }
    board.holds_together().await;
}

#[tokio::test]
async fn a_job_has_the_secrets_that_its_pipeline_names_and_the_clone_secret_apart() {
    let board = Board::new().await;
    for (name, value) in [("TOKEN", "t0ps3cret"), ("CLONE", "cl0ne"), ("OTHER", "0ther")] {
        let path = format!("/api/v1/secrets/{name}");
        let answer = board.call(Method::PUT, &path, &board.api, &json!({ "value": value })).await;
        assert!(answer.status.is_success(), "{}", answer.body);
    }
    let mut spec = crate::scenario::pipeline();
    spec["secrets"] = json!(["TOKEN"]);
    spec["clone_secret"] = json!("CLONE");
    board.pipeline(&board.api, "main", &spec).await;
    board.submit().await;
    let job = board.claim_as(&board.worker, Uuid::new_v4()).await.ok();
    assert_eq!(job["secrets"], json!({ "TOKEN": "t0ps3cret" }));
    assert_eq!(job["clone_secret"], "cl0ne");
    let plain = "select count(*) from secrets where encode(ciphertext, 'escape') like '%s3cret%'";
    assert_eq!(board.number(plain).await, 0, "the database holds no value in the clear");
}

#[tokio::test]
async fn a_job_has_the_secrets_of_its_registries_apart_and_by_registry() {
    let board = Board::new().await;
    for name in ["PULL", "OTHER"] {
        let path = format!("/api/v1/secrets/{name}");
        let answer = board.call(Method::PUT, &path, &board.api, &json!({ "value": format!("me:{name}") })).await;
        assert!(answer.status.is_success(), "{}", answer.body);
    }
    let mut spec = crate::scenario::pipeline();
    spec["registry_secrets"] = json!({ "ghcr.io": "PULL", "host:5000": "PULL" });
    board.pipeline(&board.api, "main", &spec).await;
    board.submit().await;
    let job = board.claim_as(&board.worker, Uuid::new_v4()).await.ok();
    assert_eq!(job["registry_secrets"], json!({ "ghcr.io": "me:PULL", "host:5000": "me:PULL" }));
    assert_eq!(job["secrets"], json!({}), "no step sees them");
}

#[tokio::test]
async fn sql_grants_what_the_rule_grants() {
    use rules::Seconds;
    use rules::budget::{Grant, Plan, PreviewLimits, Usage, reserve};
    let board = Board::new().await;
    let build = board.submit().await;
    seen_a_moment_ago(&board).await;
    for (month, longest, charged, reserved, timeout) in [
        (6000, 1800, 0, 0, 1800),
        (6000, 1800, 5000, 0, 1800),
        (6000, 1800, 5000, 1, 1800),
        (6000, 1800, 5999, 0, 1800),
        (6000, 1800, 6000, 0, 1800),
        (6000, 600, 0, 5400, 1800),
        (6000, 600, 0, 5401, 1800),
        (6000, 1800, 0, 5990, 10),
        (6000, 1800, 0, 5991, 10),
        (10, 1800, 0, 0, 1800),
        (10, 1800, 5, 6, 1800),
    ] {
        let running = i32::from(reserved > 0);
        board.plans(&format!("seconds_per_month = {month}, build_seconds_max = {longest}")).await;
        board.execute(&format!("update builds set timeout_seconds = {timeout} where id = '{build}'")).await;
        board.execute(&format!("update queues set head_seconds = {timeout}")).await;
        board
            .execute(&format!(
                "update workspaces set charged_seconds = {charged}, reserved_seconds = {reserved}, running = {running}"
            ))
            .await;
        let plan = Plan {
            seconds_per_month: Seconds(month),
            build_seconds_max: Seconds(longest),
            running_max: 100,
            pending_max: 1000,
            previews: PreviewLimits::default(),
        };
        let usage = Usage {
            charged: Seconds(charged),
            reserved: Seconds(reserved),
            running: u32::from(reserved > 0),
            pending: 1,
        };
        let expected = match reserve(plan, usage, Seconds(timeout)) {
            Grant::Run(seconds) => ("claimed".to_owned(), Some(seconds.0)),
            Grant::Exhausted | Grant::Wait | Grant::RunningLimit => ("none".to_owned(), None),
        };
        for one in [ALONE, AMONG_OTHERS] {
            let row = claim_once(&board, one).await;
            assert_eq!(row, expected, "{one} {month} {longest} {charged} {reserved} {timeout}");
        }
    }
}

const ALONE: &str = "claim_build($1, $2, $3, 'w', '1', 'h', '{bubblewrap}', '{}', 60000, 1800, $4::smallint, 900000)";
const AMONG_OTHERS: &str =
    "claim_builds($1, $2, array[$3::uuid], '{w}', '{1}', '{h}', '{bubblewrap}', '{}', 60000, 1800,
    $4::smallint, 900000, '{}', '{}', null)";

/// Has the worker of [`claim_once`] known, so that its claim is not a first one.
async fn seen_a_moment_ago(board: &Board) {
    board
        .execute(
            "insert into workers (token_id, host_id, name, version, isolation, labels, classes, seen_at)
             select id, 'h', 'w', '1', '{bubblewrap}', '{}', array(select id from classes), now() from tokens where kind = 'worker'",
        )
        .await;
}

/// Calls a function in a transaction that is rolled back: its outcome, and what it reserved.
async fn claim_once(board: &Board, function: &str) -> (String, Option<u32>) {
    use sqlx::Row as _;
    let token = edge::WorkerToken::of(&board.worker);
    let mut tx = board.pool.begin().await.expect("a transaction");
    let row = sqlx::query(sqlx::AssertSqlSafe(format!("select outcome, build from {function}")))
        .bind(&token.id)
        .bind(&token.digest)
        .bind(Uuid::new_v4())
        .bind(rules::runnable::RULES_VERSION)
        .fetch_one(&mut *tx)
        .await
        .expect("the function answers");
    let reserved = sqlx::query("select max_duration_seconds from builds where id = $1 and status = 'running'")
        .bind(row.get::<Option<Uuid>, _>(1))
        .fetch_optional(&mut *tx)
        .await
        .expect("the build is there");
    tx.rollback().await.expect("rolled back");
    let reserved = reserved.map(|row| u32::try_from(row.get::<i32, _>(0)).expect("not negative"));
    (row.get(0), reserved)
}

#[tokio::test]
async fn steps_for_a_cancel_are_apart_from_those_that_run() {
    let board = Board::new().await;
    let mut spec = crate::scenario::pipeline();
    let only = spec["steps"][0].clone();
    spec["steps"] = json!([only, { "name": "tidy", "commands": ["./tidy"], "on_cancel": true }]);
    board.pipeline(&board.api, "main", &spec).await;
    let build = board.submit().await;
    let job = board.claim_as(&board.worker, Uuid::new_v4()).await.ok();
    assert_eq!(job["build_id"], json!(build));
    let names = |steps: &Value| steps.as_array().map(|steps| steps.iter().map(|step| step["name"].clone()).collect());
    assert_eq!(names(&job["steps"]), Some(vec![only["name"].clone()]));
    assert_eq!(names(&job["on_cancel"]), Some(vec![json!("tidy")]));
    let shown = board.build(build).await;
    assert!(!shown.to_string().contains("tidy"), "{shown}");
}
