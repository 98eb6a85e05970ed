//! `callboard token`, `worker` and `reap`: for operators.

use crate::answer::Answer;
use crate::output::Output;
use crate::pipeline::segment;
use anyhow::{Context as _, anyhow};
use clap::{Subcommand, ValueEnum};
use localstack::clean::plain;
use localstack::client::Client;
use localstack::spell::{ago, now};
use protocol::admin::{CreatedToken, NewToken, Swept, Token, TokenKind, Tokens, Worker, Workers};
use reqwest::Method;
use std::fs::{self, File};
use std::io::{ErrorKind, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::PathBuf;

/// `token`.
#[derive(Debug, Subcommand)]
pub enum TokenCommand {
    /// Make a token. It is shown this once, alone on standard output, or put into a file.
    #[command(after_help = "Examples:
  callboard token create --kind api --workspace acme --name \"the web-app\" --out api.token
  callboard token create --kind worker --name host7 --out worker.token
  callboard token create --kind worker --workspace acme --workspace umbrella --out theirs.token")]
    Create {
        /// Whom it lets in.
        #[arg(long, value_enum)]
        kind: Kind,
        /// The workspace of an api token; those that a worker token is limited to (may be repeated).
        #[arg(long, required_if_eq("kind", "api"))]
        workspace: Vec<String>,
        /// What it is for.
        #[arg(long, default_value = "")]
        name: String,
        /// A file to put it into, which only you can read; one that is there is not overwritten.
        #[arg(long, value_name = "FILE")]
        out: Option<PathBuf>,
    },
    /// All tokens, without the tokens themselves.
    #[command(after_help = "Example:\n  callboard token list")]
    List,
    /// Revoke a token, at once and for good.
    #[command(after_help = "Example:\n  callboard token revoke 1a2b3c4d")]
    Revoke {
        /// Its id, as `token list` has it.
        id: String,
    },
}

/// Whom a token lets in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Kind {
    /// A worker.
    Worker,
    /// A web-app or a person, in one workspace.
    Api,
    /// An operator.
    Operator,
}

/// `worker`.
#[derive(Debug, Subcommand)]
pub enum WorkerCommand {
    /// The workers as they were last seen.
    #[command(after_help = "Example:\n  callboard worker list")]
    List,
}

/// `callboard token`.
///
/// # Errors
///
/// What the board says.
pub async fn token(command: TokenCommand, board: &Client, output: Output) -> anyhow::Result<u8> {
    match command {
        TokenCommand::Create { kind, workspace, name, out } => {
            let new = new_token(kind, workspace, name)?;
            let file = out.map(Out::create).transpose()?;
            let made: Answer<CreatedToken> = board.give(Method::POST, "admin/tokens", &new).await?;
            match file {
                Some(file) => {
                    output.done(&format!("token {} is in {}", plain(&made.value.id), file.keep(&made.value)?))?
                }
                // The one time that it is shown, alone on standard output.
                None => output.print(&made, |made| made.token.0.clone())?,
            }
            localstack::say::err(format_args!("token {} is made; it is not shown again", plain(&made.value.id)));
        }
        TokenCommand::List => {
            let tokens: Answer<Tokens> = board.get("admin/tokens").await?;
            output.print(&tokens, |tokens| {
                let rows: Vec<_> = tokens.tokens.iter().map(token_row).collect();
                output.table(&["ID", "KIND", "WORKSPACE", "NAME", "MADE", "REVOKED"], &rows)
            })?;
        }
        TokenCommand::Revoke { id } => {
            board.send::<()>(board.request(Method::DELETE, &format!("admin/tokens/{}", segment(&id)?))).await?;
            output.done(&format!("token {id} is revoked"))?;
        }
    }
    Ok(0)
}

/// A worker's workspaces limit it; anybody else's is one.
fn new_token(kind: Kind, mut workspaces: Vec<String>, name: String) -> anyhow::Result<NewToken> {
    let (workspace, workspaces) = match kind {
        Kind::Worker => (None, (!workspaces.is_empty()).then_some(workspaces)),
        Kind::Api | Kind::Operator if workspaces.len() > 1 => {
            anyhow::bail!("--workspace: only a worker token is for several workspaces");
        }
        Kind::Api | Kind::Operator => (workspaces.pop(), None),
    };
    Ok(NewToken { kind: kind.into(), workspace, workspaces, name })
}

