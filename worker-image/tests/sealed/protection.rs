//! A worker in a task of an ECS service: when it asks ECS's agent to be protected from scale-in, and when no more.

use crate::board::{Board, job, step};
use crate::fleet::{Worker, can_seal, eventually};
use crate::forge::Forge;
use axum::extract::State;
use axum::http::StatusCode;
use axum::routing::put;
use axum::{Json, Router};
use nix::sys::signal::Signal;
use protocol::Status;
use serde_json::{Value, json};
use std::sync::{Arc, Mutex, MutexGuard};

/// How the agent answers who wants to be protected.
#[derive(Clone, Copy, Default)]
enum Manner {
    #[default]
    Grants,
    Blocks,
    Denies,
}

/// What it was asked, and what the board had heard by then.
#[derive(Clone, Copy, Debug)]
struct Call {
    protect: bool,
    minutes: Option<u64>,
    claims: usize,
    completed: usize,
}

#[derive(Clone)]
struct Agent {
    url: String,
    board: Board,
    heard: Arc<Mutex<(Vec<Call>, Manner)>>,
}

impl Agent {
    async fn start(board: &Board) -> Self {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}/api/some-container", listener.local_addr().unwrap());
        let agent = Self { url, board: board.clone(), heard: Arc::default() };
        let routes =
            Router::new().route("/api/some-container/task-protection/v1/state", put(state)).with_state(agent.clone());
        tokio::spawn(async move { axum::serve(listener, routes).await.unwrap() });
        agent
    }

    fn heard(&self) -> MutexGuard<'_, (Vec<Call>, Manner)> {
        self.heard.lock().unwrap()
    }

    fn is_to(&self, manner: Manner) {
        self.heard().1 = manner;
    }

    fn calls(&self) -> Vec<Call> {
        self.heard().0.clone()
    }

    /// The first calls of this kind beyond `known` calls.
    fn next(&self, known: usize, protect: bool) -> Call {
        eventually("a call of the agent", || self.calls().into_iter().skip(known).find(|call| call.protect == protect))
    }
}

async fn state(State(agent): State<Agent>, Json(asked): Json<Value>) -> (StatusCode, Json<Value>) {
    let (claims, completed) = {
        let heard = agent.board.heard();
        (heard.claims.len(), heard.completed.len())
    };
    let protect = asked["ProtectionEnabled"].as_bool().unwrap();
    let mut heard = agent.heard();
    heard.0.push(Call { protect, minutes: asked["ExpiresInMinutes"].as_u64(), claims, completed });
    let arn = "arn:aws:ecs:us-west-2:111122223333:task/1234567890abcdef0";
    match heard.1 {
        Manner::Blocks if protect => {
            (StatusCode::OK, Json(json!({ "failure": { "Arn": arn, "Detail": null, "Reason": "DEPLOYMENT_BLOCKED" } })))
        }
        Manner::Denies => {
            let error = json!({ "Arn": arn, "Code": "AccessDeniedException", "Message": "not authorized" });
            (StatusCode::FORBIDDEN, Json(json!({ "requestID": "1", "error": error })))
        }
        Manner::Grants | Manner::Blocks => {
            (StatusCode::OK, Json(json!({ "protection": { "ProtectionEnabled": protect, "TaskArn": arn } })))
        }
    }
}

/// A worker in a task; the agent answers it so. Without `args` it does not step aside for idleness.
async fn set_up(manner: Manner, args: &[&str]) -> Option<(Board, Forge, Agent, Worker)> {
    if !can_seal() {
        return None;
    }
    let (board, forge) = (Board::start().await, Forge::start().await);
    let agent = Agent::start(&board).await;
    agent.is_to(manner);
    let usual = ["--ecs-agent-uri", &agent.url, "--protection-renew-ms", "100", "--protection-idle-ms", "0"];
    let worker = Worker::start(&board, &forge, &[&usual, args].concat());
    Some((board, forge, agent, worker))
}

#[tokio::test(flavor = "multi_thread")]
async fn a_worker_is_protected_from_before_its_first_claim_until_its_last_build_has_ended() {
    let Some((board, forge, agent, mut worker)) = set_up(Manner::Grants, &[]).await else { return };
    let build = board.offer(job(&forge.url(), vec![step("long", &["echo running; sleep 2"])]));
    board.until_log("running\n").await;
    worker.signal(Signal::SIGTERM);
    assert_eq!(board.report(build).await.status, Status::Success);
    assert!(worker.end().success());
    let calls = agent.calls();
    let (last, others) = calls.split_last().unwrap();
    assert_eq!((others[0].claims, others[0].minutes), (0, Some(120)), "{calls:?}");
    assert!(others.len() > 5 && others.iter().all(|call| call.protect), "{calls:?}");
    assert_eq!((last.protect, last.minutes, last.completed), (false, None, 1), "{calls:?}");
    assert_eq!(board.heard().claims.len(), last.claims);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_worker_without_builds_lets_go_once_fewer_are_wanted_and_claims_nothing_until_it_is_protected_again() {
    let Some((board, forge, agent, _worker)) = set_up(Manner::Grants, &["--protection-aside-ms", "700"]).await else {
        return;
    };
    board.until("a claim", |heard| (!heard.claims.is_empty()).then_some(())).await;
    agent.is_to(Manner::Blocks);
    let released = agent.next(0, false);
    agent.is_to(Manner::Grants);
    let known = agent.calls().len();
    let taken = agent.next(known, true);
    assert_eq!(released.claims, taken.claims, "no claim without protection");
    let report = board.report(board.offer(job(&forge.url(), vec![step("only", &["true"])]))).await;
    assert_eq!(report.status, Status::Success);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_worker_with_a_build_lets_go_only_once_that_has_ended() {
    let Some((board, forge, agent, mut worker)) = set_up(Manner::Grants, &["--protection-aside-ms", "60000"]).await
    else {
        return;
    };
    let build = board.offer(job(&forge.url(), vec![step("long", &["echo running; sleep 3"])]));
    board.until_log("running\n").await;
    agent.is_to(Manner::Blocks);
    let released = agent.next(0, false);
    assert_eq!((released.completed, board.report(build).await.status), (1, Status::Success));
    assert!(worker.log().contains("stepping aside"), "{}", worker.log());
    // As ECS does then.
    worker.signal(Signal::SIGTERM);
    assert!(worker.end().success());
    assert_eq!(board.heard().claims.len(), released.claims);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_worker_that_is_idle_for_long_steps_aside_and_comes_back() {
    let args = ["--protection-idle-ms", "300", "--protection-aside-ms", "300"];
    let Some((board, forge, agent, _worker)) = set_up(Manner::Grants, &args).await else { return };
    let released = agent.next(0, false);
    let known = agent.calls().iter().position(|call| !call.protect).unwrap();
    assert_eq!(agent.next(known, true).claims, released.claims);
    let report = board.report(board.offer(job(&forge.url(), vec![step("only", &["true"])]))).await;
    assert_eq!(report.status, Status::Success);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_task_that_is_not_protected_works_all_the_same_and_says_so_once() {
    for manner in [Manner::Denies, Manner::Blocks] {
        let Some((board, forge, agent, worker)) = set_up(manner, &[]).await else { return };
        let report = board.report(board.offer(job(&forge.url(), vec![step("only", &["sleep 1"])]))).await;
        assert_eq!(report.status, Status::Success);
        let asked = agent.calls().len();
        assert!(asked > 3 && agent.calls().iter().all(|call| call.protect), "{asked}");
        let told = worker.log().matches("no protection from scale-in was given").count();
        assert_eq!(told, 1, "{}", worker.log());
    }
}
