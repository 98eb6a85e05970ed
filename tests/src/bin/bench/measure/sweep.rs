//! A sweep that finds nothing to do, beside a million builds that have ended.

use super::EMPTY;
use crate::board::Board;
use crate::figures::{Figures, quantile};
use crate::http::Connection;
use crate::options::Options;
use crate::postgres::Postgres;
use crate::seed;
use crate::server::Combine;
use std::time::Instant;

/// The board's database.
pub const DATABASE: &str = "million_finished";
/// The first ones plan their statements.
const WARM_UP: u32 = 5;
const SWEEPS: u32 = 50;
const SWEEPS_MIN: u32 = 5;

/// Seeds the board.
pub async fn prepare(postgres: &Postgres, options: &Options) -> anyhow::Result<()> {
    postgres.create(DATABASE, Some(EMPTY)).await?;
    seed::finished(postgres, DATABASE, options.rows).await?;
    postgres.settle(DATABASE).await
}

/// Sweeps again and again, within the span or a few times; the median.
pub async fn measure(postgres: &Postgres, options: &Options, figures: &mut Figures) -> anyhow::Result<()> {
    let board = Board::serve(postgres, DATABASE, Combine::Off).await?;
    let mut operator = board.operator().await?;
    for _ in 0..WARM_UP {
        sweep(&mut operator).await?;
    }
    let (until, mut times) = (Instant::now() + options.span(), Vec::new());
    for turn in 0..SWEEPS {
        if turn >= SWEEPS_MIN && Instant::now() >= until {
            break;
        }
        times.push(sweep(&mut operator).await?);
    }
    figures.note("idle_sweep_ms", quantile(&mut times, 0.5));
    board.stop().await
}

/// One sweep; how long it took, in milliseconds.
async fn sweep(operator: &mut Connection) -> anyhow::Result<f64> {
    let from = Instant::now();
    operator.post("/api/v1/admin/sweep", b"").await?.ok("sweep")?;
    Ok(from.elapsed().as_secs_f64() * 1000.0)
}
