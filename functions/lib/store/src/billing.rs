//! Plans that a billing service gave, and how the asking for them goes (SPEC.md, Budget; docs/billing.md).
//!
//! Nothing here is held while the service is asked: each function is one statement. A plan is stored under the instant at
//! which it was asked for, and only over an older one, so that of two who asked the later question's answer stays.

use crate::claims::ms;
use crate::columns::{count, signed};
use crate::sweeps::BATCH;
use crate::{Error, Store};
use rules::billing::{Stored, Unreadable};
use rules::budget::Plan;
use rules::{Timestamp, Timing};
use std::time::Duration;
use uuid::Uuid;

/// A workspace as far as asking for its plan goes, as it was at an instant of the database's clock.
#[derive(Clone, Debug)]
pub struct Subject {
    /// The workspace.
    pub workspace: Uuid,
    /// Its name, by which the service knows it.
    pub slug: String,
    /// What is stored of its plan.
    pub stored: Stored,
    /// When it was read; what is asked from then on is stored under it.
    pub now: Timestamp,
}

/// Reads what decides whether a workspace's plan is to be asked for. `None` if there is no such workspace.
///
/// # Errors
///
/// [`Error`] if the database fails.
pub async fn subject(store: &Store, workspace: Uuid) -> Result<Option<Subject>, Error> {
    let row = sqlx::query!(
        r#"select w.slug as "slug!", not coalesce(p.lapsed, true) as "has_plan!",
               (extract(epoch from p.fetched_at) * 1000)::bigint as fetched_ms,
               f.failures as "failures?", (extract(epoch from f.next_attempt_at) * 1000)::bigint as next_ms,
               (extract(epoch from clock_timestamp()) * 1000)::bigint as "now_ms!"
           from workspaces w left join plans p on p.workspace_id = w.id
           left join billing_fetches f on f.workspace_id = w.id where w.id = $1"#,
        workspace
    )
    .fetch_optional(&store.pool)
    .await?;
    Ok(row.map(|row| Subject {
        workspace,
        slug: row.slug,
        stored: Stored {
            has_plan: row.has_plan,
            fetched_at: row.fetched_ms.map(Timestamp),
            failures: row.failures.map_or(0, count),
            next_attempt_at: row.next_ms.map(Timestamp),
        },
        now: Timestamp(row.now_ms),
    }))
}

/// Workspaces with builds that wait or run whose plan is as old as `billing_refresh` or not there, and that nobody just asks
/// for; of those whose last attempt failed, `failing`, or of the others. Those first that were not asked for longest, at most
/// one batch.
///
/// # Errors
///
/// [`Error`] if the database fails.
pub async fn due(store: &Store, timing: &Timing, failing: bool) -> Result<Vec<Uuid>, Error> {
    Ok(sqlx::query_scalar!(
        "select w.id from (select clock_timestamp() as at) n, workspaces w
             left join plans p on p.workspace_id = w.id left join billing_fetches f on f.workspace_id = w.id
         where (w.pending > 0 or w.running > 0)
             and (coalesce(p.lapsed, true) or p.fetched_at is null
                 or p.fetched_at <= n.at - $1::bigint * interval '1 ms')
             and (f.next_attempt_at is null or f.next_attempt_at <= n.at)
             and coalesce(f.failures > 0, false) = $2
         order by f.attempted_at nulls first limit $3",
        ms(timing.billing_refresh),
        failing,
        BATCH
    )
    .fetch_all(&store.pool)
    .await?)
}

/// Takes the one attempt that is made for all; until `patience` has passed nobody else gets it. `false`: somebody else has it,
/// or it is settled by now.
///
/// # Errors
///
/// [`Error`] if the database fails.
pub async fn take_attempt(store: &Store, subject: &Subject, patience: Duration) -> Result<bool, Error> {
    let taken = sqlx::query!(
        "insert into billing_fetches as f (workspace_id, attempted_at, next_attempt_at)
         values ($1, 'epoch'::timestamptz + $3::bigint * interval '1 ms',
             clock_timestamp() + $4::bigint * interval '1 ms')
         on conflict (workspace_id) do update
         set attempted_at = excluded.attempted_at, next_attempt_at = excluded.next_attempt_at
         where f.failures = $2 and f.attempted_at <= excluded.attempted_at
             and (f.next_attempt_at is null or f.next_attempt_at <= clock_timestamp())",
        subject.workspace,
        signed(subject.stored.failures),
        subject.now.0,
        ms(patience)
    );
    Ok(taken.execute(&store.pool).await?.rows_affected() == 1)
}

