//! Tokens: only digests are stored.

use crate::{Error, Store};
use protocol::admin::{Token, TokenKind};
use uuid::Uuid;

/// Looks a token up. `None`: unknown, revoked or of another kind; else the workspace it belongs to, if any.
///
/// # Errors
///
/// [`Error`] if the database fails.
pub async fn check(store: &Store, id: &str, digest: &[u8], kind: TokenKind) -> Result<Option<Option<Uuid>>, Error> {
    Ok(sqlx::query_scalar!(
        "select workspace_id from tokens where id = $1 and digest = $2 and kind = $3 and revoked_at is null",
        id,
        digest,
        kind.as_str()
    )
    .fetch_optional(&store.pool)
    .await?)
}

/// Stores a token's digest. `false` if an `api` token's workspace does not exist.
///
/// # Errors
///
/// [`Error::Conflict`] if a token with the same first 8 hex digits exists: make another.
pub async fn insert(
    store: &Store,
    id: &str,
    digest: &[u8],
    kind: TokenKind,
    workspace: Option<&str>,
    name: &str,
) -> Result<bool, Error> {
    let done = sqlx::query!(
        "insert into tokens (id, digest, kind, workspace_id, name)
         select $1, $2, $3, w.id, $5 from (select 1) one
         left join workspaces w on w.slug = $4 where $4::text is null or w.id is not null",
        id,
        digest,
        kind.as_str(),
        workspace,
        name
    )
    .execute(&store.pool)
    .await?;
    Ok(done.rows_affected() == 1)
}

/// Revokes a token, for good. `false` if there is none; a second time is fine.
///
/// # Errors
///
/// [`Error`] if the database fails.
pub async fn revoke(store: &Store, id: &str) -> Result<bool, Error> {
    let done = sqlx::query!("update tokens set revoked_at = coalesce(revoked_at, clock_timestamp()) where id = $1", id)
        .execute(&store.pool)
        .await?;
    Ok(done.rows_affected() == 1)
}

/// All tokens, newest first.
///
/// # Errors
///
/// [`Error`] if the database fails.
pub async fn list(store: &Store) -> Result<Vec<Token>, Error> {
    let rows = sqlx::query!(
        r#"select t.id, t.kind, w.slug as "workspace?", t.name, t.created_at, t.revoked_at
           from tokens t left join workspaces w on w.id = t.workspace_id order by t.created_at desc, t.id"#
    )
    .fetch_all(&store.pool)
    .await?;
    rows.into_iter()
        .map(|row| {
            let kind = TokenKind::parse(&row.kind).ok_or(Error::Unreadable(row.kind))?;
            let (id, workspace, name) = (row.id, row.workspace, row.name);
            Ok(Token { id, kind, workspace, name, created_at: row.created_at, revoked_at: row.revoked_at })
        })
        .collect()
}
