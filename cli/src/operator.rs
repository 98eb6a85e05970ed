//! `callboard plan`, `token`, `worker` and `reap`: for operators.

use crate::args::{Kind, PlanCommand, TokenCommand, WorkerCommand};
use crate::output::{Output, ago, now, plain};
use crate::pipeline::segment;
use localstack::client::Client;
use protocol::admin::{CreatedToken, NewToken, Swept, Token, TokenKind, Tokens, Worker, Workers};
use protocol::workspace::PlanLimits;
use reqwest::Method;

/// `callboard plan`.
///
/// # Errors
///
/// What the board says.
pub async fn plan(command: PlanCommand, board: &Client, output: Output) -> anyhow::Result<u8> {
    let plan: PlanLimits = match command {
        PlanCommand::Set { workspace, plan } => {
            let path = format!("admin/workspaces/{}/plan", segment(&workspace)?);
            board.give(Method::PUT, &path, &PlanLimits::from(plan)).await?
        }
        PlanCommand::Show { workspace } => {
            board.get(&format!("admin/workspaces/{}/plan", segment(&workspace)?)).await?
        }
    };
    output.print(&plan, |plan| {
        format!(
            "{} minutes a month, {} builds at once, {} waiting, {} s a build",
            plan.minutes_per_month, plan.running_max, plan.pending_max, plan.build_seconds_max
        )
    })?;
    Ok(0)
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
            let made: CreatedToken = board.give(Method::POST, "admin/tokens", &new).await?;
            // The one time that it is shown, alone on standard output, so that it can go straight into a file.
            output.print(&made, |made| made.token.0.clone())?;
            eprintln!("token {} is made; it is not shown again", made.id);
        }
        TokenCommand::List => {
            let tokens: Tokens = board.get("admin/tokens").await?;
            output.print(&tokens, |tokens| {
                let rows: Vec<_> = tokens.tokens.iter().map(token_row).collect();
                output.table(&["ID", "KIND", "WORKSPACE", "NAME", "MADE", "REVOKED"], &rows)
            })?;
        }
        TokenCommand::Revoke { id } => {
            board.send::<()>(board.request(Method::DELETE, &format!("admin/tokens/{}", segment(&id)?))).await?;
            println!("token {id} is revoked");
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
        token.id.clone(),
        token.kind.as_str().to_owned(),
        token.workspace.clone().unwrap_or_default(),
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
    let workers: Workers = board.get("admin/workers").await?;
    output.print(&workers, |workers| {
        if workers.workers.is_empty() {
            return "no worker has phoned in yet; start one with `callboard-worker run`".into();
        }
        let row = |worker: &Worker| {
            vec![
                plain(&worker.name),
                worker.token_id.clone(),
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
    let swept: Swept = board.send(board.request(Method::POST, "admin/sweep")).await?;
    output.print(&swept, |swept| {
        let Swept { lost, overdue, expired, purged, errors, paused } = swept;
        let pause = if *paused { "\npaused after an outage: leases are not ended yet" } else { "" };
        format!(
            "{lost} lost, {overdue} overdue, {expired} expired or unrunnable, {purged} purged, {errors} errors{pause}"
        )
    })?;
    Ok(0)
}
