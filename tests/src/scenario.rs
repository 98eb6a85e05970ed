//! A board to tell stories on: a fresh database, every function's routes, and words for what happens.

use crate::database::{database, url};
use crate::document;
use axum::Router;
use axum::body::Body;
use edge::auth::{WorkerToken, new_token};
use edge::config::{LOG_LIMITS, SecretsKey};
use edge::{Config, Shell};
use http::{Method, Request, StatusCode};
use http_body_util::BodyExt as _;
use protocol::admin::TokenKind;
use rules::Timing;
use rules::fairness::Order;
use serde_json::{Value, json};
use sqlx::PgPool;
use sqlx::postgres::{PgConnectOptions, PgPoolOptions};
use std::str::FromStr as _;
use tower::ServiceExt as _;
use uuid::Uuid;

/// A board of its own, with one workspace (`acme`), its pipeline (`main`) and a worker's token.
pub struct Board {
    /// Every function's routes.
    pub app: Router,
    /// What handlers work with.
    pub shell: Shell,
    /// Straight to the database.
    pub pool: PgPool,
    /// A token of the workspace `acme`.
    pub api: String,
    /// A worker's token.
    pub worker: String,
    /// An operator's token.
    pub operator: String,
}

/// A status and a body.
#[derive(Debug)]
pub struct Answer {
    /// The status.
    pub status: StatusCode,
    /// The headers.
    pub headers: http::HeaderMap,
    /// The body, as it came.
    pub bytes: Vec<u8>,
    /// The body, if it is JSON; else null.
    pub body: Value,
}

impl Answer {
    /// The status as a number, and the problem's code if it has one.
    #[must_use]
    pub fn said(&self) -> (u16, &str) {
        (self.status.as_u16(), self.body["code"].as_str().unwrap_or(""))
    }

    /// The body of an answer that must be a success.
    ///
    /// # Panics
    ///
    /// If it is not.
    #[must_use]
    pub fn ok(self) -> Value {
        assert!(self.status.is_success(), "{} {}", self.status, self.body);
        self.body
    }

    /// The `id` of the body.
    ///
    /// # Panics
    ///
    /// If there is none.
    #[must_use]
    pub fn id(self) -> Uuid {
        let body = self.ok();
        body["id"].as_str().or(body["build_id"].as_str()).and_then(|id| id.parse().ok()).expect("an id in the answer")
    }
}

/// SPEC.md's numbers.
#[must_use]
pub fn config(database_url: String) -> Config {
    Config {
        database_url,
        database_connections: 20,
        database_statements: store::Statements::default(),
        database_ca: None,
        batch_max: 64,
        claim_order: Order::Oldest,
        secrets_key: SecretsKey { id: "test".into(), bytes: [7; 32] },
        timing: Timing::default(),
        log: LOG_LIMITS,
        billing: None,
    }
}

impl Board {
    /// A board with SPEC.md's numbers.
    pub async fn new() -> Self {
        Self::with(|_| {}).await
    }

    /// A board with settings of the test's own.
    pub async fn with(set: impl FnOnce(&mut Config)) -> Self {
        Self::over(database().await, set).await
    }

    /// A board on a server of the test's own, which nobody else uses.
    pub async fn on(database_url: &str) -> Self {
        let store = store::Store::connect_lazy(database_url, 1).expect("an address");
        store::migrations::apply(&store).await.expect("migrations apply");
        store.close().await;
        Self::over(PgConnectOptions::from_str(database_url).expect("an address"), |_| {}).await
    }

    async fn over(options: PgConnectOptions, set: impl FnOnce(&mut Config)) -> Self {
        let mut config = config(url(&options));
        set(&mut config);
        let shell = Shell::new(config).expect("settings of the test itself");
        let pool = PgPoolOptions::new().max_connections(4).connect_lazy_with(options);
        let app = edge::app(localstack::routes(), shell.clone());
        let mut board = Self { app, shell, pool, api: String::new(), worker: String::new(), operator: String::new() };
        board.operator = board.token(TokenKind::Operator, None).await;
        board.worker = board.token(TokenKind::Worker, None).await;
        board.workspace("acme", &json!({ "minutes_per_month": 100_000, "running_max": 100 })).await;
        board.api = board.token(TokenKind::Api, Some("acme")).await;
        board.pipeline(&board.api, "main", &pipeline()).await;
        board
    }

