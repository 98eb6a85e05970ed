//! Who gets a build's job by its log token: one fetcher per claim, while the claim holds (docs/decisions/0015).

mod cases;

use crate::Board;
use crate::faults::Doomed;
use crate::scenario::Answer;
use axum::body::Body;
use futures::future::join_all;
use http::{Method, Request};
use protocol::admin::TokenKind;
use rules::Status;
use serde_json::{Value, json};
use uuid::Uuid;

/// The states that a build can be in once it was claimed.
pub(crate) fn claimed_states() -> impl Iterator<Item = Status> {
    Status::ALL.iter().copied().filter(|status| *status != Status::Pending)
}

/// A build that a worker holds, by its job.
pub(crate) struct Held {
    pub(crate) build: Uuid,
    job: Value,
}

impl Held {
    pub(crate) async fn by(board: &Board, worker: &str) -> Self {
        board.submit().await;
        let job = board.claim_as(worker, Uuid::new_v4()).await.ok();
        Self { build: job["build_id"].as_str().and_then(|id| id.parse().ok()).expect("an id"), job }
    }

    pub(crate) async fn new(board: &Board) -> Self {
        Self::by(board, &board.worker).await
    }

    /// Brings the build to a state that it can be in once it was claimed.
    pub(crate) async fn become_so(&self, board: &Board, status: Status) {
        if status == Status::Cancelled {
            let path = format!("/api/v1/builds/{}/cancel", self.build);
            let _ = board.call(Method::POST, &path, &board.api, &Value::Null).await.ok();
        }
        if status.is_final() {
            let _ = board.complete(self.build, &json!({ "status": status, "ran_ms": 1 })).await.ok();
        }
    }

    pub(crate) fn token(&self) -> &str {
        self.job["log_token"].as_str().expect("a token")
    }

    pub(crate) async fn fetch(&self, board: &Board, fetcher: Uuid) -> Answer {
        fetch_by(board, self.build, self.token(), Some(&fetcher.to_string())).await
    }
}

pub(crate) async fn fetch_by(board: &Board, build: Uuid, token: &str, fetcher: Option<&str>) -> Answer {
    let path = format!("/internal/worker/builds/{build}/job");
    let mut request = Request::get(path).header("authorization", format!("Bearer {token}"));
    if let Some(fetcher) = fetcher {
        request = request.header("fetch-id", fetcher);
    }
    board.send(request.body(Body::empty()).expect("a request")).await
}

/// What is in the job of a pipeline that names secrets for everybody.
async fn with_secrets(board: &Board) {
    for (name, value) in
        [("TOKEN", "for-steps"), ("CLONE", "for-the-clone"), ("REGISTRY", "for-a-registry"), ("OTHER", "x")]
    {
        let path = format!("/api/v1/secrets/{name}");
        let _ = board.call(Method::PUT, &path, &board.api, &json!({ "value": value })).await.ok();
    }
    let spec = json!({
        "repository": "https://git.example/acme/app.git", "env": { "LEVEL": "full" }, "secrets": ["TOKEN"], "clone_secret": "CLONE",
        "registry_secrets": { "registry.example": "REGISTRY" },
        "steps": [{ "name": "test", "commands": ["make test"] }, { "name": "tidy", "commands": ["make clean"], "on_cancel": true }] });
    board.pipeline(&board.api, "main", &spec).await;
}

/// Of two jobs of one build, what does not depend on when they were asked for.
fn lasting(job: &Value) -> Value {
    let mut job = job.clone();
    let _ = job.as_object_mut().expect("an object").remove("deadline_in_ms");
    job
}

#[tokio::test]
async fn the_first_fetcher_gets_what_the_claim_says_but_for_what_is_the_workers_alone() {
    let board = Board::new().await;
    with_secrets(&board).await;
    let held = Held::new(&board).await;
    let fetched = held.fetch(&board, Uuid::new_v4()).await.ok();
    assert_eq!(
        (&fetched["secrets"], &fetched["clone_secret"]),
        (&json!({ "TOKEN": "for-steps" }), &json!("for-the-clone"))
    );
    assert_eq!(fetched["on_cancel"][0]["name"], "tidy");
    let left = fetched["deadline_in_ms"].as_u64().expect("a number");
    assert!(left > 0 && left <= held.job["deadline_in_ms"].as_u64().expect("a number"));
    let mut expected = lasting(&held.job);
    for workers in ["log_token", "lease_ttl_ms", "lease_grace_ms", "heartbeat_every_ms", "registry_secrets"] {
        let gone = expected.as_object_mut().expect("an object").remove(workers);
        assert!(gone.is_some(), "{workers} is in the claim's answer");
    }
    assert_eq!(lasting(&fetched), expected);
    board.holds_together().await;
}

