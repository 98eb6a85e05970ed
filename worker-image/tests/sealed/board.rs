//! A control plane of a few lines: hands out the jobs it was given, keeps what it hears, and can be made to misbehave.

use axum::extract::{Path, State};
use axum::http::{HeaderMap, StatusCode};
use axum::response::{Html, IntoResponse as _, Response};
use axum::routing::{get, post};
use axum::{Json, Router};
use protocol::log::{Chunk, Stream};
use protocol::pipeline::{Network, Step};
use protocol::preview::{PreviewOrder, PreviewOrders, PreviewReport, PreviewRun, PreviewSync};
use protocol::runner::{FETCH_ID, Report, RunnerJob};
use protocol::worker::{
    ClaimRequest, Complete, Completed, Heartbeat, Job, LogBatch, LogLimits, LogStored, Renewed, Secret,
};
use protocol::{CancelReason, Code, Problem};
use rules::preview::Order;
use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};
use uuid::Uuid;

pub(crate) const TOKEN: &str = "worker-token-of-the-test";

/// What it is told to do, and what it heard.
#[derive(Default)]
pub(crate) struct Heard {
    pub(crate) jobs: VecDeque<Job>,
    pub(crate) claims: Vec<ClaimRequest>,
    pub(crate) given: BTreeMap<Uuid, Job>,
    /// When a build was claimed.
    pub(crate) claimed_at: BTreeMap<Uuid, Instant>,
    pub(crate) heartbeats: Vec<Heartbeat>,
    pub(crate) chunks: Vec<Chunk>,
    pub(crate) completed: Vec<(Uuid, Complete)>,
    /// The traces that calls about builds said they belong to.
    pub(crate) traceparents: Vec<Option<String>>,
    /// What heartbeats are answered with.
    pub(crate) cancel: Option<CancelReason>,
    /// All builds are somebody else's.
    pub(crate) gone: bool,
    /// A load balancer answers in its place.
    pub(crate) away: bool,
    /// Knows the token no more when an end is reported.
    pub(crate) revoked: bool,
    /// Knows the token no more when a lease is renewed.
    pub(crate) renews_nobody: bool,
    /// Reports of this build fail.
    pub(crate) unanswered: Option<Uuid>,
    /// The next claims are heard, but their answers are lost.
    pub(crate) answers_lost: u32,
    /// This build has ended without its worker.
    pub(crate) ended: Option<Uuid>,
    /// This build has ended, but only its worker is told so.
    pub(crate) reaped: Option<Uuid>,
    /// The runner that fetched the job of a build.
    pub(crate) fetched: BTreeMap<Uuid, String>,
    /// What runners reported.
    pub(crate) reports: BTreeMap<Uuid, Report>,
    /// After so many chunks the log is full.
    pub(crate) log_cap_chunks: Option<usize>,
    /// How often hosts have told of their previews, whoever they were.
    pub(crate) syncs: usize,
    /// What previews are to become, and what they run; without it they are forgotten.
    pub(crate) preview: Option<(Order, PreviewRun)>,
    /// How previews were, by build.
    pub(crate) previews: BTreeMap<Uuid, PreviewReport>,
}

#[derive(Clone)]
pub(crate) struct Board {
    pub(crate) url: String,
    /// What stands for `image: host` in the jobs that are offered.
    image: &'static str,
    heard: Arc<Mutex<Heard>>,
}

impl Board {
    pub(crate) async fn start() -> Self {
        Self::start_for("host").await
    }

    /// A board whose jobs have this image where they say `host`.
    pub(crate) async fn start_for(image: &'static str) -> Self {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let board = Self { url, image, heard: Arc::default() };
        let routes = Router::new()
            .route("/internal/worker/claim", post(claim))
            .route("/internal/worker/builds/{id}/heartbeat", post(heartbeat))
            .route("/internal/worker/builds/{id}/logs", post(logs))
            .route("/internal/worker/builds/{id}/complete", post(complete))
            .route("/internal/worker/builds/{id}/job", get(fetch))
            .route("/internal/worker/builds/{id}/report", get(reported).put(report))
            .route("/internal/worker/previews/sync", post(previews))
            .with_state(board.clone());
        tokio::spawn(async move { axum::serve(listener, routes).await.unwrap() });
        board
    }

