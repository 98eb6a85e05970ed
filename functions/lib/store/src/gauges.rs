//! What a person who runs the board watches, over all workspaces.

use crate::columns::unsigned;
use crate::{Error, Store};

/// The board's numbers.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Gauges {
    /// Builds that wait.
    pub pending: u64,
    /// Builds that run.
    pub running: u64,
    /// Workers that asked for work in the last 2 minutes, or hold a build: one with all its slots busy does not ask.
    pub workers: u64,
    /// How long the oldest pending build has waited, in seconds.
    pub oldest_pending_age_seconds: Option<f64>,
    /// Running builds whose lease has lapsed.
    pub lapsed: u64,
    /// How long ago the last sweep was, in seconds.
    pub last_sweep_age_seconds: Option<f64>,
    /// Previews that have one of their workspace's places: they start or run.
    pub previews_live: u64,
    /// Previews that their hosts are to end.
    pub previews_destroying: u64,
    /// Ports that are leased.
    pub port_leases: u64,
}

/// Reads them: sums of the workspaces' rows, one row of the index on pending builds, the running builds, the workers, and the previews
/// that are being destroyed or have a port.
///
/// # Errors
///
/// [`Error`] if the database fails.
pub async fn read(store: &Store) -> Result<Gauges, Error> {
    let row = sqlx::query!(
        r#"select coalesce(sum(w.pending), 0)::bigint as "pending!", coalesce(sum(w.running), 0)::bigint as "running!",
               (select count(*) from (
                   select k.token_id, k.host_id, k.name from workers k
                   join tokens t on t.id = k.token_id and t.revoked_at is null
                   where k.seen_at > clock_timestamp() - interval '2 min'
                   union
                   select b.claimed_by, b.claimed_host, b.claimed_name from builds b
                   where b.status = 'running' and b.claimed_name is not null) at_work) as "workers!",
               (select extract(epoch from clock_timestamp() - min(b.created_at)) from builds b
                   where b.status = 'pending')::float8 as oldest,
               (select count(*) from builds b
                   where b.status = 'running' and b.lease_expires_at < clock_timestamp()) as "lapsed!",
               (select extract(epoch from clock_timestamp() - s.last_at) from sweeps s)::float8 as swept,
               (select coalesce(sum(v.taken), 0) from preview_places v)::bigint as "previews!",
               (select count(*) from previews d where d.status = 'destroying') as "destroying!",
               (select count(*) from port_leases) as "leases!"
           from workspaces w"#
    )
    .fetch_one(&store.pool)
    .await?;
    Ok(Gauges {
        pending: unsigned(row.pending),
        running: unsigned(row.running),
        workers: unsigned(row.workers),
        oldest_pending_age_seconds: row.oldest,
        lapsed: unsigned(row.lapsed),
        last_sweep_age_seconds: row.swept,
        previews_live: unsigned(row.previews),
        previews_destroying: unsigned(row.destroying),
        port_leases: unsigned(row.leases),
    })
}