#[tokio::test]
async fn the_same_fetcher_gets_the_same_again_and_another_gets_nothing() {
    let board = Board::new().await;
    with_secrets(&board).await;
    let held = Held::new(&board).await;
    let fetcher = Uuid::new_v4();
    let first = held.fetch(&board, fetcher).await.ok();
    let second = held.fetch(&board, Uuid::new_v4()).await;
    assert_eq!(second.said(), (409, "conflict"));
    assert!(second.body["detail"].as_str().is_some_and(|words| words.contains("another fetcher has this build's job")));
    assert!(!second.body.to_string().contains("for-"), "{}", second.body);
    assert_eq!(lasting(&held.fetch(&board, fetcher).await.ok()), lasting(&first));
    // A heartbeat, a batch and the claim's repeat change nothing about it.
    let _ = board.work(&format!("builds/{}/heartbeat", held.build), &json!({})).await.ok();
    let _ = board.send_logs(held.build, &[(1, "a")]).await.ok();
    assert_eq!(held.fetch(&board, Uuid::new_v4()).await.said(), (409, "conflict"));
    let _ = held.fetch(&board, fetcher).await.ok();
    board.holds_together().await;
}

#[tokio::test]
async fn a_build_that_has_ended_gives_its_job_to_nobody() {
    let board = Board::new().await;
    let (fetched, unfetched) = (Held::new(&board).await, Held::new(&board).await);
    let fetcher = Uuid::new_v4();
    let _ = fetched.fetch(&board, fetcher).await.ok();
    for held in [&fetched, &unfetched] {
        let _ = board.complete(held.build, &json!({ "status": "success", "ran_ms": 1 })).await.ok();
        for asks in [fetcher, Uuid::new_v4()] {
            let answer = held.fetch(&board, asks).await;
            assert_eq!((answer.said(), &answer.body["build_status"]), ((409, "build_ended"), &json!("success")));
        }
    }
}

#[tokio::test]
async fn a_lapsed_lease_gives_no_job_until_it_is_renewed() {
    let board = Board::new().await;
    let held = Held::new(&board).await;
    board.age(held.build, 61).await;
    let fetcher = Uuid::new_v4();
    assert_eq!(held.fetch(&board, fetcher).await.said(), (503, "unavailable"));
    assert_eq!(board.number("select count(job_fetch_id) from builds").await, 0, "nobody has it");
    let _ = board.work(&format!("builds/{}/heartbeat", held.build), &json!({})).await.ok();
    let _ = held.fetch(&board, fetcher).await.ok();
    board.age(held.build, 61).await;
    assert_eq!(held.fetch(&board, fetcher).await.said(), (503, "unavailable"), "not again either");
}

#[tokio::test]
async fn what_a_lost_worker_held_gets_the_retry_of_another_worker_nothing() {
    let board = Board::new().await;
    let lost = Held::new(&board).await;
    let fetcher = Uuid::new_v4();
    let _ = lost.fetch(&board, fetcher).await.ok();
    board.age(lost.build, 300).await;
    let _ = board.sweep().await;
    let answer = lost.fetch(&board, fetcher).await;
    assert_eq!((answer.said(), &answer.body["end_reason"]), ((409, "build_ended"), &json!("worker_lost")));
    let retry = format!("/api/v1/builds/{}/retry", lost.build);
    let again = board.call(Method::POST, &retry, &board.api, &Value::Null).await.id();
    let other = board.token(TokenKind::Worker, None).await;
    let job = board.claim_as(&other, Uuid::new_v4()).await.ok();
    assert_eq!(job["build_id"], json!(again));
    let old = fetch_by(&board, again, lost.token(), Some(&fetcher.to_string())).await;
    assert_eq!(old.said(), (404, "not_found"));
    let held = Held { build: again, job };
    let _ = held.fetch(&board, Uuid::new_v4()).await.ok();
}

