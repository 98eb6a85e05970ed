//! Heartbeats of ten thousand builds: 333 a second. What share of them is HOT, and what they cost.

use super::QUEUED;
use crate::board::Board;
use crate::figures::{Figures, as_f64};
use crate::http::Connection;
use crate::options::Options;
use crate::postgres::{Postgres, number};
use crate::server::Combine;
use crate::{cpu, load, seed};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::task::JoinSet;
use uuid::Uuid;

const PER_SECOND: u32 = 333;
/// A build calls this often.
const EVERY_SECONDS: u32 = 30;
const CONNECTIONS: u32 = 8;
const DATABASE: &str = "beating";

/// Claims as many builds as call within the span, and lets them call.
pub async fn measure(postgres: &Postgres, options: &Options, figures: &mut Figures) -> anyhow::Result<()> {
    let board = Board::copy(postgres, QUEUED, DATABASE, Combine::Off).await?;
    let seconds = options.seconds.max(1);
    let mut workers = connect(&board).await?;
    let builds = hold(&mut workers, PER_SECOND * seconds.min(EVERY_SECONDS)).await?;
    // A connection's counts are certain to be seen once it is closed.
    board.server.stop().await?;
    postgres.settle(DATABASE).await?;
    let board = Board::serve(postgres, DATABASE, Combine::Off).await?;
    let workers = connect(&board).await?;
    let before = Updates::of(postgres).await?;
    let (postmaster, server) = (postgres.pid()?, board.server.pid()?);
    let used = || anyhow::Ok(cpu::of_tree(postmaster)? + cpu::of(server)?);
    let (before_beats, from) = (used()?, Instant::now());
    beat(workers, builds, PER_SECOND * seconds).await?;
    let (used, elapsed) = (used()? - before_beats, from.elapsed().as_secs_f64());
    board.server.stop().await?;
    let after = Updates::of(postgres).await?;
    let all = after.all - before.all;
    anyhow::ensure!(
        all >= i64::from(PER_SECOND * seconds),
        "{all} rows were updated, fewer than there were heartbeats"
    );
    figures.note("heartbeat_hot_percent", share(after.hot - before.hot, all)? * 100.0);
    figures.note("heartbeat_cpu_percent", used / elapsed * 100.0);
    figures.note("heartbeats_per_s", f64::from(PER_SECOND * seconds) / elapsed);
    seed::check(postgres, DATABASE).await?;
    postgres.remove(DATABASE).await
}

async fn connect(board: &Board<'_>) -> anyhow::Result<Vec<Connection>> {
    let mut workers = Vec::new();
    for _ in 0..CONNECTIONS {
        workers.push(board.worker().await?);
    }
    Ok(workers)
}

fn share(of: i64, all: i64) -> anyhow::Result<f64> {
    Ok(as_f64(usize::try_from(of)?) / as_f64(usize::try_from(all)?))
}

/// Claims `count` builds.
async fn hold(workers: &mut [Connection], count: u32) -> anyhow::Result<Vec<Uuid>> {
    let mut builds = Vec::new();
    let each = count.div_ceil(CONNECTIONS);
    let claims = workers.iter_mut().map(|worker| async move {
        let mut mine = Vec::new();
        for _ in 0..each {
            mine.push(load::claim(worker).await?);
        }
        anyhow::Ok(mine)
    });
    for mine in futures::future::try_join_all(claims).await? {
        builds.extend(mine);
    }
    Ok(builds)
}

/// Sends `count` heartbeats at their times, the builds' in turns.
async fn beat(workers: Vec<Connection>, builds: Vec<Uuid>, count: u32) -> anyhow::Result<()> {
    let (from, builds) = (Instant::now(), Arc::new(builds));
    let mut beating = JoinSet::new();
    for (first, mut worker) in (0..count).zip(workers) {
        let builds = Arc::clone(&builds);
        beating.spawn(async move {
            for turn in (first..count).step_by(CONNECTIONS as usize) {
                let due = from + Duration::from_secs(1) * turn / PER_SECOND;
                tokio::time::sleep_until(due.into()).await;
                load::beat(&mut worker, builds[turn as usize % builds.len()]).await?;
            }
            anyhow::Ok(())
        });
    }
    while let Some(done) = beating.join_next().await {
        done??;
    }
    Ok(())
}

/// How many rows were updated, and how many of these without touching an index.
struct Updates {
    all: i64,
    hot: i64,
}

impl Updates {
    async fn of(postgres: &Postgres) -> anyhow::Result<Self> {
        let mut conn = postgres.connect(DATABASE).await?;
        let count = |column| format!("select {column} from pg_stat_user_tables where relname = '{}'", seed::BEATEN);
        let all = number(&mut conn, &count("n_tup_upd")).await?;
        Ok(Self { all, hot: number(&mut conn, &count("n_tup_hot_upd")).await? })
    }
}