    pub(crate) fn heard(&self) -> MutexGuard<'_, Heard> {
        self.heard.lock().unwrap()
    }

    pub(crate) fn offer(&self, mut job: Job) -> Uuid {
        for step in job.steps.iter_mut().chain(&mut job.on_cancel).filter(|step| step.image == "host") {
            step.image = self.image.into();
        }
        let id = job.build_id;
        self.heard().jobs.push_back(job);
        id
    }

    /// The report of `build`, once it has come.
    pub(crate) async fn report(&self, build: Uuid) -> Complete {
        self.until("the report of a build", |heard| {
            heard.completed.iter().find(|(id, _)| *id == build).map(|(_, report)| report.clone())
        })
        .await
    }

    /// Waits until `found` finds something, but not for ever.
    pub(crate) async fn until<T>(&self, what: &str, found: impl Fn(&Heard) -> Option<T>) -> T {
        let begun = Instant::now();
        while begun.elapsed() < Duration::from_secs(120) {
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

    /// As `answer`, about a build.
    fn answer_about<T: serde::Serialize>(
        &self,
        headers: &HeaderMap,
        answer: impl FnOnce(&mut Heard) -> Result<T, Response>,
    ) -> Response {
        let traceparent = headers.get("traceparent").and_then(|value| value.to_str().ok()).map(str::to_owned);
        self.answer(headers, |heard| {
            heard.traceparents.push(traceparent);
            if heard.gone { Err(problem(404, Code::NotFound, None)) } else { answer(heard) }
        })
    }

    fn answer<T: serde::Serialize>(
        &self,
        headers: &HeaderMap,
        answer: impl FnOnce(&mut Heard) -> Result<T, Response>,
    ) -> Response {
        let known = headers.get("authorization").is_some_and(|value| {
            value.as_bytes() == format!("Bearer {TOKEN}").as_bytes() || value.as_bytes() == b"Bearer log-token"
        });
        let mut heard = self.heard();
        if heard.away {
            return (StatusCode::BAD_GATEWAY, Html("<h1>deploying</h1>")).into_response();
        }
        if !known {
            return problem(401, Code::Unauthorized, None);
        }
        answer(&mut heard).map_or_else(|response| response, |body| Json(body).into_response())
    }
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

async fn claim(State(board): State<Board>, headers: HeaderMap, Json(request): Json<ClaimRequest>) -> Response {
    let mut nothing = false;
    let response = board.answer(&headers, |heard| {
        heard.claims.push(request.clone());
        if let Some(job) = heard.given.get(&request.claim_id) {
            return Ok(Some(job.clone()));
        }
        let job = heard.jobs.pop_front();
        nothing = job.is_none();
        if let Some(job) = &job {
            heard.given.insert(request.claim_id, job.clone());
            heard.claimed_at.insert(job.build_id, Instant::now());
        }
        if job.is_some() && heard.answers_lost > 0 {
            heard.answers_lost -= 1;
            return Err((StatusCode::OK, Html("<h1>half an answer")).into_response());
        }
        Ok(job)
    });
    if nothing { (StatusCode::NO_CONTENT, [("retry-after", "1")]).into_response() } else { response }
}

async fn heartbeat(
    State(board): State<Board>,
    headers: HeaderMap,
    Path(id): Path<Uuid>,
    Json(beat): Json<Heartbeat>,
) -> Response {
    board.answer_about(&headers, |heard| {
        if heard.ended == Some(id) {
            return Err(problem(409, Code::BuildEnded, None));
        }
        if heard.renews_nobody {
            return Err(problem(401, Code::Unauthorized, None));
        }
        heard.heartbeats.push(beat);
        let job = heard.given.values().find(|job| job.build_id == id).unwrap();
        let since = u64::try_from(heard.claimed_at[&id].elapsed().as_millis()).unwrap();
        let deadline_in_ms = job.deadline_in_ms.saturating_sub(since);
        Ok(Renewed { lease_ttl_ms: job.lease_ttl_ms, deadline_in_ms, cancel: heard.cancel })
    })
}

/// The job to the first runner that asks.
async fn fetch(State(board): State<Board>, headers: HeaderMap, Path(id): Path<Uuid>) -> Response {
    let fetcher = fetcher(&headers);
    board.answer_about(&headers, |heard| {
        ended(heard, id)?;
        let first = heard.fetched.entry(id).or_insert_with(|| fetcher.clone());
        if *first != fetcher {
            return Err(problem(409, Code::Conflict, None));
        }
        let job = heard.given.values().find(|job| job.build_id == id).unwrap();
        Ok(RunnerJob::from(job.clone()))
    })
}

async fn report(
    State(board): State<Board>,
    headers: HeaderMap,
    Path(id): Path<Uuid>,
    Json(report): Json<Report>,
) -> Response {
    let fetcher = fetcher(&headers);
    let answer = board.answer_about(&headers, |heard| {
        ended(heard, id)?;
        if heard.fetched.get(&id) != Some(&fetcher) {
            return Err(problem(409, Code::Conflict, None));
        }
        heard.reports.insert(id, report);
        Ok(())
    });
    if answer.status().is_success() { StatusCode::NO_CONTENT.into_response() } else { answer }
}

async fn reported(State(board): State<Board>, headers: HeaderMap, Path(id): Path<Uuid>) -> Response {
    let mut nothing = false;
    let answer = board.answer_about(&headers, |heard| {
        ended(heard, id)?;
        if heard.reaped == Some(id) {
            return Err(problem(409, Code::BuildEnded, None));
        }
        let report = heard.reports.get(&id).cloned();
        nothing = report.is_none();
        Ok(report)
    });
    if nothing { StatusCode::NO_CONTENT.into_response() } else { answer }
}

fn fetcher(headers: &HeaderMap) -> String {
    headers.get(FETCH_ID).map(|id| id.to_str().unwrap().to_owned()).unwrap_or_default()
}

fn ended(heard: &Heard, id: Uuid) -> Result<(), Response> {
    let is_complete = heard.completed.iter().any(|(build, _)| *build == id);
    if heard.ended == Some(id) || is_complete { Err(problem(409, Code::BuildEnded, None)) } else { Ok(()) }
}

async fn logs(
    State(board): State<Board>,
    headers: HeaderMap,
    Path(id): Path<Uuid>,
    Json(batch): Json<LogBatch>,
) -> Response {
    board.answer_about(&headers, |heard| {
        // A worker of its own hears it by its heartbeats.
        let is_runners = heard.fetched.contains_key(&id);
        if is_runners && heard.ended == Some(id) {
            return Err(problem(409, Code::BuildEnded, None));
        }
        let mut duplicates = 0;
        for chunk in batch.chunks {
            let next_seq = u64::try_from(heard.chunks.len()).unwrap() + 1;
            match chunk.seq {
                seq if seq < next_seq => duplicates += 1,
                seq if seq == next_seq => heard.chunks.push(chunk),
                _ => return Err(problem(409, Code::LogGap, Some(next_seq))),
            }
        }
        let next_seq = u64::try_from(heard.chunks.len()).unwrap() + 1;
        let capped = heard.log_cap_chunks.is_some_and(|cap| heard.chunks.len() >= cap);
        let cancel = heard.cancel.filter(|_| is_runners);
        Ok(LogStored { stored: 0, duplicates, next_seq, capped, cancel })
    })
}

async fn complete(
    State(board): State<Board>,
    headers: HeaderMap,
    Path(id): Path<Uuid>,
    Json(report): Json<Complete>,
) -> Response {
    board.answer_about(&headers, |heard| {
        if heard.ended == Some(id) {
            return Err(problem(409, Code::BuildEnded, None));
        }
        if heard.revoked {
            return Err(problem(401, Code::Unauthorized, None));
        }
        if heard.unanswered == Some(id) {
            return Err(problem(503, Code::Unavailable, None));
        }
        let completed = Completed { status: report.status, duration_ms: report.ran_ms, charged_seconds: 1 };
        heard.completed.push((id, report));
        Ok(completed)
    })
}

async fn previews(State(board): State<Board>, headers: HeaderMap, Json(sync): Json<PreviewSync>) -> Response {
    board.heard().syncs += 1;
    board.answer(&headers, |heard| {
        heard.previews.extend(sync.previews.iter().map(|report| (report.build_id, report.clone())));
        let wanted = heard.preview.as_ref();
        let order = wanted.map_or(Order::Forget, |(order, _)| *order);
        let run = wanted.map(|(_, run)| run).filter(|_| order == Order::Start);
        let version = wanted.map(|_| 1);
        let orders = sync.previews.iter().map(|report| PreviewOrder {
            build_id: report.build_id,
            order,
            version,
            run: run.cloned(),
        });
        Ok(PreviewOrders { previews: orders.collect(), sync_every_ms: 1000 })
    })
}

pub(crate) fn step(name: &str, commands: &[&str]) -> Step {
    Step {
        name: name.into(),
        image: "host".into(),
        commands: commands.iter().map(|command| (*command).to_owned()).collect(),
        env: BTreeMap::new(),
        timeout_seconds: None,
        network: Network::Isolated,
        on_cancel: false,
    }
}

/// A job with the usual numbers, but a log that goes out ten times a second.
pub(crate) fn job(repository: &str, steps: Vec<Step>) -> Job {
    Job {
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
        registry_secrets: BTreeMap::new(),
        log_token: Secret("log-token".into()),
        lease_ttl_ms: 60_000,
        lease_grace_ms: 120_000,
        heartbeat_every_ms: 200,
        deadline_in_ms: 60_000,
        max_duration_seconds: 60,
        log: LogLimits { max_chunk_bytes: 16_384, max_batch_bytes: 262_144, interval_ms: 100, cap_bytes: 64 << 20 },
        preview: None,
        traceparent: None,
    }
}
