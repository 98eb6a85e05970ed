//! The end of running builds: frees their reservations, charges them and keeps their ledger rows, in one statement (SPEC.md,
//! Budget, Reaper). What is charged is `rules::budget`'s arithmetic on the row as it is then; a test holds the two equal.

use crate::claims::ms;
use crate::columns::{count, unsigned};
use crate::{Error, Store};
use protocol::build::StepResult;
use protocol::worker::Complete;
use rules::lease::Due;
use rules::{EndReason, Status, Timing};
use sqlx::types::Json;
use uuid::Uuid;

/// A worker's report of an end.
#[derive(Clone, Copy, Debug)]
pub struct Reported<'a> {
    /// The build.
    pub build: Uuid,
    /// The worker token's id and digest.
    pub token: (&'a str, &'a [u8]),
    /// The report.
    pub report: &'a Complete,
    /// The report's reason, or the plainest one of its status. A cancelled build keeps the reason that was asked with.
    pub reason: Option<EndReason>,
}

/// What an end came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ended {
    /// The build.
    pub build: Uuid,
    /// How long it ran.
    pub duration_ms: u64,
    /// What it cost.
    pub charged_seconds: u32,
}

/// Ends builds as their workers say; those that it ended. The guard refused the others: `builds::standing` says why. No build
/// may be named twice.
///
/// # Errors
///
/// [`Error`] if the database fails. Nothing has been written.
pub async fn complete(store: &Store, reports: &[Reported<'_>]) -> Result<Vec<Ended>, Error> {
    if let [report] = reports {
        return one(store, *report).await;
    }
    let mut rows = Rows::default();
    for Reported { build, token, report, reason } in reports {
        rows.builds.push(*build);
        rows.statuses.push(report.status.as_str());
        rows.reasons.push(reason.map(EndReason::as_str));
        rows.messages.push(report.error_message.as_deref());
        rows.tokens.push(Some(token.0));
        rows.digests.push(Some(token.1));
        rows.ran_ms.push(i64::try_from(report.ran_ms).unwrap_or(i64::MAX));
        rows.last_seqs.push(Some(i64::try_from(report.last_seq).unwrap_or(i64::MAX)));
        rows.logs_lost.push(report.logs_lost);
        rows.commits.push(report.commit.as_deref());
        rows.steps.push(Json(&report.steps));
    }
    end(store, "completed", 0, &rows).await
}

/// Ends a build that is overdue or whose worker is lost. `None`: it was renewed or ended since.
///
/// # Errors
///
/// [`Error`] if the database fails. Nothing has been written.
pub async fn reap(store: &Store, build: Uuid, why: Due, timing: &Timing) -> Result<Option<Ended>, Error> {
    let (kind, grace, reason, message) = match why {
        Due::Lost => ("lost", timing.lease_grace, EndReason::WorkerLost, "worker lost"),
        Due::Overdue => ("overdue", timing.deadline_grace, EndReason::Overdue, "still running past its deadline"),
    };
    let rows = Rows {
        builds: vec![build],
        statuses: vec![Status::Failed.as_str()],
        reasons: vec![Some(reason.as_str())],
        messages: vec![Some(message)],
        tokens: vec![None],
        digests: vec![None],
        ran_ms: vec![0],
        last_seqs: vec![None],
        logs_lost: vec![true],
        commits: vec![None],
        steps: vec![Json(&[])],
    };
    Ok(end(store, kind, ms(grace), &rows).await?.pop())
}

/// What most calls are, by the statements that cost least.
async fn one(store: &Store, reported: Reported<'_>) -> Result<Vec<Ended>, Error> {
    let Reported { build, token, report, reason } = reported;
    fail::fail_point!("finish.decided");
    let ended = sqlx::query_as!(
        Row,
        r#"select build as "build!", duration_ms as "duration_ms!", charged_seconds as "charged_seconds!"
           from end_build($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11)"#,
        build,
        report.status.as_str(),
        reason.map(EndReason::as_str),
        report.error_message.as_deref(),
        token.0,
        token.1,
        i64::try_from(report.ran_ms).unwrap_or(i64::MAX),
        i64::try_from(report.last_seq).unwrap_or(i64::MAX),
        report.logs_lost,
        report.commit.as_deref(),
        Json(&report.steps) as _,
    )
    .fetch_all(&store.pool)
    .await?;
    fail::fail_point!("finish.written");
    Ok(ended.into_iter().map(Row::read).collect())
}

struct Row {
    build: Uuid,
    duration_ms: i64,
    charged_seconds: i32,
}

impl Row {
    fn read(self) -> Ended {
        let Self { build, duration_ms, charged_seconds } = self;
        Ended { build, duration_ms: unsigned(duration_ms), charged_seconds: count(charged_seconds) }
    }
}

/// The arguments of `end_builds`, a column each.
#[derive(Default)]
struct Rows<'a> {
    builds: Vec<Uuid>,
    statuses: Vec<&'static str>,
    reasons: Vec<Option<&'static str>>,
    messages: Vec<Option<&'a str>>,
    tokens: Vec<Option<&'a str>>,
    digests: Vec<Option<&'a [u8]>>,
    ran_ms: Vec<i64>,
    last_seqs: Vec<Option<i64>>,
    logs_lost: Vec<bool>,
    commits: Vec<Option<&'a str>>,
    steps: Vec<Json<&'a [StepResult]>>,
}

async fn end(store: &Store, kind: &str, grace_ms: i64, rows: &Rows<'_>) -> Result<Vec<Ended>, Error> {
    fail::fail_point!("finish.decided");
    let ended = sqlx::query_as!(
        Row,
        r#"select build as "build!", duration_ms as "duration_ms!", charged_seconds as "charged_seconds!"
           from end_builds($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13)"#,
        kind,
        grace_ms,
        &rows.builds,
        &rows.statuses as _,
        &rows.reasons as _,
        &rows.messages as _,
        &rows.tokens as _,
        &rows.digests as _,
        &rows.ran_ms,
        &rows.last_seqs as _,
        &rows.logs_lost,
        &rows.commits as _,
        &rows.steps as _,
    )
    .fetch_all(&store.pool)
    .await?;
    fail::fail_point!("finish.written");
    Ok(ended.into_iter().map(Row::read).collect())
}
