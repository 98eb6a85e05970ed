//! Everything at once, started in order and stopped in the other.

use crate::database::marked;
use crate::fresh::Fresh;
use crate::lock::Lock;
use crate::postgres::Postgres;
use crate::tokens::Tokens;
use crate::worker::{self, Worker};
use crate::{keys, routes, schedule};
use anyhow::Context as _;
use edge::config::SecretsKey;
use edge::{Config, Shell};
use rules::Timing;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use tokio::net::TcpListener;
use tokio::task::JoinHandle;

/// How many connections the stack holds.
const CONNECTIONS: u32 = 8;

/// How a stack is to run.
#[derive(Clone)]
pub struct Options {
    /// Its directory: data, keys, `callboard.env`.
    pub dir: PathBuf,
    /// The loopback port; 0: a free one.
    pub port: u16,
    /// A database that runs elsewhere, instead of a server of its own.
    pub database_url: Option<String>,
    /// The numbers of SPEC.md's table; none: those that the environment sets.
    pub timing: Option<Timing>,
}

/// A running stack.
pub struct Stack {
    dir: PathBuf,
    address: SocketAddr,
    shell: Shell,
    tokens: Tokens,
    server: JoinHandle<()>,
    sweeps: JoinHandle<()>,
    worker: Option<Worker>,
    postgres: Option<Postgres>,
    _lock: Lock,
}

impl Stack {
    /// Starts everything but a worker.
    ///
    /// # Errors
    ///
    /// What is missing or taken, and how to mend it. Nothing is left running.
    pub async fn start(options: Options) -> anyhow::Result<Self> {
        let Options { dir, port, database_url, timing } = options;
        let (lock, fresh) = Fresh::take(&dir)?;
        let listener = TcpListener::bind(("127.0.0.1", port))
            .await
            .with_context(|| format!("port {port} of 127.0.0.1 is taken: choose another with --port"))?;
        let address = listener.local_addr()?;
        let postgres = match &database_url {
            Some(_) => None,
            None => Some(Postgres::start(&dir).await?),
        };
        let database_url = database_url.or_else(|| postgres.as_ref().map(|server| server.url().to_owned()));
        let database_url = database_url.unwrap_or_default();
        let named = if postgres.is_some() { marked(&database_url, &dir) } else { database_url.clone() };
        let key = keys::kept(&dir.join("secrets.key"), || Ok(format!("local:{}", keys::random_hex(32)?)))?;
        SecretsKey::parse(&key).context("secrets.key is not a key; put back the one it was")?;
        let config = config(&database_url, &key, timing)?;
        let shell = Shell::new(config)?;
        store::migrations::apply(&shell.store).await.context("the database can't be brought to this release")?;
        let tokens = Tokens::ensure(&shell, &dir).await?;
        tokens.write(&dir, &format!("http://{address}"), &named)?;
        let app = edge::app(routes(), shell.clone());
        let server = tokio::spawn(edge::listen::serve(listener, app, edge::listen::HEAD_WAIT));
        let sweeps = sweeps(&shell);
        fresh.stays();
        Ok(Self { dir, address, shell, tokens, server, sweeps, worker: None, postgres, _lock: lock })
    }

    /// Where it listens.
    #[must_use]
    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Its directory.
    #[must_use]
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// Its tokens.
    #[must_use]
    pub fn tokens(&self) -> &Tokens {
        &self.tokens
    }

    /// Its worker, if it has one.
    #[must_use]
    pub fn worker(&self) -> Option<&Worker> {
        self.worker.as_ref()
    }

    /// Starts a worker.
    ///
    /// # Errors
    ///
    /// If its binary is missing.
    pub fn start_worker(&mut self, options: worker::Options) -> anyhow::Result<()> {
        self.worker = Some(Worker::start(options, &self.tokens.worker)?);
        Ok(())
    }

    /// Ends the worker, if there is one; its builds end as `worker_shutdown`.
    pub async fn stop_worker(&mut self) {
        if let Some(worker) = self.worker.take() {
            worker.stop().await;
        }
    }

    /// Waits until it can't go on: its own Postgres has died too often; returns how.
    pub async fn broken(&self) -> String {
        match &self.postgres {
            Some(server) => server.given_up().await,
            None => std::future::pending().await,
        }
    }

    /// Its own Postgres, if it has one.
    #[must_use]
    pub fn postgres(&self) -> Option<&Postgres> {
        self.postgres.as_ref()
    }

    /// Stops everything, the worker first and the database last. The data stay.
    ///
    /// # Errors
    ///
    /// If the database does not stop.
    pub async fn stop(mut self) -> anyhow::Result<()> {
        let is_up = self.postgres.as_ref().is_none_or(|server| server.pid().is_some());
        match self.worker.take() {
            Some(worker) if is_up => worker.stop().await,
            // Nobody takes its reports: it is not waited for.
            Some(worker) => worker.stop_at_once().await,
            None => {}
        }
        self.sweeps.abort();
        self.server.abort();
        self.shell.store.close().await;
        if let Some(server) = self.postgres.take() {
            server.stop().await;
        }
        Ok(())
    }
}

/// The settings of the environment, with the stack's own database and key.
fn config(database_url: &str, key: &str, timing: Option<Timing>) -> anyhow::Result<Config> {
    // The one place of the stack that reads the functions' settings.
    #[expect(clippy::disallowed_methods)]
    let from_env = |name| std::env::var(name).ok();
    let mut config = Config::read(|name| match name {
        "CALLBOARD_DATABASE_URL" => Some(database_url.to_owned()),
        "CALLBOARD_SECRETS_KEY" => Some(key.to_owned()),
        "CALLBOARD_DATABASE_CONNECTIONS" => from_env(name).or_else(|| Some(CONNECTIONS.to_string())),
        other => from_env(other),
    })?;
    config.timing = timing.unwrap_or(config.timing);
    Ok(config)
}

/// Sweeps as the scheduled function does.
fn sweeps(shell: &Shell) -> JoinHandle<()> {
    let shell = shell.clone();
    let period = shell.config.timing.reap_every;
    schedule::every(period, move || {
        let shell = shell.clone();
        async move {
            if let Err(error) = reaper::sweep(&shell).await {
                tracing::error!(%error, "sweep failed; the next one is due in {period:?}");
            }
        }
    })
}
