//! Mending leases of ports: what no preview stands behind goes, what a preview says and nobody holds is made again (SPEC.md, 4).

use crate::columns::unsigned;
use crate::previews::port;
use crate::{Error, Store};
use protocol::preview::{LeaseChange, Mended, Reconciled};

/// Mends all leases; what was done. Previews are locked while that goes on, so that no sync changes a port meanwhile.
///
/// # Errors
///
/// [`Error`] if the database fails. Nothing has been mended.
pub async fn reconcile(store: &Store) -> Result<Reconciled, Error> {
    let mut tx = store.begin().await?;
    sqlx::query!("select 1 as one from previews where status <> 'destroyed' order by id for no key update")
        .fetch_all(&mut tx)
        .await?;
    let removed = sqlx::query!(
        r#"delete from port_leases l using (
               select k.preview_id, p.port is null as orphaned from port_leases k join previews p on p.id = k.preview_id
               where p.port is null or (p.token_id, p.host_id, p.port) is distinct from (k.token_id, k.host_id, k.port)) wrong
           where l.preview_id = wrong.preview_id
           returning l.host_id, l.port::integer as "port!", l.preview_id, wrong.orphaned as "orphaned!""#
    )
    .fetch_all(&mut tx)
    .await?;
    fail::fail_point!("reconcile.removed");
    let made = sqlx::query!(
        r#"insert into port_leases (token_id, host_id, port, preview_id)
           select p.token_id, p.host_id, p.port, p.id from previews p
           where p.port is not null and not exists (select from port_leases l where l.preview_id = p.id)
           order by p.status <> 'running', p.id
           on conflict do nothing
           returning host_id, port::integer as "port!", preview_id"#
    )
    .fetch_all(&mut tx)
    .await?;
    let taken = sqlx::query!(
        r#"with taken as (
               select p.id, p.port from previews p
               where p.port is not null and not exists (select from port_leases l where l.preview_id = p.id))
           update previews p
           set port = null, url = null, placed = p.placed and p.status <> 'running', version = p.version + 1,
               status = case when p.status = 'running' then 'failed' else p.status end,
               stage = case when p.status = 'running' then 'recovery' else p.stage end,
               message = case when p.status = 'running' then 'another preview holds its port' else p.message end
           from taken t where p.id = t.id
           returning p.host_id as "host_id!", t.port::integer as "port!", p.id"#
    )
    .fetch_all(&mut tx)
    .await?;
    let leases = sqlx::query_scalar!(r#"select count(*) as "count!" from port_leases"#).fetch_one(&mut tx).await?;
    tx.commit().await?;
    let word = |orphaned| if orphaned { LeaseChange::Orphaned } else { LeaseChange::Inconsistent };
    let mended = |change, host_id, number, preview_id| Mended { change, host_id, port: port(number), preview_id };
    let removed = removed.into_iter().map(|row| mended(word(row.orphaned), row.host_id, row.port, row.preview_id));
    let made = made.into_iter().map(|row| mended(LeaseChange::Missing, row.host_id, row.port, row.preview_id));
    let taken = taken.into_iter().map(|row| mended(LeaseChange::Taken, row.host_id, row.port, row.id));
    Ok(Reconciled { mended: removed.chain(made).chain(taken).collect(), leases: unsigned(leases) })
}