    /// Stores a new token.
    pub async fn token(&self, kind: TokenKind, workspace: Option<&str>) -> String {
        let token = new_token(kind);
        let WorkerToken { id, digest } = WorkerToken::of(&token);
        let new = store::tokens::NewToken { id: &id, digest: &digest, kind, workspace, workspaces: None, name: "" };
        assert!(store::tokens::insert(&self.shell.store, new).await.expect("stored"));
        token
    }

    /// Makes a workspace with a plan; `null`: without one.
    pub async fn workspace(&self, slug: &str, plan: &Value) {
        let mut tx = self.shell.store.begin().await.expect("a transaction");
        assert!(store::workspaces::insert(&mut tx, slug).await.expect("stored"), "{slug} exists");
        if !plan.is_null() {
            let limits = serde_json::from_value(plan.clone()).expect("a plan of the test itself");
            assert!(store::workspaces::set_plan(&mut tx, slug, &limits).await.expect("stored"));
        }
        tx.commit().await.expect("stored");
    }

    /// Serves the same board by another process, with settings changed so.
    ///
    /// # Panics
    ///
    /// If they can't be used.
    pub fn reconnect(&mut self, set: impl FnOnce(&mut Config)) {
        let mut config = Config::clone(&self.shell.config);
        set(&mut config);
        self.shell = Shell::new(config).expect("settings of the test itself");
        self.app = edge::app(localstack::routes(), self.shell.clone());
    }

    /// A workspace with a plan, its pipeline `main`, and a token of it.
    pub async fn tenant(&self, slug: &str, plan: Value) -> String {
        self.workspace(slug, &plan).await;
        let api = self.token(TokenKind::Api, Some(slug)).await;
        self.pipeline(&api, "main", &pipeline()).await;
        api
    }

    /// Sets up a pipeline.
    pub async fn pipeline(&self, api: &str, slug: &str, spec: &Value) {
        let token = WorkerToken::of(api);
        let known = store::tokens::check(&self.shell.store, &token.id, &token.digest, TokenKind::Api).await;
        let workspace = known.expect("stored").flatten().expect("a workspace's token");
        let spec = serde_json::from_value(spec.clone()).expect("a pipeline of the test itself");
        store::pipelines::put(&self.shell.store, workspace, slug, &spec).await.expect("stored");
    }

    /// Any call, with a JSON body unless it is null.
    pub async fn call(&self, method: Method, path: &str, token: &str, body: &Value) -> Answer {
        let mut request =
            Request::builder().method(method).uri(path).header("authorization", format!("Bearer {token}"));
        let body = if body.is_null() {
            Body::empty()
        } else {
            request = request.header("content-type", "application/json");
            Body::from(body.to_string())
        };
        self.send(request.body(body).expect("a request of the test itself")).await
    }

    /// Any request. Its answer must be one that the OpenAPI document lists.
    pub async fn send(&self, request: Request<Body>) -> Answer {
        let (method, path) = (request.method().clone(), request.uri().path().to_owned());
        let response = self.app.clone().oneshot(request).await.expect("the app answers");
        let (parts, body) = response.into_parts();
        document::assert_lists(&method, &path, parts.status);
        let bytes = body.collect().await.expect("a whole body").to_bytes().to_vec();
        let body = serde_json::from_slice(&bytes).unwrap_or(Value::Null);
        Answer { status: parts.status, headers: parts.headers, bytes, body }
    }

    /// A GET by the workspace `acme`.
    pub async fn get(&self, path: &str) -> Answer {
        self.call(Method::GET, path, &self.api, &Value::Null).await
    }

    /// A POST by the worker.
    pub async fn work(&self, path: &str, body: &Value) -> Answer {
        self.call(Method::POST, &format!("/internal/worker/{path}"), &self.worker, body).await
    }