impl From<Kind> for TokenKind {
    fn from(kind: Kind) -> Self {
        match kind {
            Kind::Worker => Self::Worker,
            Kind::Api => Self::Api,
            Kind::Operator => Self::Operator,
        }
    }
}

/// A file for a token, made before the token is: one that can't be kept is not made. Dropped without a token, it goes.
struct Out {
    path: PathBuf,
    file: File,
    is_whole: bool,
}

impl Out {
    fn create(path: PathBuf) -> anyhow::Result<Self> {
        let file = File::options().write(true).create_new(true).mode(0o600).open(&path);
        let shown = path.display();
        let file = file.map_err(|error| {
            if error.kind() == ErrorKind::AlreadyExists {
                anyhow!("{shown} is there already, and is never overwritten: name another file, or remove it")
            } else {
                anyhow!("{shown} can't be made: {error}")
            }
        })?;
        Ok(Self { path, file, is_whole: false })
    }

    fn keep(mut self, made: &CreatedToken) -> anyhow::Result<String> {
        let shown = self.path.display().to_string();
        let written = writeln!(self.file, "{}", made.token.0).and_then(|()| self.file.sync_all());
        written.with_context(|| format!("{shown} can't be written; revoke the token {}", plain(&made.id)))?;
        self.is_whole = true;
        Ok(shown)
    }
}

impl Drop for Out {
    fn drop(&mut self) {
        if !self.is_whole {
            let _ = fs::remove_file(&self.path);
        }
    }
}

fn token_row(token: &Token) -> Vec<String> {
    let revoked = token.revoked_at.map(|at| ago(at, now())).unwrap_or_default();
    vec![
        plain(&token.id),
        token.kind.as_str().to_owned(),
        plain(
            &token
                .workspace
                .clone()
                .into_iter()
                .chain(token.workspaces.clone().into_iter().flatten())
                .collect::<Vec<_>>()
                .join(","),
        ),
        plain(&token.name),
        ago(token.created_at, now()),
        revoked,
    ]
}

/// `callboard worker`.
///
/// # Errors
///
/// What the board says.
pub async fn worker(command: WorkerCommand, board: &Client, output: Output) -> anyhow::Result<u8> {
    let WorkerCommand::List = command;
    let workers: Answer<Workers> = board.get("admin/workers").await?;
    output.print(&workers, |workers| {
        if workers.workers.is_empty() {
            return "no worker has phoned in yet; start one with `callboard-worker run`".into();
        }
        let row = |worker: &Worker| {
            vec![
                plain(&worker.name),
                plain(&worker.token_id),
                plain(&worker.isolation.join(",")),
                plain(&worker.labels.join(",")),
                worker.running.to_string(),
                plain(&worker.version),
                ago(worker.seen_at, now()),
            ]
        };
        let rows: Vec<_> = workers.workers.iter().map(row).collect();
        output.table(&["NAME", "TOKEN", "BACK ENDS", "LABELS", "RUNNING", "VERSION", "SEEN"], &rows)
    })?;
    Ok(0)
}

/// `callboard reap`.
///
/// # Errors
///
/// What the board says.
pub async fn reap(board: &Client, output: Output) -> anyhow::Result<u8> {
    let swept: Answer<Swept> = board.send(board.request(Method::POST, "admin/sweep")).await?;
    output.print(&swept, |swept| {
        let Swept { lost, overdue, expired, purged, errors, paused, .. } = swept;
        let plans = plans_swept(swept) + &previews_swept(swept);
        let pause = if *paused { "\npaused after an outage: leases are not ended yet" } else { "" };
        format!(
            "{lost} lost, {overdue} overdue, {expired} expired or unrunnable, {purged} purged, {errors} errors{plans}{pause}"
        )
    })?;
    Ok(0)
}

/// What a sweep did about previews; nothing where there was nothing to do.
fn previews_swept(swept: &Swept) -> String {
    match (swept.previews_expired, swept.previews_lost, swept.previews_purged) {
        (0, 0, 0) => String::new(),
        (expired, lost, purged) => {
            format!("\npreviews: {expired} past their time, {lost} of lost hosts, {purged} purged")
        }
    }
}

/// What a sweep did about plans; nothing where no billing service gives them.
fn plans_swept(swept: &Swept) -> String {
    match (swept.plans_fetched, swept.plans_failed, swept.plans_lapsed) {
        (0, 0, 0) => String::new(),
        (fetched, failed, stale) => {
            format!("\nplans: {fetched} fetched, {failed} not given by the billing service, {stale} stale")
        }
    }
}
