//! What hosts say, what that changes, and what they are told.

use super::host::kept;
use super::{FakeHost, board, board_with, destroy, holds_together, of, running, succeeded};
use crate::Board;
use crate::round_trips::{count, is_counting};
use http::Method;
use protocol::admin::TokenKind;
use protocol::preview::{PortRange, REPORTS_MAX};
use rules::preview::{Order, Seen, Stage};
use serde_json::{Value, json};
use uuid::Uuid;

#[tokio::test]
async fn a_successful_build_makes_its_preview_and_another_end_makes_none() {
    let board = board().await;
    let build = succeeded(&board).await;
    let preview = of(&board, build).await;
    assert_eq!((&preview["status"], &preview["waiting_for"]), (&json!("starting"), &json!("host")), "{preview}");
    for status in ["failed", "timed_out", "cancelled"] {
        let build = board.ended(status).await;
        assert_eq!(of(&board, build).await, Value::Null, "{status}");
    }
    holds_together(&board).await;
}

#[tokio::test]
async fn a_build_without_a_preview_makes_none() {
    let board = Board::new().await;
    succeeded(&board).await;
    assert_eq!(board.number("select count(*) from previews").await, 0);
}

#[tokio::test]
async fn the_job_says_what_is_started_after_success() {
    let board = board().await;
    board.submit().await;
    let job = board.claim_as(&board.worker, Uuid::new_v4()).await.ok();
    assert_eq!((&job["preview"]["port"], &job["preview"]["health_path"]), (&json!(8080), &json!("/up")));
}

#[tokio::test]
async fn a_retry_has_the_preview_of_the_first_build() {
    let board = board().await;
    let failed = board.ended("failed").await;
    board.pipeline(&board.api, "main", &crate::scenario::pipeline()).await;
    let _ = board.call(Method::POST, &format!("/api/v1/builds/{failed}/retry"), &board.api, &Value::Null).await.ok();
    let again = board.claim().await.expect("the retry");
    let _ = board.complete(again, &json!({ "status": "success", "ran_ms": 1 })).await.ok();
    assert_eq!(of(&board, again).await["status"], "starting");
}

#[tokio::test]
async fn a_preview_counts_for_what_its_build_needs_of_a_worker() {
    let board = board_with(&json!({ "image": "nginx:1" })).await;
    let build = board.submit().await;
    assert_eq!(board.claim().await, None, "the worker has bubblewrap alone");
    assert_eq!(board.build(build).await["waiting_for"], "no_worker_matches");
}

#[tokio::test]
async fn a_preview_is_started_and_runs_with_its_address() {
    let board = board().await;
    let mut host = FakeHost::of(&board);
    let build = succeeded(&board).await;
    host.keep(build);
    host.sync(&board).await;
    assert_eq!(host.order(build), Some(Order::Start));
    assert_eq!(of(&board, build).await["waiting_for"], Value::Null);
    host.sync(&board).await;
    assert_eq!(host.order(build), Some(Order::Keep));
    let preview = of(&board, build).await;
    assert_eq!((&preview["status"], &preview["port"]), (&json!("running"), &json!(20_000)));
    assert_eq!((&preview["url"], &preview["host_id"]), (&json!("http://127.0.0.1:20000"), &json!("h1")));
    holds_together(&board).await;
}

#[tokio::test]
async fn a_workspace_of_a_build_that_still_runs_is_kept_and_of_an_unknown_one_forgotten() {
    let board = board().await;
    let mut host = FakeHost::of(&board);
    let (build, unknown) = (board.running().await, Uuid::new_v4());
    host.keep(build);
    host.keep(unknown);
    host.sync(&board).await;
    assert_eq!((host.order(build), host.order(unknown)), (Some(Order::Wait), Some(Order::Forget)));
    let _ = board.complete(build, &json!({ "status": "failed", "end_reason": "step_failed", "ran_ms": 1 })).await.ok();
    host.sync(&board).await;
    assert_eq!(host.order(build), Some(Order::Forget), "there will be no preview");
}

