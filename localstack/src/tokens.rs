//! The stack's first tokens, and the file `callboard.env` that the command line reads.

use crate::database::token_name;
use crate::{input, keys};
use anyhow::Context as _;
use edge::Shell;
use edge::auth::{WorkerToken, new_token};
use protocol::admin::TokenKind;
use protocol::workspace::PlanLimits;
use std::collections::BTreeMap;
use std::path::Path;
use store::tokens::NewToken;

/// The file's name in the stack's directory.
pub const FILE: &str = "callboard.env";
/// The workspace that a new stack has.
pub const WORKSPACE: &str = "default";
/// What it may use: a machine of one's own has no bill.
const PLAN: PlanLimits = PlanLimits {
    minutes_per_month: 100_000,
    build_seconds_max: 1800,
    running_max: 16,
    pending_max: 10_000,
    previews_max: 16,
    preview_seconds_max: 86_400,
};

/// The tokens of a stack.
#[derive(Clone)]
pub struct Tokens {
    /// For operators.
    pub operator: String,
    /// For web-apps and people, in the workspace `default`.
    pub api: String,
    /// For workers.
    pub worker: String,
}

impl Tokens {
    /// The tokens that the directory's file holds, or new ones; all of them known to the board.
    ///
    /// # Errors
    ///
    /// If the file or the database fails.
    pub async fn ensure(shell: &Shell, dir: &Path) -> anyhow::Result<Self> {
        make_workspace(shell).await?;
        let (kept, name_of_all) = (read(&dir.join(FILE))?, token_name(&shell.config.secrets_key));
        let ensure = |name: &'static str, kind| {
            let kept = kept.get(name).cloned();
            let name_of_all = name_of_all.as_str();
            async move { known(shell, kept, kind, name_of_all).await }
        };
        Ok(Self {
            operator: ensure("CALLBOARD_OPERATOR_TOKEN", TokenKind::Operator).await?,
            api: ensure("CALLBOARD_API_TOKEN", TokenKind::Api).await?,
            worker: ensure("CALLBOARD_WORKER_TOKEN", TokenKind::Worker).await?,
        })
    }

    /// Writes the file that the command line reads.
    ///
    /// # Errors
    ///
    /// If it can't be written.
    pub fn write(&self, dir: &Path, url: &str, database_url: &str) -> anyhow::Result<()> {
        let Self { operator, api, worker } = self;
        let text = format!(
            "# Written at every start. Keep it to yourself: it holds tokens.\nCALLBOARD_URL={url}\n\
             CALLBOARD_OPERATOR_TOKEN={operator}\nCALLBOARD_API_TOKEN={api}\nCALLBOARD_WORKER_TOKEN={worker}\n\
             DATABASE_URL={}\n",
            quoted(database_url)
        );
        keys::write(&dir.join(FILE), &text)
    }
}

async fn make_workspace(shell: &Shell) -> anyhow::Result<()> {
    let mut tx = shell.store.begin().await?;
    if store::workspaces::insert(&mut tx, WORKSPACE).await? {
        store::workspaces::set_plan(&mut tx, WORKSPACE, &PLAN).await?;
    }
    tx.commit().await.context("the workspace can't be made")
}

/// `kept`, if the board knows it, else a new token.
async fn known(shell: &Shell, kept: Option<String>, kind: TokenKind, name: &str) -> anyhow::Result<String> {
    if let Some(token) = kept {
        let WorkerToken { id, digest } = WorkerToken::of(&token);
        if store::tokens::check(&shell.store, &id, &digest, kind).await?.is_some() {
            return Ok(token);
        }
    }
    let workspace = (kind == TokenKind::Api).then_some(WORKSPACE);
    let token = new_token(kind);
    let WorkerToken { id, digest } = WorkerToken::of(&token);
    let new = NewToken { id: &id, digest: &digest, kind, workspace, workspaces: None, name };
    store::tokens::insert(&shell.store, new).await?;
    Ok(token)
}

/// The variables of an env file; none if there is no file.
///
/// # Errors
///
/// If it can't be read.
pub fn read(path: &Path) -> anyhow::Result<BTreeMap<String, String>> {
    let text = match input::file(path, input::SETTINGS_MAX_BYTES) {
        Ok(text) => text,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(BTreeMap::new()),
        Err(error) => return Err(error).with_context(|| format!("{} can't be read", path.display())),
    };
    let pairs = text.lines().filter(|line| !line.starts_with('#')).filter_map(|line| line.split_once('='));
    Ok(pairs.map(|(name, value)| (name.trim().to_owned(), unquoted(value.trim()))).collect())
}

/// A value as a shell that reads the file takes it.
pub(crate) fn quoted(value: &str) -> String {
    let harmless = |letter: char| letter.is_ascii_alphanumeric() || ":/@.?=%-_,+".contains(letter);
    if value.chars().all(harmless) { value.to_owned() } else { format!("'{}'", value.replace('\'', "'\\''")) }
}

fn unquoted(value: &str) -> String {
    let inner = value.strip_prefix('\'').and_then(|value| value.strip_suffix('\''));
    inner.map_or_else(|| value.to_owned(), |inner| inner.replace("'\\''", "'"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn a_value_is_the_same_to_us_and_to_a_shell() {
        for value in ["postgres://u:p@h/db?sslmode=require&x=1", "it's $HOME `id`", "plain", ""] {
            let dir = tempfile::tempdir().unwrap();
            let file = dir.path().join(FILE);
            fs::write(&file, format!("DATABASE_URL={}\n", quoted(value))).unwrap();
            assert_eq!(read(&file).unwrap()["DATABASE_URL"], value);
            let script = format!(". {}; printf %s \"$DATABASE_URL\"", file.display());
            let said = std::process::Command::new("sh").args(["-c", &script]).output().unwrap();
            assert_eq!(String::from_utf8(said.stdout).unwrap(), value);
        }
    }
}
