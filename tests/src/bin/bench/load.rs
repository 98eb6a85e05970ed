//! Workers that do nothing but claim and complete, as many as there are connections.

use crate::http::{self, Connection};
use crate::server::Server;
use std::collections::HashSet;
use std::time::{Duration, Instant};
use tokio::task::JoinSet;
use uuid::Uuid;

/// How long calls are made before they are counted: connections open, statements are planned.
const WARM_UP: Duration = Duration::from_secs(1);
/// What each worker says of a build.
const REPORT: &[u8] = br#"{"status":"success","ran_ms":1,"last_seq":0,"steps":[{"name":"test","status":"success","exit_code":0,"duration_ms":1}]}"#;

/// What a load came to.
pub struct Done {
    /// Pairs of a claim and a complete within the span.
    pub pairs: usize,
    /// All builds that were taken and ended, those of the warm-up too.
    pub builds: usize,
}

/// Claims and completes over so many connections for a span.
///
/// # Errors
///
/// If an answer is not 200, or a build was given out twice.
pub async fn pairs(server: &Server, connections: usize, span: Duration) -> anyhow::Result<Done> {
    let from = Instant::now() + WARM_UP;
    let mut workers = JoinSet::new();
    for _ in 0..connections {
        let connection = Connection::open(server.address, &server.worker).await?;
        workers.spawn(work(connection, from, from + span));
    }
    let (mut pairs, mut builds, mut taken) = (0, HashSet::new(), 0);
    while let Some(worked) = workers.join_next().await {
        let (counted, mine) = worked??;
        pairs += counted;
        taken += mine.len();
        builds.extend(mine);
    }
    anyhow::ensure!(builds.len() == taken, "{} builds were claimed twice", taken - builds.len());
    Ok(Done { pairs, builds: taken })
}

async fn work(mut worker: Connection, from: Instant, until: Instant) -> anyhow::Result<(usize, Vec<Uuid>)> {
    let (mut counted, mut builds) = (0, Vec::new());
    loop {
        let build = claim(&mut worker).await?;
        complete(&mut worker, build, REPORT).await?;
        builds.push(build);
        let now = Instant::now();
        if now >= until {
            return Ok((counted, builds));
        }
        counted += usize::from(now >= from);
    }
}

/// Claims a build.
pub async fn claim(worker: &mut Connection) -> anyhow::Result<Uuid> {
    claim_as(worker, Uuid::new_v4()).await
}

/// Claims a build under this number.
pub async fn claim_as(worker: &mut Connection, claim: Uuid) -> anyhow::Result<Uuid> {
    let body = format!(
        r#"{{"claim_id":"{claim}","worker":{{"name":"w1","version":"bench","host_id":"h1","isolation":["bubblewrap"],"labels":[]}}}}"#
    );
    let answer = worker.post("/internal/worker/claim", body.as_bytes()).await?;
    Ok(http::field(answer.ok("claim")?, "build_id")?.parse()?)
}

/// Ends a build.
pub async fn complete(worker: &mut Connection, build: Uuid, report: &[u8]) -> anyhow::Result<()> {
    worker.post(&format!("/internal/worker/builds/{build}/complete"), report).await?.ok("complete").map(drop)
}

/// Ends a build that wrote no log.
pub async fn succeed(worker: &mut Connection, build: Uuid) -> anyhow::Result<()> {
    complete(worker, build, REPORT).await
}

/// Renews a build's lease.
pub async fn beat(worker: &mut Connection, build: Uuid) -> anyhow::Result<()> {
    let body = br#"{"phase":"test","last_output_age_ms":100}"#;
    worker.post(&format!("/internal/worker/builds/{build}/heartbeat"), body).await?.ok("heartbeat").map(drop)
}