#[tokio::test]
async fn the_host_that_has_the_workspace_takes_the_preview_up_and_no_other_gets_it() {
    let board = board().await;
    let (mut host, mut other) = (FakeHost::of(&board), FakeHost { id: "h2".into(), ..FakeHost::of(&board) });
    let stranger = board.token(TokenKind::Worker, None).await;
    let mut stranger = FakeHost { token: stranger, ..FakeHost::of(&board) };
    let build = succeeded(&board).await;
    stranger.keep(build);
    stranger.sync(&board).await;
    assert_eq!(stranger.order(build), Some(Order::Forget), "another token, though it calls itself the same host");
    other.sync(&board).await;
    assert_eq!(other.order(build), None, "it did not say that it has the workspace");
    host.keep(build);
    host.settle(&board).await;
    other.keep(build);
    other.sync(&board).await;
    assert_eq!(other.order(build), Some(Order::Forget));
    assert_eq!(of(&board, build).await["host_id"], "h1");
    holds_together(&board).await;
}

#[tokio::test]
async fn what_is_to_start_comes_with_its_secrets_and_variables_and_nothing_else_does() {
    let board = Board::new().await;
    let mut spec = super::pipeline(&json!({ "env": { "B": "own" } }));
    spec["env"] = json!({ "A": "1", "B": "build's" });
    spec["secrets"] = json!(["TOKEN", "A", "B"]);
    spec["registry_secrets"] = json!({ "registry.example": "LOGIN" });
    board.pipeline(&board.api, "main", &spec).await;
    for name in ["TOKEN", "A", "B", "LOGIN", "OTHER"] {
        let path = format!("/api/v1/secrets/{name}");
        let _ = board.call(Method::PUT, &path, &board.api, &json!({ "value": "s3cret" })).await.ok();
    }
    let build = succeeded(&board).await;
    let mut host = FakeHost::of(&board);
    host.keep(build);
    host.sync(&board).await;
    let run = serde_json::to_value(host.told[&build].run.clone()).expect("JSON");
    assert_eq!(run["env"], json!({ "B": "own" }), "a secret hides the build's variable, and is hidden by its own");
    assert_eq!(run["secrets"], json!({ "TOKEN": "s3cret", "A": "s3cret", "B": "s3cret" }));
    assert_eq!(run["registry_secrets"], json!({ "registry.example": "s3cret" }), "for the registry alone");
    host.sync(&board).await;
    assert_eq!(host.told[&build].run, None, "it runs: nobody needs them any more");
    let shown = of(&board, build).await.to_string();
    assert!(!shown.contains("s3cret"));
}

#[tokio::test]
async fn a_preview_that_never_answers_fails_with_its_stage_and_what_it_wrote() {
    let board = board_with(&json!({ "retain_failed": true })).await;
    let mut host = FakeHost::of(&board);
    let build = succeeded(&board).await;
    host.keep(build);
    host.sync(&board).await;
    host.fails(build, Stage::Start);
    let report = host.previews.get_mut(&build).expect("its report");
    report.message = Some("no answer on /up within 60 s".into());
    report.log_tail = Some("x".repeat(20_000) + "é last words\0");
    host.sync(&board).await;
    let preview = of(&board, build).await;
    assert_eq!((&preview["status"], &preview["stage"]), (&json!("failed"), &json!("start")), "{preview}");
    assert_eq!(preview["message"], "no answer on /up within 60 s");
    let whole = board.get(&super::path(&preview)).await.ok();
    let log = whole["log_tail"].as_str().expect("a log");
    assert!(log.ends_with("é last words") && log.len() <= 16_384 && preview["log_tail"] == Value::Null);
    assert_eq!(host.order(build), Some(Order::Keep), "it is stopped, and kept as evidence");
    holds_together(&board).await;
}

