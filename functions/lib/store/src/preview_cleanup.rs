//! What the scheduled clean-up does to previews, a bounded batch a statement: it takes what nobody holds, and decides on the rows
//! as they are once they are its own (SPEC.md, 4). What is due is `rules::preview::due`; a test holds the two equal.

use crate::claims::ms;
use crate::{Error, Store};
use rules::Timing;

/// How many previews one statement touches at most.
pub const BATCH: i64 = 1000;

/// Notes that a clean-up begins. Whether there is a preview or a host of some, so that there can be something to clean up.
///
/// # Errors
///
/// [`Error`] if the database fails.
pub async fn note(store: &Store) -> Result<bool, Error> {
    Ok(sqlx::query_scalar!(
        r#"update sweeps set previews_at = clock_timestamp()
           returning exists (select from previews) or exists (select from preview_hosts) as "any!""#
    )
    .fetch_one(&store.pool)
    .await?)
}

/// Lets one batch of running previews expire whose time is over. How many.
///
/// # Errors
///
/// [`Error`] if the database fails.
pub async fn expire(store: &Store) -> Result<u64, Error> {
    let done = sqlx::query!(
        "with due as (
             select id from previews where status = 'running' and expires_at <= (select clock_timestamp())
             order by expires_at limit $1 for no key update skip locked)
         update previews p set status = 'expired', placed = false, url = null, version = p.version + 1
         from due where p.id = due.id",
        BATCH
    )
    .execute(&store.pool)
    .await?;
    fail::fail_point!("cleanup.expired");
    Ok(done.rows_affected())
}

/// Lets one batch of expired previews be destroyed. How many.
///
/// # Errors
///
/// [`Error`] if the database fails.
pub async fn destroy_expired(store: &Store) -> Result<u64, Error> {
    let done = sqlx::query!(
        "with due as (
             select id from previews where status = 'expired' order by id limit $1 for no key update skip locked)
         update previews p set status = 'destroying', version = p.version + 1 from due where p.id = due.id",
        BATCH
    )
    .execute(&store.pool)
    .await?;
    fail::fail_point!("cleanup.destroying");
    Ok(done.rows_affected())
}

/// Lets one batch of previews be destroyed that never ran, or failed without a wish to be kept, and whose time is over. How many.
///
/// # Errors
///
/// [`Error`] if the database fails.
pub async fn destroy_due(store: &Store) -> Result<u64, Error> {
    let done = sqlx::query!(
        "with due as (
             select id from previews
             where (status = 'starting' or (status = 'failed' and not retain_failed))
                 and expires_at <= (select clock_timestamp())
             order by expires_at limit $1 for no key update skip locked)
         update previews p
         set status = 'destroying', placed = false, waiting_for = null, version = p.version + 1
         from due where p.id = due.id",
        BATCH
    )
    .execute(&store.pool)
    .await?;
    Ok(done.rows_affected())
}

/// Fails one batch of live previews whose host has not called for too long, or that no host took up in that time, and frees the
/// leases of such hosts. How many failed or were freed.
///
/// # Errors
///
/// [`Error`] if the database fails.
pub async fn lose_hosts(store: &Store, timing: &Timing) -> Result<u64, Error> {
    let done = sqlx::query_scalar!(
        r#"with cut as materialized (select clock_timestamp() - $1::bigint * interval '1 ms' as at
           ), lost as (
               select p.id from cut, preview_hosts h
               join previews p on p.token_id = h.token_id and p.host_id = h.host_id
               where h.synced_at < cut.at and p.status <> 'destroyed'
                   and (p.status in ('starting', 'running') or p.port is not null)
               order by p.id limit $2 for no key update of p skip locked
           ), never as (
               select p.id from previews p
               where p.host_id is null and p.status = 'starting'
                   and p.created_at < (select clock_timestamp()) - $1::bigint * interval '1 ms'
               order by p.created_at limit $2 for no key update skip locked
           ), gone as (
               update previews p
               set status = case when p.status in ('starting', 'running') then 'failed' else p.status end,
                   stage = case when p.status in ('starting', 'running') then 'host_lost' else p.stage end,
                   message = case when p.status not in ('starting', 'running') then p.message
                       when p.host_id is null then 'no host that has its workspace has called'
                       else 'its host has not called for too long' end,
                   placed = false, waiting_for = null, url = null, port = null, version = p.version + 1
               from (select id from lost union all select id from never) d where p.id = d.id
               returning p.id
           ), freed as (
               delete from port_leases l using gone where l.preview_id = gone.id)
           select count(*) as "count!" from gone"#,
        ms(timing.host_lost),
        BATCH
    )
    .fetch_one(&store.pool)
    .await?;
    fail::fail_point!("cleanup.lost");
    Ok(u64::try_from(done).unwrap_or(0))
}

/// Confirms one batch of previews as destroyed that have no host who could, or one that is forgotten. How many.
///
/// # Errors
///
/// [`Error`] if the database fails.
pub async fn confirm_forgotten(store: &Store, timing: &Timing) -> Result<u64, Error> {
    let done = sqlx::query_scalar!(
        r#"with due as (
               select p.id from previews p
               left join preview_hosts h on h.token_id = p.token_id and h.host_id = p.host_id
               where p.status = 'destroying' and (h.host_id is null
                   or h.synced_at < (select clock_timestamp()) - $1::bigint * interval '1 ms')
               order by p.id limit $2 for no key update of p skip locked
           ), gone as (
               update previews p
               set status = 'destroyed', destroyed_at = clock_timestamp(), port = null, version = p.version + 1
               from due where p.id = due.id returning p.id
           ), freed as (
               delete from port_leases l using gone where l.preview_id = gone.id)
           select count(*) as "count!" from gone"#,
        ms(timing.host_forgotten),
        BATCH
    )
    .fetch_one(&store.pool)
    .await?;
    Ok(u64::try_from(done).unwrap_or(0))
}

/// Purges one batch of previews that were destroyed longer ago than they are kept; none if they are kept for ever. Their hosts
/// are then told to forget them, their directories too. How many.
///
/// # Errors
///
/// [`Error`] if the database fails.
pub async fn purge(store: &Store, timing: &Timing) -> Result<u64, Error> {
    if timing.preview_retention.is_zero() {
        return Ok(0);
    }
    let done = sqlx::query!(
        "delete from previews p using (
             select id from previews
             where status = 'destroyed' and destroyed_at < (select clock_timestamp()) - $1::bigint * interval '1 ms'
             order by destroyed_at limit $2 for update skip locked) old
         where p.id = old.id",
        ms(timing.preview_retention),
        BATCH
    )
    .execute(&store.pool)
    .await?;
    fail::fail_point!("cleanup.purged");
    Ok(done.rows_affected())
}

/// Forgets hosts that have not called for long and of which no preview is kept.
///
/// # Errors
///
/// [`Error`] if the database fails.
pub async fn forget_hosts(store: &Store, timing: &Timing) -> Result<(), Error> {
    sqlx::query!(
        "delete from preview_hosts h
         where h.synced_at < clock_timestamp() - $1::bigint * interval '1 ms'
             and not exists (select from previews p where p.token_id = h.token_id and p.host_id = h.host_id)",
        ms(timing.host_forgotten)
    )
    .execute(&store.pool)
    .await?;
    Ok(())
}
