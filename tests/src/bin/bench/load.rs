//! What a worker says that does nothing but claim and complete.

use crate::http::{self, Connection};
use uuid::Uuid;

/// What each worker says of a build.
pub const REPORT: &str = r#"{"status":"success","ran_ms":1,"last_seq":0,"steps":[{"name":"test","status":"success","exit_code":0,"duration_ms":1}]}"#;

/// Where builds are claimed.
pub const CLAIM_PATH: &str = "/internal/worker/claim";

/// What a worker says when it claims.
pub fn claim_body(claim: &Uuid) -> String {
    format!(
        r#"{{"claim_id":"{claim}","worker":{{"name":"w1","version":"bench","host_id":"h1","isolation":["bubblewrap"],"labels":[]}}}}"#
    )
}

/// Where a build's end is told.
pub fn complete_path(build: &Uuid) -> String {
    format!("/internal/worker/builds/{build}/complete")
}

/// Claims a build.
pub async fn claim(worker: &mut Connection) -> anyhow::Result<Uuid> {
    claim_as(worker, Uuid::new_v4()).await
}

/// Claims a build under this number.
pub async fn claim_as(worker: &mut Connection, claim: Uuid) -> anyhow::Result<Uuid> {
    let answer = worker.post(CLAIM_PATH, claim_body(&claim).as_bytes()).await?;
    Ok(http::field(answer.ok("claim")?, "build_id")?.parse()?)
}

/// Ends a build.
pub async fn complete(worker: &mut Connection, build: Uuid, report: &[u8]) -> anyhow::Result<()> {
    worker.post(&complete_path(&build), report).await?.ok("complete").map(drop)
}

/// Ends a build that wrote no log.
pub async fn succeed(worker: &mut Connection, build: Uuid) -> anyhow::Result<()> {
    complete(worker, build, REPORT.as_bytes()).await
}

/// Renews a build's lease.
pub async fn beat(worker: &mut Connection, build: Uuid) -> anyhow::Result<()> {
    let body = br#"{"phase":"test","last_output_age_ms":100}"#;
    worker.post(&format!("/internal/worker/builds/{build}/heartbeat"), body).await?.ok("heartbeat").map(drop)
}
