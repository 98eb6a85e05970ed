//! A sweep that finds nothing to do, beside a million builds that have ended.

use super::EMPTY;
use crate::board::Board;
use crate::figures::{Figures, quantile};
use crate::options::Options;
use crate::postgres::Postgres;
use crate::seed;
use crate::server::Combine;
use std::time::Instant;

/// The board's database.
pub const DATABASE: &str = "million_finished";
const SWEEPS: u32 = 50;

/// Seeds the board.
pub async fn prepare(postgres: &Postgres, options: &Options) -> anyhow::Result<()> {
    postgres.create(DATABASE, Some(EMPTY)).await?;
    seed::finished(postgres, DATABASE, options.rows).await?;
    postgres.settle(DATABASE).await
}

/// Sweeps again and again; the median.
pub async fn measure(postgres: &Postgres, figures: &mut Figures) -> anyhow::Result<()> {
    let board = Board::serve(postgres, DATABASE, Combine::Off).await?;
    let mut operator = board.operator().await?;
    let mut times = Vec::new();
    // The first ones plan their statements.
    for turn in 0..SWEEPS + 10 {
        let from = Instant::now();
        operator.post("/api/v1/admin/sweep", b"").await?.ok("sweep")?;
        if turn >= 10 {
            times.push(from.elapsed().as_secs_f64() * 1000.0);
        }
    }
    figures.note("idle_sweep_ms", quantile(&mut times, 0.5));
    board.stop().await
}
