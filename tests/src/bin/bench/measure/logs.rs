//! Log chunks over HTTP, beside COPY of the same bytes in the same batches into a like table: every batch is committed before
//! the next one is sent, in both.

mod content;

use super::QUEUED;
use crate::board::Board;
use crate::figures::{Figures, as_f64};
use crate::http::{self, Connection};
use crate::options::Options;
use crate::postgres::Postgres;
use crate::server::Combine;
use crate::{load, seed};
use content::Batch;
use sqlx::PgConnection;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::task::JoinSet;
use uuid::Uuid;

/// Builds that write at the same time.
const WRITERS: usize = 4;
/// Batches to one build, so that it stays below the cap of its log.
const BATCHES: u64 = 100;
const DATABASE: &str = "written";

/// Text, then bytes that don't compress.
pub async fn measure(postgres: &Postgres, options: &Options, figures: &mut Figures) -> anyhow::Result<()> {
    for (batch, http, copy) in [
        (Batch::text(), "log_mb_per_s", "copy_mb_per_s"),
        (Batch::random(), "log_random_mb_per_s", "copy_random_mb_per_s"),
    ] {
        let (batch, span) = (Arc::new(batch), options.span() / 2);
        let board = Board::copy(postgres, QUEUED, DATABASE, Combine::Off).await?;
        figures.note(http, over_http(&board, &batch, span).await?);
        postgres.settle(DATABASE).await?;
        figures.note(copy, by_copy(postgres, &batch, span).await?);
        board.end().await?;
    }
    Ok(())
}

async fn over_http(board: &Board<'_>, batch: &Arc<Batch>, span: Duration) -> anyhow::Result<f64> {
    let from = Instant::now();
    let mut writers = JoinSet::new();
    for _ in 0..WRITERS {
        writers.spawn(write(board.worker().await?, Arc::clone(batch), from + span));
    }
    rate(writers, batch, from).await
}

async fn by_copy(postgres: &Postgres, batch: &Arc<Batch>, span: Duration) -> anyhow::Result<f64> {
    let from = Instant::now();
    let mut writers = JoinSet::new();
    for _ in 0..WRITERS {
        writers.spawn(copy(postgres.connect(DATABASE).await?, Arc::clone(batch), from + span));
    }
    rate(writers, batch, from).await
}

/// Megabytes (10⁶) of content in a second.
async fn rate(mut writers: JoinSet<anyhow::Result<usize>>, batch: &Batch, from: Instant) -> anyhow::Result<f64> {
    let mut batches = 0;
    while let Some(written) = writers.join_next().await {
        batches += written??;
    }
    Ok(as_f64(batches) * as_f64(batch.bytes()) / 1e6 / from.elapsed().as_secs_f64())
}

/// Writes builds' logs until then; how many batches.
async fn write(mut worker: Connection, batch: Arc<Batch>, until: Instant) -> anyhow::Result<usize> {
    let mut written = 0;
    let mut body = Vec::new();
    while Instant::now() < until {
        let build = load::claim(&mut worker).await?;
        let path = format!("/internal/worker/builds/{build}/logs");
        let mut next = 1;
        for _ in 0..BATCHES {
            batch.write_json(next, &mut body);
            let answer = worker.post(&path, &body).await?;
            next += batch.chunks();
            let stored = http::number(answer.ok("logs")?, "next_seq")?;
            anyhow::ensure!(stored == next, "next_seq is {stored}, and should be {next}");
            written += 1;
            if Instant::now() >= until {
                break;
            }
        }
        let report = format!(r#"{{"status":"success","ran_ms":1,"last_seq":{}}}"#, next - 1);
        load::complete(&mut worker, build, report.as_bytes()).await?;
    }
    Ok(written)
}

/// Copies the same until then; how many batches.
async fn copy(mut conn: PgConnection, batch: Arc<Batch>, until: Instant) -> anyhow::Result<usize> {
    let mut written = 0;
    let mut rows = Vec::new();
    while Instant::now() < until {
        let (build, mut next) = (Uuid::now_v7(), 1);
        for _ in 0..BATCHES {
            batch.write_rows(build, next, &mut rows);
            let mut copying = conn.copy_in_raw(seed::COPY_LOGS).await?;
            copying.send(rows.as_slice()).await?;
            copying.finish().await?;
            next += batch.chunks();
            written += 1;
            if Instant::now() >= until {
                break;
            }
        }
    }
    Ok(written)
}
