//! The database's migrations and the operator's first token, for whoever deploys to Lambda and can't reach the database from outside
//! of its network. It has no route: it is called by name, by who may invoke functions of the account.

use edge::{Rejection, Routes, Shell};
use protocol::admin::TokenKind;
use rules::migrations::{Unknown, due, is_contract};
use serde::{Deserialize, Serialize};
use store::Store;
use store::migrations::{self, Migration, Patience};
use store::tokens::{self, NewToken};

/// What the function is asked for.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Asked {
    /// To say how things are, or to migrate.
    #[serde(rename = "do")]
    pub what: What,
    /// Whether migrations that contract are applied too.
    #[serde(default)]
    pub contract: bool,
    /// The SHA-256 of an operator's token that the board is to know, in 64 hex digits. The token itself is never told.
    pub operator_digest: Option<String>,
}

/// See [`Asked`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum What {
    /// Changes nothing.
    List,
    /// Applies what is due, then makes the operator's token known.
    Apply,
}

/// A migration, as it is told.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Told {
    /// Its number.
    pub version: i64,
    /// Its name.
    pub description: String,
    /// Whether it takes away what the release before may need.
    pub is_contract: bool,
}

/// What the function answers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Answer {
    /// The migrations of this release.
    pub known: Vec<Told>,
    /// Those that the database has now.
    pub applied: Vec<Told>,
    /// The numbers of those that were applied by this call.
    pub done: Vec<i64>,
    /// What it gave up waiting for, and what to do. Those of `done` stay applied.
    pub stopped: Option<String>,
    /// A migration of the database that this release does not know. Then nothing was done.
    pub unknown: Option<i64>,
    /// `false` if the operator's token was revoked, or another has its id.
    pub is_operator_known: Option<bool>,
}

/// Serves Lambda's events.
///
/// # Errors
///
/// A setting that can't be used, or the Lambda runtime's own.
pub async fn on_lambda() -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
    edge::scheduled_main(Routes::new(), |shell, event| async move {
        let asked = serde_json::from_value(event).map_err(|error| Rejection::Internal(error.to_string()))?;
        let answer = serve(&shell, asked).await?;
        serde_json::to_value(answer).map_err(|error| Rejection::Internal(error.to_string()))
    })
    .await
}

/// Says which migrations there are, and applies those that are due if it is asked to.
///
/// # Errors
///
/// [`Rejection::Store`] if the database does not answer or a migration fails. What was applied before stays applied.
pub async fn serve(shell: &Shell, asked: Asked) -> Result<Answer, Rejection> {
    let (store, known) = (&shell.store, migrations::known());
    let before = migrations::applied(store).await?;
    let versions: Vec<i64> = before.iter().map(|one| one.version).collect();
    let mut answer = Answer {
        known: told(&known),
        applied: told(&before),
        done: vec![],
        stopped: None,
        unknown: None,
        is_operator_known: None,
    };
    let due = match due(&migrations::rules_of(&known), &versions, asked.contract) {
        Ok(due) => due,
        Err(Unknown(version)) => return Ok(Answer { unknown: Some(version), ..answer }),
    };
    if asked.what == What::List {
        return Ok(answer);
    }
    if let Some(last) = due.last() {
        answer.stopped = apply(store, *last).await?;
        let after = migrations::applied(store).await?;
        answer.applied = told(&after);
        answer.done = due.into_iter().filter(|due| after.iter().any(|one| one.version == *due)).collect();
        tracing::info!(migrations.applied = ?answer.done, migrations.stopped = answer.stopped, "migrated");
    }
    if let (Some(digest), None) = (asked.operator_digest, &answer.stopped) {
        answer.is_operator_known = Some(know(shell, &digest).await?);
    }
    Ok(answer)
}

/// Applies those up to `last`. What it gave up waiting for, if it did.
async fn apply(store: &Store, last: i64) -> Result<Option<String>, Rejection> {
    match migrations::apply_to(store, last, Patience::default()).await {
        Ok(()) => Ok(None),
        Err(store::Error::Locked(why)) => Ok(Some(why)),
        Err(error) => Err(error.into()),
    }
}

fn told(migrations: &[Migration]) -> Vec<Told> {
    let of = |one: &Migration| Told {
        version: one.version,
        is_contract: is_contract(&one.description),
        description: one.description.clone(),
    };
    migrations.iter().map(of).collect()
}

/// Stores the digest as an operator's token, unless it is there. Whether the token is valid afterwards.
async fn know(shell: &Shell, digest: &str) -> Result<bool, Rejection> {
    let bytes = hex::decode(digest).ok().filter(|bytes| bytes.len() == 32);
    let bytes = bytes.ok_or_else(|| Rejection::invalid("operator_digest", "not 64 hex digits"))?;
    let (id, kind, name) = (hex::encode(&bytes[..4]), TokenKind::Operator, "made by infra/deploy");
    let new = NewToken { id: &id, digest: &bytes, kind, workspace: None, workspaces: None, name };
    match tokens::insert(&shell.store, new).await {
        Ok(made) => Ok(made),
        Err(store::Error::Conflict(_)) => Ok(tokens::check(&shell.store, &id, &bytes, kind).await?.is_some()),
        Err(error) => Err(error.into()),
    }
}
