//! How long one claim takes when nobody else asks: with a thousand builds waiting, with a million, and with a million that
//! all belong to a workspace that may not run any.

use super::EMPTY;
use crate::board::Board;
use crate::figures::{Figures, quantile};
use crate::http::Connection;
use crate::options::Options;
use crate::postgres::Postgres;
use crate::server::Combine;
use crate::{load, seed};
use std::time::Instant;

const FEW: u32 = 1000;
/// Claims before those that are timed, of each server: connections open, statements are planned.
const WARM_UP: u32 = 50;
/// How many claims are made of one board before it is the next one's turn.
const TURN: u32 = 50;

/// One that is measured.
struct Case {
    database: &'static str,
    combine: Combine,
    p50: &'static str,
    p99: &'static str,
}

const CASES: [Case; 4] = [
    Case { database: DATABASES[0], combine: Combine::Off, p50: "claim_p50_ms_1k", p99: "claim_p99_ms_1k" },
    Case { database: DATABASES[1], combine: Combine::Off, p50: "claim_p50_ms_1m", p99: "claim_p99_ms_1m" },
    Case {
        database: DATABASES[2],
        combine: Combine::Off,
        p50: "claim_p50_ms_1m_skipped",
        p99: "claim_p99_ms_1m_skipped",
    },
    Case {
        database: DATABASES[3],
        combine: Combine::On,
        p50: "claim_p50_ms_1k_combined",
        p99: "claim_p99_ms_1k_combined",
    },
];

/// The boards' databases.
pub const DATABASES: [&str; 4] = ["thousand", "million", "million_skipped", "thousand_combined"];

/// Seeds the boards.
pub async fn prepare(postgres: &Postgres, options: &Options) -> anyhow::Result<()> {
    for case in &CASES {
        postgres.create(case.database, Some(EMPTY)).await?;
        let (waiting, skipped) = match case.database {
            "million" => (options.rows, 0),
            "million_skipped" => (FEW, options.rows),
            _ => (FEW, 0),
        };
        if skipped > 0 {
            seed::pending(postgres, case.database, seed::SKIPPED, skipped).await?;
        }
        seed::pending(postgres, case.database, seed::EVERY, waiting).await?;
        postgres.settle(case.database).await?;
    }
    Ok(())
}

/// Claims of all boards in turns.
pub async fn measure(postgres: &Postgres, options: &Options, figures: &mut Figures) -> anyhow::Result<()> {
    let turns = options.seconds.max(1) * 2;
    let mut boards = Vec::new();
    for case in &CASES {
        // So that as many wait at the end as the case says.
        seed::pending(postgres, case.database, seed::EVERY, WARM_UP + turns * TURN).await?;
        postgres.settle(case.database).await?;
        let board = Board::serve(postgres, case.database, case.combine).await?;
        let mut worker = board.worker().await?;
        claims(&mut worker, WARM_UP).await?;
        boards.push((case, board, worker, Vec::new()));
    }
    for _ in 0..turns {
        for (_, _, worker, times) in &mut boards {
            times.extend(claims(worker, TURN).await?);
        }
    }
    for (case, board, _, mut times) in boards {
        figures.note(case.p50, quantile(&mut times, 0.5));
        figures.note(case.p99, quantile(&mut times, 0.99));
        board.stop().await?;
    }
    Ok(())
}

/// Claims and completes; how long each claim took, in milliseconds.
async fn claims(worker: &mut Connection, count: u32) -> anyhow::Result<Vec<f64>> {
    let mut times = Vec::new();
    for _ in 0..count {
        let from = Instant::now();
        let build = load::claim(worker).await?;
        times.push(from.elapsed().as_secs_f64() * 1000.0);
        load::succeed(worker, build).await?;
    }
    Ok(times)
}
