//! How many statements a call costs, as the server counts them; each is a round trip.

use super::QUEUED;
use crate::board::Board;
use crate::figures::{Figures, as_f64};
use crate::http::Connection;
use crate::load;
use crate::postgres::{Postgres, execute, number};
use crate::server::Combine;
use sqlx::PgConnection;
use uuid::Uuid;

const DATABASE: &str = "counted";
const CALLS: usize = 20;

/// Twenty of each call, one after the other.
pub async fn measure(postgres: &Postgres, figures: &mut Figures) -> anyhow::Result<()> {
    let board = Board::copy(postgres, QUEUED, DATABASE, Combine::Off).await?;
    let mut conn = postgres.connect(DATABASE).await?;
    let mut worker = board.worker().await?;
    // The pool's first connection sets itself up.
    let first = load::claim(&mut worker).await?;
    load::succeed(&mut worker, first).await?;

    reset(&mut conn).await?;
    let builds = claims(&mut worker).await?;
    figures.note("statements_per_claim", counted(&mut conn).await?);
    for build in &builds {
        load::beat(&mut worker, *build).await?;
    }
    figures.note("statements_per_heartbeat", counted(&mut conn).await?);
    for build in &builds {
        let chunks = br#"{"chunks":[{"seq":1,"step":"test","stream":"stdout","at_ms":5,"text":"a"}]}"#;
        worker.post(&format!("/internal/worker/builds/{build}/logs"), chunks).await?.ok("logs")?;
    }
    figures.note("statements_per_log_batch", counted(&mut conn).await?);
    for build in &builds {
        load::complete(&mut worker, *build, br#"{"status":"success","ran_ms":1,"last_seq":1}"#).await?;
    }
    figures.note("statements_per_complete", counted(&mut conn).await?);
    board.end().await
}

async fn claims(worker: &mut Connection) -> anyhow::Result<Vec<Uuid>> {
    let mut builds = Vec::new();
    for _ in 0..CALLS {
        builds.push(load::claim(worker).await?);
    }
    Ok(builds)
}

async fn reset(conn: &mut PgConnection) -> anyhow::Result<()> {
    execute(conn, "select pg_stat_statements_reset()").await
}

/// The statements since the last time this was asked, BEGIN and COMMIT among them, for each call.
async fn counted(conn: &mut PgConnection) -> anyhow::Result<f64> {
    let query = "select coalesce(sum(calls), 0)::bigint from pg_stat_statements
        where toplevel and dbid = (select oid from pg_database where datname = current_database())
            and query not like '%pg_stat_statements%'";
    let count = number(conn, query).await?;
    reset(conn).await?;
    Ok(as_f64(usize::try_from(count)?) / as_f64(CALLS))
}
