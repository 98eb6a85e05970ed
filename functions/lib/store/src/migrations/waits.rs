//! What a session waits for, as another sees it: Postgres says of a lock that was not had in time neither on what nor whose.

use crate::Error;
use crate::executor::Pool;
use std::pin::pin;
use std::time::Duration;

/// Between two looks.
const EVERY: Duration = Duration::from_millis(500);

/// Does `work` in the session `pid`, and looks every half second what that waits for. With what it was the last time.
pub(super) async fn watched<T>(pool: &Pool, pid: i32, work: impl Future<Output = T>) -> (T, Option<String>) {
    let mut work = pin!(work);
    let mut last = None;
    loop {
        match tokio::time::timeout(EVERY, &mut work).await {
            Ok(done) => return (done, last),
            // What can't be seen is not told.
            Err(_) => last = look(pool, pid).await.ok().flatten().or(last),
        }
    }
}

/// The lock that `pid` waits for, and who is in its way. Nothing of what they do there: their statements may hold anything.
async fn look(pool: &Pool, pid: i32) -> Result<Option<String>, Error> {
    let found = sqlx::query!(
        r#"select case when held.relation is not null then format('%s on %s', held.mode, held.relation::regclass)
                       when held.locktype = 'advisory' then 'another that migrates'
                       else 'the end of a transaction' end as "what!",
                  (select string_agg(format('pid %s (%s, %s, in a transaction for %s s)', a.pid,
                                            coalesce(nullif(a.application_name, ''), 'without a name'),
                                            coalesce(a.state, 'in an unknown state'),
                                            extract(epoch from clock_timestamp() - a.xact_start)::int), ', ')
                   from pg_stat_activity a where a.pid = any (pg_blocking_pids($1))) as "whose"
           from pg_locks held where held.pid = $1 and not held.granted limit 1"#,
        pid
    )
    .fetch_optional(pool)
    .await?;
    Ok(found.map(|row| {
        format!("{}{}", row.what, row.whose.map_or_else(String::new, |whose| format!(" (in the way: {whose})")))
    }))
}
