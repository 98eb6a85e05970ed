//! `callboard migrate`: brings a database to this release, and makes the first operator token.

use crate::keys;
use anyhow::Context as _;
use edge::auth::{WorkerToken, new_token};
use protocol::admin::TokenKind;
use std::path::Path;
use store::Store;
use store::tokens::NewToken;

/// Applies what is missing; then, if a file is named, stores a new operator token and writes it there.
///
/// # Errors
///
/// If the database or the file fails.
pub async fn migrate(database_url: &str, operator_token_file: Option<&Path>) -> anyhow::Result<()> {
    let store = Store::connect_lazy(database_url, 1).context("not the address of a Postgres database")?;
    store::migrations::apply(&store).await.context("the migrations can't be applied")?;
    if let Some(path) = operator_token_file {
        let token = new_token(TokenKind::Operator);
        let WorkerToken { id, digest } = WorkerToken::of(&token);
        // The file first: a token that nobody holds can't be revoked by its holder.
        keys::write(path, &token)?;
        let kind = TokenKind::Operator;
        let name = "made by callboard migrate";
        let new = NewToken { id: &id, digest: &digest, kind, workspace: None, workspaces: None, name };
        store::tokens::insert(&store, new).await?;
    }
    store.close().await;
    Ok(())
}