#[tokio::test]
async fn what_a_running_preview_writes_is_kept_without_a_new_version() {
    let board = board().await;
    let (mut host, mut other) = (FakeHost::of(&board), FakeHost { id: "h2".into(), ..FakeHost::of(&board) });
    let build = running(&board, &mut host).await;
    let before = of(&board, build).await;
    let says = |tail: &str| Some(tail.to_owned());
    host.previews.get_mut(&build).expect("its report").log_tail = says("first\0 line\n");
    host.sync(&board).await;
    let whole = board.get(&super::path(&before)).await.ok();
    assert_eq!((&whole["log_tail"], &whole["version"]), (&json!("first line\n"), &before["version"]));
    other.previews.insert(build, protocol::preview::PreviewReport { log_tail: says("a stranger's"), ..kept(build) });
    other.sync(&board).await;
    host.previews.get_mut(&build).expect("its report").log_tail = None;
    host.sync(&board).await;
    assert_eq!(board.get(&super::path(&before)).await.ok()["log_tail"], "first line\n");
    host.fails(build, Stage::Run);
    host.previews.get_mut(&build).expect("its report").log_tail = says("last words\n");
    host.sync(&board).await;
    host.previews.get_mut(&build).expect("its report").log_tail = says("too late\n");
    host.sync(&board).await;
    assert_eq!(board.get(&super::path(&before)).await.ok()["log_tail"], "last words\n");
    holds_together(&board).await;
}

#[tokio::test]
async fn a_back_end_that_can_hold_no_preview_fails_it_as_unsupported() {
    let board = board().await;
    let mut host = FakeHost::of(&board);
    let build = succeeded(&board).await;
    host.keep(build);
    host.fails(build, Stage::Unsupported);
    host.sync(&board).await;
    assert_eq!(of(&board, build).await["stage"], "unsupported");
}

#[tokio::test]
async fn a_stage_of_a_newer_worker_reads_as_internal() {
    let board = board().await;
    let build = succeeded(&board).await;
    let mut sync = serde_json::to_value(FakeHost::of(&board).says()).expect("JSON");
    sync["previews"] = json!([{ "build_id": build, "state": "failed", "stage": "telepathy", "newer": 1 }]);
    let _ = board.work("previews/sync", &sync).await.ok();
    assert_eq!(of(&board, build).await["stage"], "internal");
}

#[tokio::test]
async fn a_sync_doubled_late_or_overtaken_changes_nothing() {
    let board = board().await;
    let mut host = FakeHost::of(&board);
    let build = succeeded(&board).await;
    host.keep(build);
    let first = host.says();
    host.sync(&board).await;
    let second = host.says();
    host.settle(&board).await;
    let before = of(&board, build).await;
    let mut failed = second.clone();
    failed.previews[0].state = Seen::Failed;
    for late in [&first, &second, &second, &failed] {
        let _ = host.send(&board, late).await.ok();
        assert_eq!(of(&board, build).await, before);
    }
    holds_together(&board).await;
}

#[tokio::test]
async fn a_restart_that_finds_nothing_fails_the_preview_as_recovery() {
    let board = board().await;
    let mut host = FakeHost::of(&board);
    let build = running(&board, &mut host).await;
    let version = host.previews[&build].version;
    host.previews.insert(build, protocol::preview::PreviewReport { version, ..kept(build) });
    host.sync(&board).await;
    let preview = of(&board, build).await;
    assert_eq!((&preview["status"], &preview["stage"]), (&json!("failed"), &json!("recovery")));
    assert_eq!(board.number("select count(*) from port_leases").await, 0);
    holds_together(&board).await;
}

#[tokio::test]
async fn a_host_that_forgot_all_learns_what_it_holds() {
    let board = board().await;
    let mut host = FakeHost::of(&board);
    let build = running(&board, &mut host).await;
    let mut blank = FakeHost::of(&board);
    blank.sync(&board).await;
    assert_eq!(blank.order(build), Some(Order::Keep));
    blank.sync(&board).await;
    assert_eq!(of(&board, build).await["stage"], "recovery", "it knows the version now, and says that nothing runs");
}

