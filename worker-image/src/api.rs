//! The control plane as a worker sees it: its calls, and what each kind of failure means.
//!
//! Only 401, 404 and `build_ended` take a build away. 429, 5xx, a broken connection and any body that is not our JSON,
//! whatever its status (a load balancer's page during a deploy), are tried again.

use crate::config::{Config, Token};
use crate::input;
use protocol::log::Chunk;
use protocol::preview::{PreviewOrders, PreviewSync};
use protocol::runner::{FETCH_ID, Report, RunnerJob};
use protocol::trace::{TRACEPARENT, Traceparent};
use protocol::worker::{ClaimRequest, Complete, Completed, Heartbeat, Job, LogBatch, LogStored, Renewed};
use protocol::{Code, Problem};
use reqwest::header::RETRY_AFTER;
use reqwest::{Client, Method, RequestBuilder, Response, StatusCode};
use serde::Serialize;
use serde::de::{DeserializeOwned, IgnoredAny};
use std::time::Duration;
use uuid::Uuid;

const CONNECT: Duration = Duration::from_secs(5);
/// How long a heartbeat may take (SPEC.md, 1); the others have more.
const HEARTBEAT: Duration = Duration::from_secs(10);
const OTHER: Duration = Duration::from_secs(30);

/// What a call that did not succeed means.
#[derive(Debug, PartialEq, Eq)]
pub enum Failure {
    /// It may succeed later.
    Again {
        /// Not before this.
        after: Option<Duration>,
        /// What happened, for the worker's own log.
        why: String,
    },
    /// The token or the build is not ours: 401, 404 or `build_ended`.
    NotOurs {
        /// Which of them.
        code: Code,
    },
    /// The board expects another `seq`.
    Resync {
        /// Which one.
        expected_seq: u64,
    },
    /// It will never succeed like this.
    Refused {
        /// What is wrong, for programs.
        code: Code,
        /// The same for a person.
        detail: String,
    },
}

/// What a claim brought.
#[derive(Debug)]
pub enum Claimed {
    /// A build.
    Job(Box<Job>),
    /// Nothing to do.
    Nothing {
        /// When to ask again.
        after: Option<Duration>,
    },
}

/// A connection to the control plane.
#[derive(Clone, Debug)]
pub struct Api {
    client: Client,
    base: String,
    token: Token,
    traceparent: Option<Traceparent>,
}

impl Api {
    /// A client with connections of its own.
    ///
    /// # Errors
    ///
    /// If the CA bundle can't be read, or the system's certificates are needed and missing.
    pub fn new(config: &Config) -> anyhow::Result<Self> {
        let pem = config.ca_bundle.as_deref().map(input::bytes).transpose()?;
        Self::at(&config.api_url, config.token.clone(), pem.as_deref())
    }

    /// A client of the control plane at `base` that trusts the certificates of `pem` besides the system's.
    ///
    /// # Errors
    ///
    /// If they are none, or the system's are needed and missing.
    pub fn at(base: &str, token: Token, pem: Option<&[u8]>) -> anyhow::Result<Self> {
        // A provider that is installed already is as good.
        rustls::crypto::ring::default_provider().install_default().ok();
        let builder = Client::builder()
            .connect_timeout(CONNECT)
            .redirect(reqwest::redirect::Policy::none())
            .user_agent(concat!("callboard-worker/", env!("CARGO_PKG_VERSION")));
        let certificates = pem.map(reqwest::Certificate::from_pem_bundle).transpose()?.unwrap_or_default();
        // Without TLS no certificate is needed, and a host without any must not fail.
        let plain = base.starts_with("http://");
        let builder = if plain { builder.tls_certs_only([]) } else { builder.tls_certs_merge(certificates) };
        Ok(Self { client: builder.build()?, base: base.to_owned(), token, traceparent: None })
    }

