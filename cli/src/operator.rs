//! `callboard token`, `worker` and `reap`: for operators.

use crate::answer::Answer;
use crate::output::Output;
use crate::pipeline::segment;
use clap::{Subcommand, ValueEnum};
use localstack::clean::plain;
use localstack::client::Client;
use localstack::spell::{ago, now};
use protocol::admin::{CreatedToken, NewToken, Swept, Token, TokenKind, Tokens, Worker, Workers};
use reqwest::Method;

/// `token`.
#[derive(Debug, Subcommand)]
pub enum TokenCommand {
    /// Make a token. It is shown this once, alone on standard output.
    #[command(after_help = "Examples:
  callboard token create --kind api --workspace acme --name \"the web-app\" > api.token
  callboard token create --kind worker --name host7 > worker.token")]
    Create {
        /// Whom it lets in.
        #[arg(long, value_enum)]
        kind: Kind,
        /// The workspace of an api token.
        #[arg(long, required_if_eq("kind", "api"))]
        workspace: Option<String>,
        /// What it is for.
        #[arg(long, default_value = "")]
        name: String,
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
        TokenCommand::Create { kind, workspace, name } => {
            let new = NewToken { kind: kind.into(), workspace, name };
            let made: Answer<CreatedToken> = board.give(Method::POST, "admin/tokens", &new).await?;
            // The one time that it is shown, alone on standard output, so that it can go straight into a file.
            output.print(&made, |made| made.token.0.clone())?;
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

impl From<Kind> for TokenKind {
    fn from(kind: Kind) -> Self {
        match kind {
            Kind::Worker => Self::Worker,
            Kind::Api => Self::Api,
            Kind::Operator => Self::Operator,
        }
    }
}

fn token_row(token: &Token) -> Vec<String> {
    let revoked = token.revoked_at.map(|at| ago(at, now())).unwrap_or_default();
    vec![
        plain(&token.id),
        token.kind.as_str().to_owned(),
        token.workspace.as_deref().map(plain).unwrap_or_default(),
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
        let Swept { lost, overdue, expired, purged, errors, paused } = swept;
        let pause = if *paused { "\npaused after an outage: leases are not ended yet" } else { "" };
        format!(
            "{lost} lost, {overdue} overdue, {expired} expired or unrunnable, {purged} purged, {errors} errors{pause}"
        )
    })?;
    Ok(0)
}
