//! A control plane of a few lines, as a runner sees it: one job, its log, its report. It keeps what it hears, and can be made to misbehave.

use axum::extract::{Path, State};
use axum::http::{HeaderMap, StatusCode};
use axum::response::{Html, IntoResponse as _, Response};
use axum::routing::{get, post, put};
use axum::{Json, Router};
use protocol::log::{Chunk, Stream};
use protocol::pipeline::{Network, Step};
use protocol::runner::{FETCH_ID, Report, RunnerJob};
use protocol::worker::{LogBatch, LogLimits, LogStored};
use protocol::{CancelReason, Code, Problem};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};
use uuid::Uuid;

pub(crate) const TOKEN: &str = "log-token-of-the-test";

/// What it is told to do, and what it heard.
#[derive(Default)]
pub(crate) struct Heard {
    /// The numbers of those who asked for the job.
    pub(crate) fetches: Vec<String>,
    pub(crate) chunks: Vec<Chunk>,
    pub(crate) empty_batches: usize,
    pub(crate) reports: Vec<Report>,
    /// What batches are answered with.
    pub(crate) cancel: Option<CancelReason>,
    /// So many answers to a fetch or a report are lost.
    pub(crate) answers_lost: u32,
    /// Another runner has the job.
    pub(crate) taken: bool,
    /// A load balancer answers in its place.
    pub(crate) away: bool,
    /// The build has ended.
    pub(crate) ended: bool,
}

#[derive(Clone)]
pub(crate) struct Board {
    pub(crate) url: String,
    job: RunnerJob,
    heard: Arc<Mutex<Heard>>,
}

impl Board {
    pub(crate) async fn start(job: RunnerJob) -> Self {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let board = Self { url, job, heard: Arc::default() };
        let routes = Router::new()
            .route("/internal/worker/builds/{id}/job", get(fetch))
            .route("/internal/worker/builds/{id}/logs", post(logs))
            .route("/internal/worker/builds/{id}/report", put(report))
            .with_state(board.clone());
        tokio::spawn(async move { axum::serve(listener, routes).await.unwrap() });
        board
    }