    /// The same connections, for calls about a build of this trace: each says so.
    #[must_use]
    pub fn traced(&self, traceparent: Option<Traceparent>) -> Self {
        Self { traceparent, ..self.clone() }
    }

    /// Asks for a build. The same `claim_id` again gets the same build.
    ///
    /// # Errors
    ///
    /// See [`Failure`].
    pub async fn claim(&self, request: &ClaimRequest) -> Result<Claimed, Failure> {
        let response = self.post("/internal/worker/claim", &self.token.0, request, OTHER).await?;
        if response.status() == StatusCode::NO_CONTENT {
            return Ok(Claimed::Nothing { after: retry_after(&response) });
        }
        Ok(Claimed::Job(Box::new(read(response).await?)))
    }

    /// Renews the lease on a build.
    ///
    /// # Errors
    ///
    /// See [`Failure`].
    pub async fn heartbeat(&self, build: Uuid, heartbeat: &Heartbeat) -> Result<Renewed, Failure> {
        let path = format!("/internal/worker/builds/{build}/heartbeat");
        read(self.post(&path, &self.token.0, heartbeat, HEARTBEAT).await?).await
    }

    /// Sends log chunks, with the build's own log token.
    ///
    /// # Errors
    ///
    /// See [`Failure`].
    pub async fn logs(&self, build: Uuid, log_token: &str, chunks: Vec<Chunk>) -> Result<LogStored, Failure> {
        let path = format!("/internal/worker/builds/{build}/logs");
        read(self.post(&path, log_token, &LogBatch { chunks }, OTHER).await?).await
    }

    /// Fetches the job of a build whose steps run away from its worker, with the build's own log token. The same `fetch_id` again gets the
    /// same job.
    ///
    /// # Errors
    ///
    /// See [`Failure`].
    pub async fn job(&self, build: Uuid, log_token: &str, fetch_id: Uuid) -> Result<RunnerJob, Failure> {
        let request = self.asked(Method::GET, &format!("/internal/worker/builds/{build}/job"), log_token, OTHER);
        let request = request.header(FETCH_ID, fetch_id.to_string());
        read(request.send().await.map_err(|error| broken(&error))?).await
    }

    /// Says how a build went to the worker that holds it, as the fetcher of its job. The same again is known.
    ///
    /// # Errors
    ///
    /// See [`Failure`].
    pub async fn report(&self, build: Uuid, log_token: &str, fetch_id: Uuid, report: &Report) -> Result<(), Failure> {
        let request = self.asked(Method::PUT, &format!("/internal/worker/builds/{build}/report"), log_token, OTHER);
        let response =
            request.header(FETCH_ID, fetch_id.to_string()).json(report).send().await.map_err(|error| broken(&error))?;
        match response.status() {
            StatusCode::NO_CONTENT => Ok(()),
            status => Err(read::<IgnoredAny>(response).await.err().unwrap_or_else(|| again(None, status.to_string()))),
        }
    }

    /// Reports a build's end.
    ///
    /// # Errors
    ///
    /// See [`Failure`].
    pub async fn complete(&self, build: Uuid, end: &Complete) -> Result<Completed, Failure> {
        let path = format!("/internal/worker/builds/{build}/complete");
        read(self.post(&path, &self.token.0, end, OTHER).await?).await
    }

    /// What the runner of a build's steps has reported, if it has.
    ///
    /// # Errors
    ///
    /// See [`Failure`].
    pub async fn reported(&self, build: Uuid) -> Result<Option<Report>, Failure> {
        let request = self.asked(Method::GET, &format!("/internal/worker/builds/{build}/report"), &self.token.0, OTHER);
        let response = request.send().await.map_err(|error| broken(&error))?;
        if response.status() == StatusCode::NO_CONTENT {
            return Ok(None);
        }
        read(response).await.map(Some)
    }

