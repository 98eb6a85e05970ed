//! The few calls of the demo, over HTTP like anybody's.

use anyhow::{Context as _, bail};
use protocol::Problem;
use protocol::build::{Build, Submit};
use protocol::log::LogPage;
use protocol::pipeline::PipelineSpec;
use protocol::workspace::Workspace;
use reqwest::{Method, RequestBuilder};
use serde::de::DeserializeOwned;
use uuid::Uuid;

/// A web-app's view of a board.
#[derive(Clone, Debug)]
pub struct Client {
    http: reqwest::Client,
    url: String,
    token: String,
}

impl Client {
    /// A client of the board at `url`.
    ///
    /// # Errors
    ///
    /// If there can be no HTTP client.
    pub fn new(url: String, token: String) -> anyhow::Result<Self> {
        let _ = rustls::crypto::ring::default_provider().install_default();
        let http = reqwest::Client::builder().no_proxy().build()?;
        Ok(Self { http, url, token })
    }

    fn request(&self, method: Method, path: &str) -> RequestBuilder {
        self.http.request(method, format!("{}/api/v1/{path}", self.url)).bearer_auth(&self.token)
    }

    /// Sets a pipeline up.
    ///
    /// # Errors
    ///
    /// What the board says, or that it does not answer.
    pub async fn apply(&self, slug: &str, spec: &PipelineSpec) -> anyhow::Result<()> {
        let request = self.request(Method::PUT, &format!("pipelines/{slug}")).json(spec);
        answer::<serde_json::Value>(request).await.map(drop)
    }

    /// Submits a build.
    ///
    /// # Errors
    ///
    /// What the board says, or that it does not answer.
    pub async fn submit(&self, slug: &str) -> anyhow::Result<Build> {
        let submit = Submit { pipeline: slug.to_owned(), git_ref: None, env: std::collections::BTreeMap::new() };
        answer(self.request(Method::POST, "builds").json(&submit)).await
    }

    /// Reads a build.
    ///
    /// # Errors
    ///
    /// What the board says, or that it does not answer.
    pub async fn build(&self, id: Uuid) -> anyhow::Result<Build> {
        answer(self.request(Method::GET, &format!("builds/{id}"))).await
    }

    /// Reads a page of a log.
    ///
    /// # Errors
    ///
    /// What the board says, or that it does not answer.
    pub async fn log(&self, id: Uuid, after: u64) -> anyhow::Result<LogPage> {
        answer(self.request(Method::GET, &format!("builds/{id}/logs?after={after}"))).await
    }

    /// Reads what the workspace uses.
    ///
    /// # Errors
    ///
    /// What the board says, or that it does not answer.
    pub async fn workspace(&self) -> anyhow::Result<Workspace> {
        answer(self.request(Method::GET, "workspace")).await
    }
}

async fn answer<T: DeserializeOwned>(request: RequestBuilder) -> anyhow::Result<T> {
    let response = request.send().await.context("the board does not answer")?;
    let status = response.status();
    let body = response.bytes().await.context("the board's answer broke off")?;
    if status.is_success() {
        return serde_json::from_slice(&body).context("the board's answer can't be read");
    }
    match serde_json::from_slice::<Problem>(&body) {
        Ok(problem) => bail!("{} ({})", problem.detail.unwrap_or(problem.title), problem.code.as_str()),
        Err(_) => bail!("the board answered {status}"),
    }
}
