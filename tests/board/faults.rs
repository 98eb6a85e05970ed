//! A process that dies at each fail point: what it had not committed is as if never begun, what it had is kept, and the
//! same call again, to another process, comes to the right end.

use crate::Board;
use crate::scenario::Answer;
use http::Method;
use serde_json::{Value, json};
use std::io::{BufRead as _, BufReader};
use std::process::{Child, Command, Stdio};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use uuid::Uuid;

/// The functions in a process that dies at a fail point.
pub(crate) struct Doomed {
    process: Child,
    address: String,
}

impl Doomed {
    pub(crate) fn at(board: &Board, point: &str) -> Self {
        let url = board.shell.config.database_url.clone();
        let mut process = Command::new(env!("CARGO_BIN_EXE_doomed"))
            .args([point, &url])
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .expect("the doomed process starts");
        let mut address = String::new();
        let stdout = process.stdout.take().expect("its output");
        BufReader::new(stdout).read_line(&mut address).expect("its address");
        Self { process, address: address.trim().to_owned() }
    }

    /// Sends a request that the process does not live to answer.
    pub(crate) async fn last_words(mut self, method: &Method, path: &str, token: &str, headers: &str, body: &Value) {
        let body = if body.is_null() { String::new() } else { body.to_string() };
        let request = format!(
            "{method} {path} HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {token}\r\n{headers}content-type: application/json\r\n\
             content-length: {}\r\nconnection: close\r\n\r\n{body}",
            body.len()
        );
        let mut stream = tokio::net::TcpStream::connect(&self.address).await.expect("connected");
        stream.write_all(request.as_bytes()).await.expect("sent");
        let mut answer = Vec::new();
        let _ = stream.read_to_end(&mut answer).await;
        assert_eq!(String::from_utf8_lossy(&answer), "", "it answered, so the fail point was never reached");
        let status = self.process.wait().expect("it ended");
        assert!(!status.success());
    }
}