    /// Submits a build of `acme`'s pipeline.
    pub async fn submit(&self) -> Uuid {
        self.submit_as(&self.api).await
    }

    /// Submits a build of a tenant's pipeline `main`.
    pub async fn submit_as(&self, api: &str) -> Uuid {
        self.call(Method::POST, "/api/v1/builds", api, &json!({ "pipeline": "main" })).await.id()
    }

    /// A claim with this `claim_id`.
    pub async fn claim_as(&self, worker: &str, claim_id: Uuid) -> Answer {
        let body = json!({ "claim_id": claim_id, "worker": {
            "name": "w1", "version": "test", "host_id": "h1", "isolation": ["bubblewrap"], "labels": [] } });
        self.call(Method::POST, "/internal/worker/claim", worker, &body).await
    }

    /// A new claim; `None`: nothing to do.
    pub async fn claim(&self) -> Option<Uuid> {
        let answer = self.claim_as(&self.worker, Uuid::new_v4()).await;
        (answer.status != StatusCode::NO_CONTENT).then(|| answer.id())
    }

    /// A build that the worker holds.
    pub async fn running(&self) -> Uuid {
        self.submit().await;
        self.claim().await.expect("the build that was just submitted")
    }

    /// The worker reports an end.
    pub async fn complete(&self, build: Uuid, report: &Value) -> Answer {
        self.work(&format!("builds/{build}/complete"), report).await
    }

    /// A build that its worker ended with `status`.
    pub async fn ended(&self, status: &str) -> Uuid {
        let build = self.running().await;
        if status == "cancelled" {
            let path = format!("/api/v1/builds/{build}/cancel");
            let _ = self.call(Method::POST, &path, &self.api, &Value::Null).await.ok();
        }
        let _ = self.complete(build, &json!({ "status": status, "ran_ms": 1 })).await.ok();
        build
    }

    /// Sends chunks; each is `(seq, text)`.
    pub async fn send_logs(&self, build: Uuid, chunks: &[(u64, &str)]) -> Answer {
        let chunks: Vec<_> = chunks
            .iter()
            .map(|(seq, text)| json!({ "seq": seq, "step": "test", "stream": "stdout", "at_ms": 5, "text": text }))
            .collect();
        self.work(&format!("builds/{build}/logs"), &json!({ "chunks": chunks })).await
    }

    /// The build as `acme` sees it.
    pub async fn build(&self, build: Uuid) -> Value {
        self.get(&format!("/api/v1/builds/{build}")).await.ok()
    }

    /// The workspace `acme` as it sees itself.
    pub async fn usage(&self) -> Value {
        self.get("/api/v1/workspace").await.ok()
    }

    /// Lets `seconds` pass for a build: everything that happened to it was that much earlier.
    pub async fn age(&self, build: Uuid, seconds: u32) {
        self.execute(&format!(
            "update builds set created_at = created_at - interval '{seconds} s',
                 started_at = started_at - interval '{seconds} s',
                 lease_expires_at = lease_expires_at - interval '{seconds} s' where id = '{build}'"
        ))
        .await;
    }

    /// Spends the month of a workspace, as if builds had.
    pub async fn spend(&self, slug: &str) {
        self.execute(&format!(
            "update workspaces w set charged_seconds = p.seconds_per_month
             from plans p where p.workspace_id = w.id and w.slug = '{slug}'"
        ))
        .await;
    }

    /// Changes all plans by SQL, without the limits of the API.
    pub async fn plans(&self, change: &str) {
        self.execute(&format!("update plans set {change}")).await;
    }

    /// One sweep by the operator.
    pub async fn sweep(&self) -> Value {
        self.call(Method::POST, "/api/v1/admin/sweep", &self.operator, &Value::Null).await.ok()
    }
}

/// A pipeline with one step.
#[must_use]
pub fn pipeline() -> Value {
    json!({ "repository": "https://git.example/acme/app.git", "steps": [{ "name": "test", "commands": ["make test"] }] })
}