#[tokio::test]
async fn a_destroyed_preview_is_confirmed_by_its_host_once_its_port_is_free() {
    let board = board().await;
    let mut host = FakeHost::of(&board);
    let build = running(&board, &mut host).await;
    assert_eq!(destroy(&board, build).await["status"], "destroying");
    let mut half = host.clone();
    half.sync(&board).await;
    assert_eq!(half.order(build), Some(Order::Destroy));
    let report = half.previews.get_mut(&build).expect("its report");
    report.port = Some(20_000);
    report.message = Some("the port is still bound".into());
    half.sync(&board).await;
    let preview = of(&board, build).await;
    assert_eq!((&preview["status"], &preview["message"]), (&json!("destroying"), &json!("the port is still bound")));
    assert_eq!(board.number("select count(*) from port_leases").await, 1);
    half.settle(&board).await;
    let preview = of(&board, build).await;
    assert_eq!((&preview["status"], &preview["port"]), (&json!("destroyed"), &Value::Null), "{preview}");
    assert!(preview["destroyed_at"].is_string());
    assert_eq!(board.number("select count(*) from port_leases").await, 0);
    holds_together(&board).await;
}

#[tokio::test]
async fn with_200_live_previews_a_sync_is_one_statement_and_starting_them_all_three() {
    let board = board().await;
    if !is_counting(&board).await {
        return;
    }
    board.plans("previews_max = 1000").await;
    let mut host = FakeHost::of(&board);
    for _ in 0..200 {
        host.keep(succeeded(&board).await);
    }
    let starting = host.says();
    assert_eq!(count(&board, async { host.send(&board, &starting).await.ok() }).await, 3, "note, write, what to run");
    host.settle(&board).await;
    assert_eq!(board.number("select count(*) from previews where status = 'running'").await, 200);
    let steady = host.says();
    assert_eq!(count(&board, async { host.send(&board, &steady).await.ok() }).await, 1);
    holds_together(&board).await;
}

#[tokio::test]
async fn a_sync_wants_a_worker_token_that_is_not_revoked() {
    let board = board().await;
    let host = FakeHost::of(&board);
    let as_web_app = FakeHost { token: board.api.clone(), ..host.clone() };
    assert_eq!(as_web_app.send(&board, &host.says()).await.said(), (401, "unauthorized"));
    board.execute("update tokens set revoked_at = now() where kind = 'worker'").await;
    assert_eq!(host.send(&board, &host.says()).await.said(), (401, "unauthorized"));
    assert_eq!(board.number("select count(*) from preview_hosts").await, 0);
}

#[tokio::test]
async fn what_no_host_says_is_refused_by_its_field() {
    let board = board().await;
    let host = FakeHost::of(&board);
    let build = Uuid::new_v4();
    let running = protocol::preview::PreviewReport { state: Seen::Running, port: Some(1), ..kept(build) };
    let with = |url: &str| protocol::preview::PreviewReport { url: Some(url.into()), ..running.clone() };
    for (sync, field) in [
        (protocol::preview::PreviewSync { host_id: String::new(), ..host.says() }, "host_id"),
        (protocol::preview::PreviewSync { host_id: "a\0".into(), ..host.says() }, "host_id"),
        (protocol::preview::PreviewSync { ports: PortRange { first: 0, last: 1 }, ..host.says() }, "ports"),
        (protocol::preview::PreviewSync { ports: PortRange { first: 2, last: 1 }, ..host.says() }, "ports"),
        (protocol::preview::PreviewSync { previews: vec![kept(build), kept(build)], ..host.says() }, "previews"),
        (
            protocol::preview::PreviewSync {
                previews: (0..=REPORTS_MAX).map(|_| kept(Uuid::new_v4())).collect(),
                ..host.says()
            },
            "previews",
        ),
        (protocol::preview::PreviewSync { previews: vec![running.clone()], ..host.says() }, "previews[0].url"),
        (protocol::preview::PreviewSync { previews: vec![with("javascript:1")], ..host.says() }, "previews[0].url"),
        (protocol::preview::PreviewSync { previews: vec![with("http://a b")], ..host.says() }, "previews[0].url"),
    ] {
        let answer = host.send(&board, &sync).await;
        assert_eq!((answer.said(), answer.body["field"].as_str()), ((422, "invalid"), Some(field)), "{}", answer.body);
    }
}
