//! `callboard up`: a stack that stays until Ctrl-C.

use crate::database::Database;
use crate::signals::{Caught, Signals};
use crate::stack::{Options, Stack};
use crate::{demo, say, tokens, worker};
use nix::unistd::Uid;
use std::convert::Infallible;
use std::path::{Path, PathBuf};

/// The port where none is given.
pub const PORT: u16 = 7070;

/// Its own Postgres died too often to be started again.
#[derive(Debug, thiserror::Error)]
#[error("{how}\nPostgres died too often to be started again; the data are in {}", dir.display())]
pub struct GivenUp {
    /// How it died last.
    pub how: String,
    /// Where the data are.
    pub dir: PathBuf,
}

/// What `up` is told.
#[derive(Clone, Default)]
pub struct UpOptions {
    /// The loopback port; 7070 if none.
    pub port: Option<u16>,
    /// The directory; [`default_dir`] if none.
    pub dir: Option<PathBuf>,
    /// Whether to leave the worker out.
    pub no_worker: bool,
    /// A database that runs elsewhere.
    pub database: Option<Database>,
    /// What builds may reach besides public addresses.
    pub egress_allow: Vec<String>,
    /// Certificates to trust besides the system's.
    pub ca_bundle: Option<PathBuf>,
}

/// Where a stack's data are if nobody says: `/var/lib/callboard` for root, `~/.local/share/callboard` else.
#[must_use]
pub fn default_dir() -> PathBuf {
    match std::env::home_dir() {
        Some(home) if !Uid::effective().is_root() => home.join(".local/share/callboard"),
        Some(_) | None => "/var/lib/callboard".into(),
    }
}

/// Starts a stack, says how to use it, and stops it on Ctrl-C, SIGTERM, or when its terminal is closed.
///
/// # Errors
///
/// What is missing or taken, and how to mend it; [`GivenUp`] if its Postgres died and can't be started again.
pub async fn up(options: UpOptions) -> anyhow::Result<()> {
    let dir = std::path::absolute(options.dir.clone().unwrap_or_else(default_dir))?;
    let mut signals = Signals::listen()?;
    demo::sweep_dead();
    let mut stack = None;
    let ended = tokio::select! {
        broken = run(&mut stack, &options, &dir) => broken.map(|never| match never {}),
        caught = signals.next() => Ok(caught),
    };
    if let Ok(caught) = ended {
        // Whether anybody reads this does not matter any more.
        let _ = say::out(stopping(caught, stack.as_ref(), &options, &dir));
    }
    let ended = ended.map(drop);
    let Some(stack) = stack else { return ended };
    tokio::select! {
        stopped = stack.stop() => ended.and(stopped),
        // A second signal ends at once what the first asked to end.
        _ = signals.next() => ended,
    }
}

/// Who ended it, and where the data are.
fn stopping(caught: Caught, stack: Option<&Stack>, options: &UpOptions, dir: &Path) -> String {
    let why = format!("Stopping on {}", caught.name);
    match stack.map(|stack| elsewhere(stack, options)) {
        None => format!("{why}, before it was up."),
        Some(Some(database)) => format!("{why}; the data stay in the database {}.", database.shown()),
        Some(None) => format!("{why}; the data stay in {}.", dir.display()),
    }
}

/// Until the stack breaks.
async fn run(slot: &mut Option<Stack>, options: &UpOptions, dir: &Path) -> anyhow::Result<Infallible> {
    if !options.no_worker {
        worker::binary()?;
    }
    let database_url = match &options.database {
        Some(database) if database.is_for(dir).await? => Some(database.url.clone()),
        Some(_) | None => None,
    };
    let port = options.port.unwrap_or(PORT);
    let started = Stack::start(Options { dir: dir.to_owned(), port, database_url, timing: None }).await?;
    let stack = slot.insert(started);
    let has_worker = start_worker(stack, options).await?;
    say(stack, dir, has_worker, elsewhere(stack, options))?;
    let how = stack.broken().await;
    Err(GivenUp { how, dir: dir.to_owned() }.into())
}

/// The database that runs elsewhere, if the stack uses one.
fn elsewhere<'a>(stack: &Stack, options: &'a UpOptions) -> Option<&'a Database> {
    options.database.as_ref().filter(|_| stack.postgres().is_none())
}

/// Whether there is a worker.
async fn start_worker(stack: &mut Stack, options: &UpOptions) -> anyhow::Result<bool> {
    if options.no_worker {
        return Ok(false);
    }
    let accept = match worker::doctor(stack.dir()).await {
        Ok(accept) => accept,
        Err(why) => {
            say::err(format_args!("No worker: builds can't run here, and will wait for one that phones in.\n{why}"));
            return Ok(false);
        }
    };
    worker::unlimited(&accept).map_or(Ok(()), say::out)?;
    stack.start_worker(worker::Options {
        api_url: stack.url(),
        dir: stack.dir().to_owned(),
        ca_bundle: options.ca_bundle.clone(),
        egress_allow: options.egress_allow.clone(),
        accept,
        slots: 2,
        restart: true,
        extra: Vec::new(),
    })?;
    Ok(true)
}

fn say(stack: &Stack, dir: &Path, has_worker: bool, elsewhere: Option<&Database>) -> std::io::Result<()> {
    let env = dir.join(tokens::FILE);
    let worker = if has_worker { "with a worker" } else { "without a worker" };
    let database = elsewhere.map_or_else(|| format!("its own, in {}", dir.display()), Database::shown);
    say::out(format_args!("Callboard listens on {}, {worker}", stack.url()))?;
    say::out(format_args!("Its database is      {database}"))?;
    say::out(format_args!("Its tokens are in    {}", env.display()))?;
    say::out(format_args!("\nIn another terminal:\n  {}", export(&env)))?;
    say::out("  callboard pipeline apply -f callboard.yaml\n  callboard build submit NAME --follow")?;
    say::out("\nCtrl-C stops everything; the data stay.")
}

/// What makes other commands find the tokens, as a shell takes it.
fn export(env: &Path) -> String {
    format!("export CALLBOARD_ENV_FILE={}", tokens::quoted(&env.to_string_lossy()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_reaches_the_shell_as_it_is() {
        assert_eq!(export(Path::new("/srv/board/.env")), "export CALLBOARD_ENV_FILE=/srv/board/.env");
        assert_eq!(export(Path::new("/srv/my board/.env")), "export CALLBOARD_ENV_FILE='/srv/my board/.env'");
        assert_eq!(export(Path::new("/srv/it's/$HOME")), "export CALLBOARD_ENV_FILE='/srv/it'\\''s/$HOME'");
    }
}
