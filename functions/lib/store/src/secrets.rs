//! A workspace's secrets. Values are sealed before they get here, and are never read back but for a claim.

use crate::{Error, Store};
use protocol::workspace::SecretName;
use uuid::Uuid;

/// A sealed value.
#[derive(Clone, Copy)]
pub struct Sealed<'a> {
    /// The key's name.
    pub key_id: &'a str,
    /// What the cipher began with.
    pub nonce: &'a [u8],
    /// The value and its tag.
    pub ciphertext: &'a [u8],
}

/// Sets a secret's value, whether or not it had one.
///
/// # Errors
///
/// [`Error`] if the database fails.
pub async fn put(store: &Store, workspace: Uuid, name: &str, sealed: Sealed<'_>) -> Result<SecretName, Error> {
    Ok(sqlx::query_as!(
        SecretName,
        "insert into secrets (workspace_id, name, key_id, nonce, ciphertext) values ($1, $2, $3, $4, $5)
         on conflict (workspace_id, name) do update
         set key_id = excluded.key_id, nonce = excluded.nonce, ciphertext = excluded.ciphertext,
             updated_at = clock_timestamp()
         returning name, updated_at",
        workspace,
        name,
        sealed.key_id,
        sealed.nonce,
        sealed.ciphertext
    )
    .fetch_one(&store.pool)
    .await?)
}

/// The names of a workspace's secrets, in order.
///
/// # Errors
///
/// [`Error`] if the database fails.
pub async fn list(store: &Store, workspace: Uuid) -> Result<Vec<SecretName>, Error> {
    let names = sqlx::query_as!(
        SecretName,
        "select name, updated_at from secrets where workspace_id = $1 order by name",
        workspace
    );
    Ok(names.fetch_all(&store.pool).await?)
}

/// Those of `names` that the workspace has no secret of, in order.
///
/// # Errors
///
/// [`Error`] if the database fails.
pub async fn missing(store: &Store, workspace: Uuid, names: &[&str]) -> Result<Vec<String>, Error> {
    Ok(sqlx::query_scalar!(
        r#"select distinct n.name as "name!" from unnest($2::text[]) n (name)
           where not exists (select from secrets s where s.workspace_id = $1 and s.name = n.name) order by 1"#,
        workspace,
        names as _
    )
    .fetch_all(&store.pool)
    .await?)
}

/// Deletes a secret. `false` if there is none.
///
/// # Errors
///
/// [`Error`] if the database fails.
pub async fn delete(store: &Store, workspace: Uuid, name: &str) -> Result<bool, Error> {
    let done = sqlx::query!("delete from secrets where workspace_id = $1 and name = $2", workspace, name);
    Ok(done.execute(&store.pool).await?.rows_affected() == 1)
}