impl Drop for Doomed {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// Sessions of the dead process hold their locks until the server notices; waits for that.
async fn settled(board: &Board) {
    let others = "select count(*) from pg_stat_activity
        where datname = current_database() and application_name = 'callboard' and state <> 'idle'";
    while board.number(others).await > 0 {
        tokio::task::yield_now().await;
    }
}

pub(crate) async fn again(board: &Board, method: Method, path: &str, token: &str, body: &Value) -> Answer {
    settled(board).await;
    board.holds_together().await;
    let answer = board.call(method, path, token, body).await;
    board.holds_together().await;
    answer
}

#[tokio::test]
async fn a_submit_that_died_is_done_once_when_repeated_with_its_key() {
    for point in ["admission.locked", "admission.inserted", "admission.committed"] {
        let board = Board::new().await;
        let body = json!({ "pipeline": "main" });
        let doomed = Doomed::at(&board, point);
        doomed.last_words(&Method::POST, "/api/v1/builds", &board.api, "idempotency-key: k\r\n", &body).await;
        settled(&board).await;
        board.holds_together().await;
        let before = board.number("select count(*) from builds").await;
        assert_eq!(before, i64::from(point == "admission.committed"), "{point}");
        let request = http::Request::post("/api/v1/builds")
            .header("authorization", format!("Bearer {}", board.api))
            .header("content-type", "application/json")
            .header("idempotency-key", "k")
            .body(axum::body::Body::from(body.to_string()))
            .expect("a request");
        assert_eq!(board.send(request).await.status.as_u16(), 201, "{point}");
        assert_eq!(board.number("select count(*) from builds").await, 1, "{point}");
        board.holds_together().await;
    }
}

#[tokio::test]
async fn a_claim_that_died_gives_its_build_when_repeated() {
    for point in ["claim.asked", "claim.taken"] {
        let board = Board::new().await;
        let build = board.submit().await;
        board.submit().await;
        let claim = Uuid::new_v4();
        let body = json!({ "claim_id": claim, "worker": { "name": "w", "isolation": ["bubblewrap"] } });
        let path = "/internal/worker/claim";
        Doomed::at(&board, point).last_words(&Method::POST, path, &board.worker, "", &body).await;
        assert_eq!(again(&board, Method::POST, path, &board.worker, &body).await.id(), build, "{point}");
        assert_eq!(board.number("select count(*) from builds where status = 'running'").await, 1, "{point}");
    }
}

#[tokio::test]
async fn a_claim_that_died_while_ending_what_cannot_run_goes_on() {
    let board = Board::new().await;
    board.submit().await;
    board.execute("delete from pipelines").await;
    let body = json!({ "claim_id": Uuid::new_v4(), "worker": { "name": "w", "isolation": ["bubblewrap"] } });
    let path = "/internal/worker/claim";
    Doomed::at(&board, "pending.ended").last_words(&Method::POST, path, &board.worker, "", &body).await;
    assert_eq!(again(&board, Method::POST, path, &board.worker, &body).await.status.as_u16(), 204);
    assert_eq!(board.number("select count(*) from builds where end_reason = 'no_pipeline'").await, 1);
}

#[tokio::test]
async fn a_heartbeat_that_died_is_repeated() {
    for point in ["heartbeat.asked", "heartbeat.renewed"] {
        let board = Board::new().await;
        let build = board.running().await;
        let path = format!("/internal/worker/builds/{build}/heartbeat");
        Doomed::at(&board, point).last_words(&Method::POST, &path, &board.worker, "", &json!({})).await;
        assert_eq!(again(&board, Method::POST, &path, &board.worker, &json!({})).await.status.as_u16(), 200, "{point}");
    }
}

#[tokio::test]
async fn chunks_of_a_call_that_died_are_stored_once() {
    for point in ["logs.appended", "logs.inserted", "logs.advanced", "logs.committed"] {
        let board = Board::new().await;
        let build = board.running().await;
        let _ = board.send_logs(build, &[(1, "a")]).await.ok();
        // With a duplicate in front the batch takes the path under the lock.
        let first = if point == "logs.appended" { 2 } else { 1 };
        let chunk = |seq: u64, text: &str| json!({ "seq": seq, "stream": "stdout", "text": text });
        let all = [chunk(1, "a"), chunk(2, "b"), chunk(3, "c")];
        let body = json!({ "chunks": all[first - 1..] });
        let path = format!("/internal/worker/builds/{build}/logs");
        Doomed::at(&board, point).last_words(&Method::POST, &path, &board.worker, "", &body).await;
        assert_eq!(again(&board, Method::POST, &path, &board.worker, &body).await.ok()["next_seq"], 4, "{point}");
        assert_eq!(board.number("select count(*) from build_logs").await, 3, "{point}");
    }
}

#[tokio::test]
async fn a_complete_that_died_is_charged_once_when_repeated() {
    for point in ["finish.decided", "finish.written"] {
        let board = Board::new().await;
        let build = board.running().await;
        board.age(build, 10).await;
        let body = json!({ "status": "success", "ran_ms": 5000 });
        let path = format!("/internal/worker/builds/{build}/complete");
        Doomed::at(&board, point).last_words(&Method::POST, &path, &board.worker, "", &body).await;
        let answer = again(&board, Method::POST, &path, &board.worker, &body).await.ok();
        assert_eq!(answer, json!({ "status": "success", "duration_ms": 5000, "charged_seconds": 5 }), "{point}");
        assert_eq!(board.number("select sum(seconds) from charges").await, 5, "{point}");
    }
}

#[tokio::test]
async fn a_cancel_that_died_is_repeated() {
    for (point, running) in [("pending.ended", false), ("cancel.requested", true)] {
        let board = Board::new().await;
        let build = if running { board.running().await } else { board.submit().await };
        let path = format!("/api/v1/builds/{build}/cancel");
        Doomed::at(&board, point).last_words(&Method::POST, &path, &board.api, "", &Value::Null).await;
        let seen = again(&board, Method::POST, &path, &board.api, &Value::Null).await.ok();
        assert!(seen["status"] == "cancelled" || seen["cancel_requested"] == true, "{point}: {seen}");
    }
}

#[tokio::test]
async fn a_sweep_that_died_is_finished_by_the_next() {
    for point in [
        "sweep.read",
        "sweep.begun",
        "finish.decided",
        "finish.written",
        "sweep.rolled",
        "pending.ended",
        "sweep.purged",
    ] {
        let board = Board::new().await;
        let (lost, other, waiting) = (board.running().await, board.running().await, board.submit().await);
        for build in [lost, other] {
            board.age(build, 300).await;
        }
        board.age(waiting, 25 * 3600).await;
        board.execute("update sweeps set month_rolled = (month_rolled - interval '1 month')::date").await;
        let path = "/api/v1/admin/sweep";
        Doomed::at(&board, point).last_words(&Method::POST, path, &board.operator, "", &Value::Null).await;
        let _ = again(&board, Method::POST, path, &board.operator, &Value::Null).await.ok();
        for build in [lost, other] {
            assert_eq!(board.build(build).await["end_reason"], "worker_lost", "{point}");
        }
        assert_eq!(board.build(waiting).await["end_reason"], "queue_expired", "{point}");
        assert_eq!(board.number("select count(*) from charges").await, 2, "{point}");
    }
}
