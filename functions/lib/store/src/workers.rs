//! Workers as the board last saw them.

use crate::columns::count;
use crate::{Error, Store};
use protocol::admin::Worker;
use uuid::Uuid;

/// The workers whose tokens are not revoked, last seen first; at most 1,000.
///
/// # Errors
///
/// [`Error`] if the database fails.
pub async fn list(store: &Store) -> Result<Vec<Worker>, Error> {
    let rows = sqlx::query!(
        r#"select k.token_id, k.name, k.host_id, k.version, k.isolation, k.labels, k.seen_at,
               (select count(*) from builds b where b.status = 'running' and b.claimed_by = k.token_id
                   and b.claimed_host = k.host_id and b.claimed_name = k.name)::integer as "running!"
           from workers k join tokens t on t.id = k.token_id and t.revoked_at is null
           order by k.seen_at desc, k.token_id, k.host_id, k.name limit 1000"#
    )
    .fetch_all(&store.pool)
    .await?;
    let workers = rows.into_iter().map(|row| Worker {
        token_id: row.token_id,
        name: row.name,
        host_id: row.host_id,
        version: row.version,
        isolation: row.isolation,
        labels: row.labels,
        running: count(row.running),
        seen_at: row.seen_at,
    });
    Ok(workers.collect())
}

/// What a worker can take.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Able {
    /// Its back ends.
    pub isolation: Vec<String>,
    /// Its labels.
    pub labels: Vec<String>,
}

/// What the workers can take that may take this workspace's builds, and asked for work in the last 2 minutes, or hold a build: one
/// with all its slots busy does not ask.
///
/// # Errors
///
/// [`Error`] if the database fails.
pub async fn at_work(store: &Store, workspace: Uuid) -> Result<Vec<Able>, Error> {
    Ok(sqlx::query_as!(
        Able,
        "select distinct k.isolation, k.labels
         from workers k join tokens t on t.id = k.token_id and t.revoked_at is null
             and (t.workspaces is null or $1 = any (t.workspaces))
         where k.seen_at > clock_timestamp() - interval '2 min'
             or exists (select from builds b where b.status = 'running' and b.claimed_by = k.token_id
                 and b.claimed_host = k.host_id and b.claimed_name = k.name)",
        workspace
    )
    .fetch_all(&store.pool)
    .await?)
}