    /// Says how this host's previews are; hears what each is to become.
    ///
    /// # Errors
    ///
    /// See [`Failure`].
    pub async fn previews(&self, sync: &PreviewSync) -> Result<PreviewOrders, Failure> {
        read(self.post("/internal/worker/previews/sync", &self.token.0, sync, OTHER).await?).await
    }

    fn asked(&self, method: Method, path: &str, token: &str, patience: Duration) -> RequestBuilder {
        let request = self.client.request(method, format!("{}{path}", self.base)).bearer_auth(token).timeout(patience);
        match self.traceparent {
            Some(traceparent) => request.header(TRACEPARENT, traceparent.to_string()),
            None => request,
        }
    }

    async fn post(
        &self,
        path: &str,
        token: &str,
        body: &impl Serialize,
        patience: Duration,
    ) -> Result<Response, Failure> {
        self.asked(Method::POST, path, token, patience).json(body).send().await.map_err(|error| broken(&error))
    }
}

/// Our JSON of a success, or what a failure means.
async fn read<T: DeserializeOwned>(response: Response) -> Result<T, Failure> {
    let (status, after) = (response.status(), retry_after(&response));
    let body = response.bytes().await.map_err(|error| broken(&error))?;
    if status.is_success() {
        return serde_json::from_slice(&body).map_err(|_| again(after, format!("{status} without our JSON")));
    }
    match serde_json::from_slice::<Problem>(&body) {
        Ok(problem) => Err(meaning(status, after, problem)),
        Err(_) => Err(again(after, format!("{status} without our JSON"))),
    }
}

fn meaning(status: StatusCode, after: Option<Duration>, problem: Problem) -> Failure {
    let code = problem.code;
    if status.is_server_error() || status == StatusCode::TOO_MANY_REQUESTS {
        return again(after, format!("{status} {}", code.as_str()));
    }
    if matches!(code, Code::Unauthorized | Code::NotFound | Code::BuildEnded) {
        return Failure::NotOurs { code };
    }
    match problem.expected_seq {
        Some(expected_seq) => Failure::Resync { expected_seq },
        None => Failure::Refused { code, detail: problem.detail.unwrap_or(problem.title) },
    }
}

fn again(after: Option<Duration>, why: String) -> Failure {
    Failure::Again { after, why }
}

/// Without the address, which says nothing new, and with the innermost cause, which does.
fn broken(error: &reqwest::Error) -> Failure {
    let mut cause: &dyn std::error::Error = error;
    while let Some(inner) = cause.source() {
        cause = inner;
    }
    again(None, if error.is_timeout() { "no answer in time".into() } else { cause.to_string() })
}

fn retry_after(response: &Response) -> Option<Duration> {
    let seconds = response.headers().get(RETRY_AFTER)?.to_str().ok()?.trim().parse().ok()?;
    Some(Duration::from_secs(u64::min(seconds, 60)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(status: u16, code: &str, expected: Failure) {
        let body = format!(r#"{{"title":"no","status":{status},"code":"{code}","request_id":"r"}}"#);
        let problem = serde_json::from_str(&body).unwrap();
        assert_eq!(meaning(StatusCode::from_u16(status).unwrap(), None, problem), expected);
    }

    #[test]
    fn only_three_answers_take_a_build_away() {
        check(401, "unauthorized", Failure::NotOurs { code: Code::Unauthorized });
        check(404, "not_found", Failure::NotOurs { code: Code::NotFound });
        check(409, "build_ended", Failure::NotOurs { code: Code::BuildEnded });
    }

    #[test]
    fn trouble_of_the_board_passes() {
        for (status, code) in [(429, "queue_full"), (500, "internal"), (503, "unavailable")] {
            check(status, code, again(None, format!("{} {code}", StatusCode::from_u16(status).unwrap())));
        }
    }

    #[test]
    fn what_a_newer_board_says_is_refused_not_lost() {
        check(418, "teapot", Failure::Refused { code: Code::Unknown, detail: "no".into() });
    }
}