    pub(crate) fn heard(&self) -> MutexGuard<'_, Heard> {
        self.heard.lock().unwrap()
    }

    pub(crate) fn build(&self) -> Uuid {
        self.job.build_id
    }

    /// Waits until `found` finds something, but not for ever.
    pub(crate) async fn until<T>(&self, what: &str, found: impl Fn(&Heard) -> Option<T>) -> T {
        let begun = Instant::now();
        while begun.elapsed() < Duration::from_secs(60) {
            if let Some(it) = found(&self.heard()) {
                return it;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        panic!("{what} did not come; the log says:\n{}", self.log());
    }

    pub(crate) async fn until_log(&self, text: &str) {
        let says = |heard: &Heard| text_of(&heard.chunks, None).contains(text).then_some(());
        self.until(&format!("{text:?} in the log"), says).await;
    }

    pub(crate) fn log(&self) -> String {
        text_of(&self.heard().chunks, None)
    }

    pub(crate) fn log_of(&self, stream: Stream) -> String {
        text_of(&self.heard().chunks, Some(stream))
    }

    fn refusal(&self, id: Uuid, headers: &HeaderMap) -> Option<Response> {
        let known = headers.get("authorization").is_some_and(|value| value == format!("Bearer {TOKEN}").as_str());
        let heard = self.heard();
        if heard.away {
            return Some((StatusCode::BAD_GATEWAY, Html("<h1>deploying</h1>")).into_response());
        }
        if !known || id != self.build() {
            return Some(problem(404, Code::NotFound, None));
        }
        heard.ended.then(|| problem(409, Code::BuildEnded, None))
    }
}

/// Whether this answer is one of those that are lost.
fn is_lost(heard: &mut Heard) -> bool {
    let is_lost = heard.answers_lost > 0;
    heard.answers_lost = heard.answers_lost.saturating_sub(1);
    is_lost
}

fn lost() -> Response {
    (StatusCode::OK, Html("<h1>half an answer")).into_response()
}

fn text_of(chunks: &[Chunk], stream: Option<Stream>) -> String {
    let chosen = chunks.iter().filter(|chunk| stream.is_none_or(|stream| chunk.stream == stream));
    let bytes: Vec<u8> = chosen.flat_map(|chunk| chunk.bytes().unwrap()).collect();
    String::from_utf8_lossy(&bytes).into_owned()
}

fn problem(status: u16, code: Code, expected_seq: Option<u64>) -> Response {
    let problem = Problem {
        kind: "about:blank".into(),
        title: code.as_str().into(),
        status,
        code,
        detail: None,
        request_id: "r".into(),
        field: None,
        build_status: None,
        end_reason: None,
        expected_seq,
    };
    (StatusCode::from_u16(status).unwrap(), Json(problem)).into_response()
}

async fn fetch(State(board): State<Board>, headers: HeaderMap, Path(id): Path<Uuid>) -> Response {
    if let Some(refusal) = board.refusal(id, &headers) {
        return refusal;
    }
    let mut heard = board.heard();
    heard.fetches.push(headers[FETCH_ID].to_str().unwrap().to_owned());
    if heard.taken {
        return problem(409, Code::Conflict, None);
    }
    if is_lost(&mut heard) { lost() } else { Json(board.job.clone()).into_response() }
}

async fn logs(
    State(board): State<Board>,
    headers: HeaderMap,
    Path(id): Path<Uuid>,
    Json(batch): Json<LogBatch>,
) -> Response {
    if let Some(refusal) = board.refusal(id, &headers) {
        return refusal;
    }
    let mut heard = board.heard();
    heard.empty_batches += usize::from(batch.chunks.is_empty());
    for chunk in batch.chunks {
        let next_seq = u64::try_from(heard.chunks.len()).unwrap() + 1;
        if chunk.seq == next_seq {
            heard.chunks.push(chunk);
        } else if chunk.seq > next_seq {
            return problem(409, Code::LogGap, Some(next_seq));
        }
    }
    let next_seq = u64::try_from(heard.chunks.len()).unwrap() + 1;
    Json(LogStored { stored: 0, duplicates: 0, next_seq, capped: false, cancel: heard.cancel }).into_response()
}

async fn report(
    State(board): State<Board>,
    headers: HeaderMap,
    Path(id): Path<Uuid>,
    Json(report): Json<Report>,
) -> Response {
    if let Some(refusal) = board.refusal(id, &headers) {
        return refusal;
    }
    let mut heard = board.heard();
    if heard.fetches.last().map(String::as_bytes) != headers.get(FETCH_ID).map(|id| id.as_bytes()) {
        return problem(409, Code::Conflict, None);
    }
    heard.reports.push(report);
    if is_lost(&mut heard) { lost() } else { StatusCode::NO_CONTENT.into_response() }
}

pub(crate) fn step(name: &str, commands: &[&str]) -> Step {
    Step {
        name: name.into(),
        image: "of-the-test".into(),
        commands: commands.iter().map(|command| (*command).to_owned()).collect(),
        env: BTreeMap::new(),
        timeout_seconds: None,
        network: Network::Isolated,
        on_cancel: false,
    }
}

/// A job with the usual numbers, but a log that goes out ten times a second.
pub(crate) fn job(repository: &str, steps: Vec<Step>) -> RunnerJob {
    RunnerJob {
        build_id: Uuid::now_v7(),
        repository: repository.into(),
        git_ref: "main".into(),
        commit: None,
        submodules: false,
        steps,
        on_cancel: Vec::new(),
        env: BTreeMap::new(),
        secrets: BTreeMap::new(),
        clone_secret: None,
        deadline_in_ms: 55_000,
        max_duration_seconds: 60,
        traceparent: None,
        log: LogLimits { max_chunk_bytes: 16_384, max_batch_bytes: 262_144, interval_ms: 100, cap_bytes: 64 << 20 },
    }
}
