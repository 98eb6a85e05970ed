//! Calls of the HTTP API, as the demo and the command line make them.

use protocol::Problem;
use protocol::build::{Build, Submit};
use protocol::log::LogPage;
use protocol::pipeline::{Env, Pipeline, PipelineSpec};
use protocol::workspace::Workspace;
use reqwest::{Method, RequestBuilder};
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::time::Duration;
use uuid::Uuid;

/// How long one call may take.
const PATIENCE: Duration = Duration::from_secs(30);

/// Why a call came to nothing.
#[derive(Debug, thiserror::Error)]
pub enum Failed {
    /// The board refused it.
    #[error("{}", words(.0))]
    Refused(Box<Problem>),
    /// The board could not be asked.
    #[error("{url} does not answer: {why}")]
    Unreachable {
        /// Where it should be.
        url: String,
        /// The network's words.
        why: String,
    },
    /// Something else than a board answered.
    #[error("{0} is not a Callboard, or one that this release does not understand")]
    Strange(String),
}

fn words(problem: &Problem) -> String {
    let field = problem.field.as_deref().map(|field| format!("{field}: ")).unwrap_or_default();
    let detail = problem.detail.as_deref().unwrap_or(&problem.title);
    format!("{field}{detail} ({}, request {})", problem.code.as_str(), problem.request_id)
}

/// A board, seen with one token.
#[derive(Clone)]
pub struct Client {
    http: reqwest::Client,
    url: String,
    token: String,
}

impl std::fmt::Debug for Client {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Client").field("url", &self.url).finish_non_exhaustive()
    }
}

impl Client {
    /// A client of the board at `url`.
    ///
    /// # Errors
    ///
    /// If there can be no HTTP client.
    pub fn new(url: String, token: String) -> anyhow::Result<Self> {
        // Set by somebody else in this process is as good.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let builder = reqwest::Client::builder().timeout(PATIENCE);
        let loopback = ["://127.0.0.1", "://localhost", "://[::1]"].iter().any(|host| url.contains(host));
        let http = if loopback { builder.no_proxy() } else { builder }.build()?;
        Ok(Self { http, url: url.trim_end_matches('/').to_owned(), token })
    }

    /// A request for `path` under `/api/v1`, with the token.
    pub fn request(&self, method: Method, path: &str) -> RequestBuilder {
        self.http.request(method, format!("{}/api/v1/{path}", self.url)).bearer_auth(&self.token)
    }

    /// Sends a request; its answer's body, `null` if it has none.
    ///
    /// # Errors
    ///
    /// [`Failed`].
    pub async fn send<T: DeserializeOwned>(&self, request: RequestBuilder) -> Result<T, Failed> {
        let unreachable = |error: reqwest::Error| {
            let cause = std::iter::successors(Some(&error as &dyn std::error::Error), |error| error.source()).last();
            Failed::Unreachable { url: self.url.clone(), why: cause.map(ToString::to_string).unwrap_or_default() }
        };
        let response = request.send().await.map_err(unreachable)?;
        let status = response.status();
        let body = response.bytes().await.map_err(unreachable)?;
        if status.is_success() {
            let body: &[u8] = if body.is_empty() { b"null" } else { &body };
            return serde_json::from_slice(body).map_err(|_| Failed::Strange(self.url.clone()));
        }
        match serde_json::from_slice::<Problem>(&body) {
            Ok(problem) => Err(Failed::Refused(Box::new(problem))),
            Err(_) => Err(Failed::Strange(self.url.clone())),
        }
    }

    /// `GET path`.
    ///
    /// # Errors
    ///
    /// [`Failed`].
    pub async fn get<T: DeserializeOwned>(&self, path: &str) -> Result<T, Failed> {
        self.send(self.request(Method::GET, path)).await
    }

    /// `PUT path` or `POST path` with a body.
    ///
    /// # Errors
    ///
    /// [`Failed`].
    pub async fn give<T: DeserializeOwned>(
        &self,
        method: Method,
        path: &str,
        body: &impl Serialize,
    ) -> Result<T, Failed> {
        self.send(self.request(method, path).json(body)).await
    }

    /// Sets a pipeline up.
    ///
    /// # Errors
    ///
    /// [`Failed`].
    pub async fn apply(&self, slug: &str, spec: &PipelineSpec) -> Result<Pipeline, Failed> {
        self.give(Method::PUT, &format!("pipelines/{slug}"), spec).await
    }

    /// Submits a build of a pipeline as it stands.
    ///
    /// # Errors
    ///
    /// [`Failed`].
    pub async fn submit(&self, slug: &str) -> Result<Build, Failed> {
        let submit = Submit { pipeline: slug.to_owned(), git_ref: None, env: Env::new() };
        self.give(Method::POST, "builds", &submit).await
    }

    /// Reads a build.
    ///
    /// # Errors
    ///
    /// [`Failed`].
    pub async fn build(&self, id: Uuid) -> Result<Build, Failed> {
        self.get(&format!("builds/{id}")).await
    }

    /// Reads a page of a log.
    ///
    /// # Errors
    ///
    /// [`Failed`].
    pub async fn log(&self, id: Uuid, after: u64) -> Result<LogPage, Failed> {
        self.get(&format!("builds/{id}/logs?after={after}")).await
    }

    /// Reads what the workspace uses.
    ///
    /// # Errors
    ///
    /// [`Failed`].
    pub async fn workspace(&self) -> Result<Workspace, Failed> {
        self.get("workspace").await
    }
}
