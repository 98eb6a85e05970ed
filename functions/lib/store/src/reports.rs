//! How the runner of a build's steps says that they went, kept for the worker that holds the build.

use crate::columns;
use crate::{Error, Store};
use protocol::runner::Report;
use rules::report::{self, Before, Decision};
use rules::{EndReason, Status};
use sqlx::types::Json;
use uuid::Uuid;

/// What a report came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reported {
    /// It is stored now.
    Stored,
    /// It was stored before.
    Repeated,
    /// The token is unknown or revoked.
    Unauthorized,
    /// The build is unknown, or another token's.
    NotFound,
    /// The build has ended.
    Ended(Status, Option<EndReason>),
    /// Another fetcher has the job, or nobody.
    Stranger,
    /// Another report is stored.
    Conflict,
    /// Two reports met: ask again.
    TryAgain,
}

/// Keeps `fetcher`'s report on a build that the worker token `claimed_by` holds: one statement, whose guard is the whole rule, also where the same
/// report is stored already. What is not taken is told why by another.
///
/// # Errors
///
/// [`Error`] if the database fails.
pub async fn store(
    store: &Store,
    build: Uuid,
    claimed_by: &str,
    fetcher: Uuid,
    report: &Report,
) -> Result<Reported, Error> {
    match insert(store, build, claimed_by, fetcher, report).await? {
        Some(true) => Ok(Reported::Stored),
        Some(false) => Ok(Reported::Repeated),
        None => refusal(store, build, claimed_by, fetcher, report).await,
    }
}

/// Whether it was new; `None` if it is not there.
async fn insert(
    store: &Store,
    build: Uuid,
    claimed_by: &str,
    fetcher: Uuid,
    report: &Report,
) -> Result<Option<bool>, Error> {
    let is_new = sqlx::query_scalar!(
        r#"with runner as (
               select b.id, b.status from builds b join tokens t on t.id = b.claimed_by
               where b.id = $1 and t.id = $2 and t.kind = 'worker' and t.revoked_at is null and b.job_fetch_id = $3
           ), stored as (
               insert into reports (build_id, report) select id, $4 from runner where status = 'running'
               on conflict (build_id) do nothing
               returning build_id
           )
           select s.build_id is not null as "is_new!"
           from runner b left join stored s on s.build_id = b.id left join reports r on r.build_id = b.id
           where s.build_id is not null or r.report = $4"#,
        build,
        claimed_by,
        fetcher,
        Json(report) as _
    )
    .fetch_optional(&store.pool)
    .await?;
    fail::fail_point!("report.stored");
    Ok(is_new)
}

/// Why a report was not taken.
async fn refusal(
    store: &Store,
    build: Uuid,
    claimed_by: &str,
    fetcher: Uuid,
    report: &Report,
) -> Result<Reported, Error> {
    let row = sqlx::query!(
        r#"select b.status as "status?", b.end_reason, b.job_fetch_id, r.report = $3 as same
           from tokens t left join builds b on b.id = $1 and b.claimed_by = t.id left join reports r on r.build_id = b.id
           where t.id = $2 and t.kind = 'worker' and t.revoked_at is null"#,
        build,
        claimed_by,
        Json(report) as _
    )
    .fetch_optional(&store.pool)
    .await?;
    let Some(row) = row else { return Ok(Reported::Unauthorized) };
    let Some(status) = row.status else { return Ok(Reported::NotFound) };
    let before = row.same.map(|same| if same { Before::Same } else { Before::Other });
    let claimed = report::Claimed { status: columns::status(status)?, fetched_by: row.job_fetch_id, before };
    Ok(match report::report(&claimed, &fetcher) {
        Decision::Ended => Reported::Ended(claimed.status, row.end_reason.map(columns::end_reason)),
        Decision::Stranger => Reported::Stranger,
        Decision::Conflict => Reported::Conflict,
        // Another call stored it between the two statements.
        Decision::Repeat => Reported::Repeated,
        Decision::Store => Reported::TryAgain,
    })
}

/// What the worker that holds a build is told of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Told {
    /// Its runner's report.
    Report(Box<Report>),
    /// There is none yet.
    Nothing,
    /// The token is unknown or revoked.
    Unauthorized,
    /// The build is unknown, or another token's.
    NotFound,
    /// The build has ended.
    Ended(Status, Option<EndReason>),
}

/// The report on a build that this worker token (its id and digest) holds.
///
/// # Errors
///
/// [`Error`] if the database fails.
pub async fn told(store: &Store, build: Uuid, token: (&str, &[u8])) -> Result<Told, Error> {
    let row = sqlx::query!(
        r#"select b.status as "status?", b.end_reason, r.report as "report?: Json<Report>"
           from tokens t left join builds b on b.id = $1 and b.claimed_by = t.id left join reports r on r.build_id = b.id
           where t.id = $2 and t.digest = $3 and t.kind = 'worker' and t.revoked_at is null"#,
        build,
        token.0,
        token.1
    )
    .fetch_optional(&store.pool)
    .await?;
    let Some(row) = row else { return Ok(Told::Unauthorized) };
    let Some(status) = row.status else { return Ok(Told::NotFound) };
    let status = columns::status(status)?;
    Ok(match row.report {
        _ if status != Status::Running => Told::Ended(status, row.end_reason.map(columns::end_reason)),
        Some(Json(report)) => Told::Report(Box::new(report)),
        None => Told::Nothing,
    })
}