#[tokio::test]
async fn a_log_token_is_nothing_once_another_token_holds_the_build() {
    let board = Board::new().await;
    let held = Held::new(&board).await;
    let other = edge::WorkerToken::of(&board.token(TokenKind::Worker, None).await).id;
    board.execute(&format!("update builds set claimed_by = '{other}'")).await;
    assert_eq!(held.fetch(&board, Uuid::new_v4()).await.said(), (404, "not_found"));
    assert_eq!(board.number("select count(job_fetch_id) from builds").await, 0);
}

#[tokio::test]
async fn only_the_builds_own_log_token_fetches_its_job() {
    let board = Board::new().await;
    let (held, other) = (Held::new(&board).await, Held::new(&board).await);
    let fetcher = Uuid::new_v4().to_string();
    let forged = format!("{}{}", &held.token()[..held.token().len() - 2], "zz");
    let shortened = &held.token()[..held.token().len() - 2];
    for (token, expected) in [
        (board.worker.as_str(), (401, "unauthorized")),
        (board.api.as_str(), (401, "unauthorized")),
        (board.operator.as_str(), (401, "unauthorized")),
        ("cbw_nonsense", (401, "unauthorized")),
        (other.token(), (404, "not_found")),
        (forged.as_str(), (404, "not_found")),
        (shortened, (404, "not_found")),
    ] {
        assert_eq!(fetch_by(&board, held.build, token, Some(&fetcher)).await.said(), expected, "{token}");
    }
    assert_eq!(board.number("select count(job_fetch_id) from builds").await, 0);
    let _ = fetch_by(&board, held.build, held.token(), Some(&fetcher)).await.ok();
    board.execute("update tokens set revoked_at = now() where kind = 'worker'").await;
    assert_eq!(fetch_by(&board, held.build, held.token(), Some(&fetcher)).await.said(), (401, "unauthorized"));
}

#[tokio::test]
async fn a_fetcher_that_does_not_say_which_it_is_gets_nothing() {
    let board = Board::new().await;
    let held = Held::new(&board).await;
    for fetcher in [None, Some(""), Some("seven")] {
        assert_eq!(
            fetch_by(&board, held.build, held.token(), fetcher).await.said(),
            (400, "bad_request"),
            "{fetcher:?}"
        );
    }
    board.execute("update tokens set revoked_at = now() where kind = 'worker'").await;
    assert_eq!(fetch_by(&board, held.build, held.token(), None).await.said(), (401, "unauthorized"));
}

#[tokio::test]
async fn no_cache_keeps_a_job() {
    let board = Board::new().await;
    let held = Held::new(&board).await;
    let answer = held.fetch(&board, Uuid::new_v4()).await;
    assert_eq!(answer.headers["cache-control"], "no-store");
}

#[tokio::test]
async fn a_fetch_that_died_before_its_answer_is_repeated_by_the_same_fetcher_alone() {
    let board = Board::new().await;
    let held = Held::new(&board).await;
    let fetcher = Uuid::new_v4();
    let path = format!("/internal/worker/builds/{}/job", held.build);
    let header = format!("fetch-id: {fetcher}\r\n");
    Doomed::at(&board, "fetch.taken").last_words(&Method::GET, &path, held.token(), &header, &Value::Null).await;
    assert_eq!(held.fetch(&board, Uuid::new_v4()).await.said(), (409, "conflict"));
    let _ = held.fetch(&board, fetcher).await.ok();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_fetchers_at_once_exactly_one_gets_the_job() {
    let board = Board::new().await;
    for _ in 0..20 {
        let held = Held::new(&board).await;
        let fetchers: Vec<Uuid> = (0..4).map(|_| Uuid::new_v4()).collect();
        let beat = format!("builds/{}/heartbeat", held.build);
        let beat = async { board.work(&beat, &json!({})).await.ok() };
        let fetches = join_all(fetchers.iter().map(|one| held.fetch(&board, *one)));
        let (answers, _) = tokio::join!(fetches, beat);
        let mut said: Vec<u16> = answers.iter().map(|answer| answer.status.as_u16()).collect();
        said.sort_unstable();
        assert_eq!(said, [200, 409, 409, 409]);
        for (fetcher, before) in fetchers.into_iter().zip(answers) {
            assert_eq!(held.fetch(&board, fetcher).await.status, before.status, "whoever got it keeps it");
        }
    }
    board.holds_together().await;
}
