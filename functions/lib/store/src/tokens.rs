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

/// Whether there is such a worker token that is not revoked. Without a digest its id is known from elsewhere to be right.
///
/// # Errors
///
/// [`Error`] if the database fails.
pub async fn is_workers(store: &Store, id: &str, digest: Option<&[u8]>) -> Result<bool, Error> {
    Ok(sqlx::query_scalar!(
        r#"select exists (select from tokens
               where id = $1 and digest = coalesce($2, digest) and kind = 'worker' and revoked_at is null) as "known!""#,
        id,
        digest
    )
    .fetch_one(&store.pool)
    .await?)
}

/// A token to be stored.
#[derive(Clone, Copy, Debug)]
pub struct NewToken<'a> {
    /// The first 8 hex digits of its digest.
    pub id: &'a str,
    /// Its SHA-256.
    pub digest: &'a [u8],
    /// Whom it lets in.
    pub kind: TokenKind,
    /// An `api` token's workspace.
    pub workspace: Option<&'a str>,
    /// The workspaces that a `worker` token is limited to.
    pub workspaces: Option<&'a [String]>,
    /// What it is for.
    pub name: &'a str,
}

/// Stores a token's digest. `false` if one of its workspaces does not exist.
///
/// # Errors
///
/// [`Error::Conflict`] if a token with the same first 8 hex digits exists: make another.
pub async fn insert(store: &Store, new: NewToken<'_>) -> Result<bool, Error> {
    let done = sqlx::query!(
        "insert into tokens (id, digest, kind, workspace_id, name, workspaces)
         select $1, $2, $3, w.id, $5, o.ids
         from (select array_agg(w.id) as ids, count(*) as found from workspaces w where w.slug = any ($6)) o
         left join workspaces w on w.slug = $4
         where ($4::text is null or w.id is not null)
             and ($6::text[] is null or o.found = (select count(distinct s) from unnest($6::text[]) s))",
        new.id,
        new.digest,
        new.kind.as_str(),
        new.workspace,
        new.name,
        new.workspaces
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
        r#"select t.id, t.kind, w.slug as "workspace?", t.name, t.created_at, t.revoked_at,
               case when t.workspaces is not null then array(
                   select o.slug::text from workspaces o where o.id = any (t.workspaces) order by o.slug) end as workspaces
           from tokens t left join workspaces w on w.id = t.workspace_id order by t.created_at desc, t.id"#
    )
    .fetch_all(&store.pool)
    .await?;
    rows.into_iter()
        .map(|row| {
            let kind = TokenKind::parse(&row.kind).ok_or(Error::Unreadable(row.kind))?;
            let (id, workspace, name) = (row.id, row.workspace, row.name);
            let workspaces = row.workspaces;
            Ok(Token { id, kind, workspace, workspaces, name, created_at: row.created_at, revoked_at: row.revoked_at })
        })
        .collect()
}
