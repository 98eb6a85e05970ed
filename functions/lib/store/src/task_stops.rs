//! Of which builds that a sweep has ended the tasks were stopped, where builds have tasks.

use crate::claims::ms;
use crate::{Error, Store};
use std::time::Duration;
use uuid::Uuid;

/// Builds that sweeps ended no longer ago than `within`, and that [`note`] was not told of. In no order, so that those which are never noted keep no
/// other waiting for ever.
///
/// # Errors
///
/// [`Error`] if the database fails.
pub async fn due(store: &Store, within: Duration, limit: i64) -> Result<Vec<Uuid>, Error> {
    Ok(sqlx::query_scalar!(
        "select b.id from builds b
         where b.end_reason in ('worker_lost', 'overdue')
             and b.ended_at > (select clock_timestamp()) - $1::bigint * interval '1 ms'
             and not exists (select from task_stops s where s.build_id = b.id)
         order by random() limit $2",
        ms(within),
        limit
    )
    .fetch_all(&store.pool)
    .await?)
}

/// Notes that the tasks of these builds were stopped.
///
/// # Errors
///
/// [`Error`] if the database fails.
pub async fn note(store: &Store, builds: &[Uuid]) -> Result<(), Error> {
    if builds.is_empty() {
        return Ok(());
    }
    sqlx::query!(
        "insert into task_stops (build_id) select b.id from builds b where b.id = any ($1) on conflict do nothing",
        builds
    )
    .execute(&store.pool)
    .await?;
    Ok(())
}
