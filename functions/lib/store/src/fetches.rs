//! A build's job, given to the one who fetches it by the build's log token.

use crate::claims::{Sealed, Spec, Taken};
use crate::columns;
use crate::{Error, Store};
use protocol::pipeline::{Env, Step};
use rules::fetch::{self, Decision};
use rules::{EndReason, Status, Timestamp};
use sqlx::types::Json;
use std::collections::BTreeMap;
use uuid::Uuid;

/// What a fetch came to.
#[derive(Debug)]
pub enum Fetched {
    /// The job, secrets still sealed: without what registries are shown, since its fetcher pulls no image, and without a preview.
    Job(Box<Taken>),
    /// The token is unknown or revoked.
    Unauthorized,
    /// The build is unknown, or another token's.
    NotFound,
    /// The build has ended.
    Ended(Status, Option<EndReason>),
    /// Another fetcher has the job.
    Taken,
    /// The lease has lapsed, and may still be renewed.
    Lapsed,
    /// Nothing stands in the way any more: ask again.
    TryAgain,
}

/// Gives a build's job to `fetcher`, if the worker token `claimed_by` still holds the build and nobody else fetched it: one statement, whose
/// guard is the whole rule. What did not get it is told why by another.
///
/// # Errors
///
/// [`Error`] if the database fails.
pub async fn fetch(store: &Store, build: Uuid, claimed_by: &str, fetcher: Uuid) -> Result<Fetched, Error> {
    match take(store, build, claimed_by, fetcher).await? {
        Some(taken) => Ok(Fetched::Job(Box::new(taken))),
        None => refusal(store, build, claimed_by, fetcher).await,
    }
}

async fn take(store: &Store, build: Uuid, claimed_by: &str, fetcher: Uuid) -> Result<Option<Taken>, Error> {
    let row = sqlx::query!(
        r#"update builds b
           set job_fetch_id = $3
           from tokens t, build_specs s
           where t.id = $2 and t.kind = 'worker' and t.revoked_at is null
               and b.id = $1 and b.claimed_by = t.id and b.status = 'running' and b.lease_expires_at > clock_timestamp()
               and (b.job_fetch_id is null or b.job_fetch_id = $3) and s.build_id = b.id
           returning b.workspace_id, b.max_duration_seconds as "max_seconds!", greatest(0, (extract(epoch from
                   b.started_at + b.max_duration_seconds * interval '1 s' - clock_timestamp()) * 1000)::bigint) as "left_ms!",
               s.repository, s.git_ref, s.commit_sha, s.submodules, s.steps as "steps: Json<Vec<Step>>", s.env as "env: Json<Env>",
               s.secrets, s.clone_secret, case when s.secrets <> '{}' or s.clone_secret is not null then
                   sealed_of(b.workspace_id, s.secrets || s.clone_secret) end as "sealed: Json<Vec<Sealed>>""#,
        build,
        claimed_by,
        fetcher
    )
    .fetch_optional(&store.pool)
    .await?;
    fail::fail_point!("fetch.taken");
    Ok(row.map(|row| Taken {
        build,
        workspace: row.workspace_id,
        max_duration_seconds: row.max_seconds,
        deadline_in_ms: row.left_ms,
        sealed: row.sealed.map(|sealed| sealed.0).unwrap_or_default(),
        spec: Spec {
            repository: row.repository,
            git_ref: row.git_ref,
            commit_sha: row.commit_sha,
            submodules: row.submodules,
            steps: row.steps.0,
            env: row.env.0,
            secrets: row.secrets,
            clone_secret: row.clone_secret,
            registry_secrets: BTreeMap::new(),
            preview: None,
        },
    }))
}

/// Why a fetch got nothing.
async fn refusal(store: &Store, build: Uuid, claimed_by: &str, fetcher: Uuid) -> Result<Fetched, Error> {
    let row = sqlx::query!(
        r#"select b.status as "status?", b.end_reason, b.job_fetch_id,
               (extract(epoch from b.lease_expires_at) * 1000)::bigint as lease_ms,
               (extract(epoch from clock_timestamp()) * 1000)::bigint as "now_ms!"
           from tokens t left join builds b on b.id = $1 and b.claimed_by = t.id
           where t.id = $2 and t.kind = 'worker' and t.revoked_at is null"#,
        build,
        claimed_by
    )
    .fetch_optional(&store.pool)
    .await?;
    let Some(row) = row else { return Ok(Fetched::Unauthorized) };
    let Some(status) = row.status else { return Ok(Fetched::NotFound) };
    let claimed = fetch::Claimed {
        status: columns::status(status)?,
        lease_expires_at: Timestamp(row.lease_ms.unwrap_or(0)),
        fetched_by: row.job_fetch_id,
    };
    Ok(match fetch::fetch(&claimed, &fetcher, Timestamp(row.now_ms)) {
        Decision::Ended => Fetched::Ended(claimed.status, row.end_reason.map(columns::end_reason)),
        Decision::Taken => Fetched::Taken,
        Decision::Lapsed => Fetched::Lapsed,
        // Renewed between the two statements.
        Decision::Job => Fetched::TryAgain,
    })
}
