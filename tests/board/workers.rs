//! Workers as operators see them: each with the builds that it holds itself.

use crate::Board;
use http::{Method, StatusCode};
use protocol::worker::ClaimRequest;
use serde_json::{Value, json};
use store::claims::{Fleet, Known};
use uuid::Uuid;

/// A new claim of the board's token by the worker `name` on `host`.
fn claim(host: &str, name: &str) -> Value {
    json!({ "claim_id": Uuid::new_v4(), "worker": {
        "name": name, "version": "1", "host_id": host, "isolation": ["bubblewrap"], "labels": [] } })
}

/// The workers with what they hold, as `host/name: builds`, in the order of their names.
async fn holding(board: &Board) -> Vec<String> {
    let path = "/api/v1/admin/workers";
    let list = board.call(Method::GET, path, &board.operator, &Value::Null).await.ok();
    let word = |worker: &Value, key: &str| worker[key].as_str().expect("a word").to_owned();
    let mut workers: Vec<_> = list["workers"].as_array().expect("a list").iter().collect();
    workers.sort_by_key(|worker| (word(worker, "host_id"), word(worker, "name")));
    workers
        .into_iter()
        .map(|worker| format!("{}/{}: {}", word(worker, "host_id"), word(worker, "name"), worker["running"]))
        .collect()
}

#[tokio::test]
async fn a_worker_is_listed_with_the_builds_that_it_holds_and_not_with_its_tokens() {
    let board = Board::new().await;
    // The first claim of a worker goes by the statements of many, its second by those of one.
    for (host, name) in [("h1", "a"), ("h1", "a"), ("h1", "b"), ("h2", "a"), ("h2", "a"), ("h2", "a")] {
        board.submit().await;
        let answer = board.work("claim", &claim(host, name)).await;
        assert_eq!(answer.status, StatusCode::OK, "{}", answer.body);
    }
    assert_eq!(board.work("claim", &claim("h3", "a")).await.status, StatusCode::NO_CONTENT);
    assert_eq!(holding(&board).await, ["h1/a: 2", "h1/b: 1", "h2/a: 3", "h3/a: 0"]);
    let ended = board.texts("select id::text from builds where claimed_host = 'h2' limit 1").await;
    let build = ended[0].parse().expect("an id");
    let _ = board.complete(build, &json!({ "status": "success", "ran_ms": 1 })).await.ok();
    assert_eq!(holding(&board).await, ["h1/a: 2", "h1/b: 1", "h2/a: 2", "h3/a: 0"]);
}

#[tokio::test]
async fn claims_that_are_served_together_each_keep_their_worker() {
    let board = Board::new().await;
    let mut claims: Vec<ClaimRequest> = Vec::new();
    for (host, name) in [("h2", "a"), ("h1", "b"), ("h2", "a"), ("h1", "a"), ("h1", "b"), ("h2", "a")] {
        board.submit().await;
        claims.push(serde_json::from_value(claim(host, name)).expect("a claim"));
    }
    let token = edge::WorkerToken::of(&board.worker);
    let fleet = Fleet { token: token.parts(), isolation: &["bubblewrap".into()], labels: &[] };
    let timing = &board.shell.config.timing;
    // The first is a repeat for the others.
    for together in [&claims[..1], &claims[..]] {
        let together: Vec<&ClaimRequest> = together.iter().collect();
        let served = store::claims::serve(&board.shell.store, fleet, &together, timing, &Known::default()).await;
        assert_eq!(served.expect("served").claims.len(), together.len());
    }
    assert_eq!(holding(&board).await, ["h1/a: 1", "h1/b: 2", "h2/a: 3"]);
    for claim in &claims {
        let (id, worker) = (claim.claim_id, &claim.worker);
        let kept = format!("select claimed_host || '/' || claimed_name from builds where claim_id = '{id}'");
        assert_eq!(board.texts(&kept).await, [format!("{}/{}", worker.host_id, worker.name)]);
    }
}

#[tokio::test]
async fn a_worker_that_is_busy_is_at_work_and_one_that_is_silent_without_builds_is_not() {
    let board = Board::new().await;
    for host in ["busy", "idle"] {
        board.submit().await;
        let answer = board.work("claim", &claim(host, "a")).await;
        assert_eq!(answer.status, StatusCode::OK);
    }
    let waiting = board.submit().await;
    board.execute("update workers set seen_at = seen_at - interval '1 h'").await;
    board.execute("update workers set isolation = '{docker}' where host_id = 'busy'").await;
    let path = "select id::text from builds where claimed_host = 'idle'";
    let idle = board.texts(path).await[0].parse().expect("an id");
    assert_eq!(board.build(waiting).await["waiting_for"], "capacity");
    let _ = board.complete(idle, &json!({ "status": "success", "ran_ms": 1 })).await.ok();
    assert_eq!(board.build(waiting).await["waiting_for"], "no_worker_matches");
}

#[tokio::test]
async fn a_build_that_waits_has_no_worker() {
    let board = Board::new().await;
    board.submit().await;
    for column in ["claimed_host", "claimed_name"] {
        let refused = board.try_execute(&format!("update builds set {column} = 'h1'")).await;
        assert!(refused.is_err_and(|error| error.to_string().contains("builds_pending_is_unclaimed")), "{column}");
    }
}

#[tokio::test]
async fn workers_count_that_ask_for_builds_or_hold_one_and_each_once() {
    let board = Board::new().await;
    let counted = async || store::gauges::read(&board.shell.store).await.expect("read").workers;
    assert_eq!(counted().await, 0);
    for (host, name, builds) in [("h1", "a", 2), ("h1", "b", 0), ("h2", "a", 1)] {
        for _ in 0..builds {
            board.submit().await;
        }
        for _ in 0..=builds {
            let _ = board.work("claim", &claim(host, name)).await;
        }
    }
    assert_eq!(counted().await, 3);
    // One with all its slots busy does not ask.
    board.execute("update workers set seen_at = seen_at - interval '3 min'").await;
    assert_eq!(counted().await, 2);
    board.execute("update workers set seen_at = seen_at + interval '2 min' where name = 'b'").await;
    assert_eq!(counted().await, 3);
    let metrics = board.get("/metrics").await;
    let text = String::from_utf8(metrics.bytes).expect("text");
    assert!(text.contains("\ncallboard_workers 3\n"), "{text}");
    board.execute("update tokens set revoked_at = now() where kind = 'worker'").await;
    assert_eq!(counted().await, 2, "who only asks, and is let in no more");
}