/// Stores a plan that was asked for at `subject.now`, and forgets earlier failures. It binds new claims only. `false` if what is stored was asked for at that instant or later: then nothing is written.
///
/// # Errors
///
/// [`Error`] if the database fails.
pub async fn keep(store: &Store, subject: &Subject, plan: &Plan) -> Result<bool, Error> {
    let kept = sqlx::query_scalar!(
        r#"with asked as (select 'epoch'::timestamptz + $2::bigint * interval '1 ms' as at),
           locked as (select id from workspaces where id = $1 for no key update),
           changed as (
               insert into plans as p (workspace_id, seconds_per_month, build_seconds_max, running_max, pending_max,
                   previews_max, preview_seconds_max, fetched_at)
               select locked.id, $3, $4, $5, $6, $7, $8, asked.at from locked, asked
               on conflict (workspace_id) do update
               set seconds_per_month = excluded.seconds_per_month, build_seconds_max = excluded.build_seconds_max,
                   running_max = excluded.running_max, pending_max = excluded.pending_max,
                   previews_max = excluded.previews_max, preview_seconds_max = excluded.preview_seconds_max,
                   fetched_at = excluded.fetched_at, lapsed = false, updated_at = clock_timestamp()
               where p.fetched_at is null or p.fetched_at < excluded.fetched_at
               returning p.workspace_id as id),
           noted as (
               insert into billing_fetches as f (workspace_id, attempted_at)
               select changed.id, asked.at from changed, asked
               on conflict (workspace_id) do update
               set attempted_at = excluded.attempted_at, failures = 0, next_attempt_at = null, last_error = null
               where f.attempted_at <= excluded.attempted_at)
           select count(*) as "kept!" from changed"#,
        subject.workspace,
        subject.now.0,
        signed(plan.seconds_per_month.0),
        signed(plan.build_seconds_max.0),
        signed(plan.running_max),
        signed(plan.pending_max),
        signed(plan.previews.live_max),
        signed(plan.previews.seconds_max.0)
    );
    Ok(kept.fetch_one(&store.pool).await? == 1)
}

/// Notes that the attempt of `subject.now` failed, and that nobody asks again before `back_off` has passed. Of several that
/// began with the same failures before them one counts; none if a later attempt was noted meanwhile.
///
/// # Errors
///
/// [`Error`] if the database fails.
pub async fn note_failure(
    store: &Store,
    subject: &Subject,
    why: Unreadable,
    back_off: Duration,
) -> Result<bool, Error> {
    let noted = sqlx::query!(
        "insert into billing_fetches as f (workspace_id, attempted_at, failures, next_attempt_at, last_error)
         values ($1, 'epoch'::timestamptz + $2::bigint * interval '1 ms', $3::integer + 1,
             clock_timestamp() + $4::bigint * interval '1 ms', $5)
         on conflict (workspace_id) do update
         set attempted_at = excluded.attempted_at, failures = excluded.failures,
             next_attempt_at = excluded.next_attempt_at, last_error = excluded.last_error
         where f.failures = $3 and f.attempted_at <= excluded.attempted_at",
        subject.workspace,
        subject.now.0,
        signed(subject.stored.failures.min(1_000_000)),
        ms(back_off),
        why.as_str()
    );
    Ok(noted.execute(&store.pool).await?.rows_affected() == 1)
}

/// Counts a plan of the plan tables as asked for at `subject.now`: the billing service has taken over and did not answer, so
/// what stood before it holds as long as an answer would, and no longer.
///
/// # Errors
///
/// [`Error`] if the database fails.
pub async fn date_plan(store: &Store, subject: &Subject) -> Result<(), Error> {
    sqlx::query!(
        "update plans set fetched_at = 'epoch'::timestamptz + $2::bigint * interval '1 ms'
         where workspace_id = $1 and fetched_at is null",
        subject.workspace,
        subject.now.0
    )
    .execute(&store.pool)
    .await?;
    Ok(())
}

/// Lets one batch of stale plans lapse, so that their workspaces' queues are closed and no claim looks at them. How many. (The
/// clock is read once, in a query of its own, so that the index finds them.)
///
/// # Errors
///
/// [`Error`] if the database fails.
pub async fn lapse(store: &Store, timing: &Timing) -> Result<u64, Error> {
    let lapsed = sqlx::query!(
        "with stale as (
             select w.id from plans p join workspaces w on w.id = p.workspace_id
             where p.fetched_at < (select clock_timestamp()) - $1::bigint * interval '1 ms' and not p.lapsed
             order by p.fetched_at limit $2 for no key update of w skip locked)
         update plans p set lapsed = true from stale
         where p.workspace_id = stale.id and p.fetched_at < (select clock_timestamp()) - $1::bigint * interval '1 ms'",
        ms(timing.billing_stale),
        BATCH
    );
    Ok(lapsed.execute(&store.pool).await?.rows_affected())
}

/// Makes one batch of plans that a billing service gave those of the plan tables, as it last gave them: for a board without such
/// a service. How many.
///
/// # Errors
///
/// [`Error`] if the database fails.
pub async fn return_to_tables(store: &Store) -> Result<u64, Error> {
    let returned = sqlx::query!(
        "with fetched as (
             select w.id from plans p join workspaces w on w.id = p.workspace_id
             where p.fetched_at is not null limit $1 for no key update of w skip locked)
         update plans p set fetched_at = null, lapsed = false from fetched where p.workspace_id = fetched.id",
        BATCH
    );
    Ok(returned.execute(&store.pool).await?.rows_affected())
}
