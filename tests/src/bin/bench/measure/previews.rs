//! Previews: how much later than by hand one runs, what two hundred of them on one host cost the board, and a sweep of ten thousand
//! whose time is over.

mod host;

use super::EMPTY;
use crate::board::Board;
use crate::figures::{Figures, as_f64, quantile};
use crate::postgres::{Postgres, execute, number};
use crate::seed;
use crate::server::Combine;
use anyhow::ensure;
use host::Host;
use std::time::{Duration, Instant};
use tokio::time::sleep;

const EXPIRED: u32 = 10_000;
const STARTS: usize = 20;
const LIVE: usize = 200;
/// How long what two hundred cost is counted: some syncs, which come every ten seconds.
const COUNTED: Duration = Duration::from_secs(60);
const SYNCS: &str = "query like '%into preview_hosts%'";
const WRITES: &str = "query like '%sync_previews(%'";
/// What services have written since the last time.
const TAILS: &str = "query like '%set log_tail%'";

/// Measures all three.
///
/// # Errors
///
/// If something can't be run, or does not come to be.
pub async fn measure(postgres: &Postgres, figures: &mut Figures) -> anyhow::Result<()> {
    sweep(postgres, figures).await?;
    live(postgres, figures).await
}

async fn sweep(postgres: &Postgres, figures: &mut Figures) -> anyhow::Result<()> {
    let database = "expired_previews";
    postgres.remove(database).await?;
    postgres.create(database, Some(EMPTY)).await?;
    seed::expired(postgres, database, EXPIRED).await?;
    postgres.settle(database).await?;
    let board = Board::serve(postgres, database, Combine::Off).await?;
    let mut operator = board.operator().await?;
    let from = Instant::now();
    let swept: serde_json::Value =
        serde_json::from_slice(operator.post("/api/v1/admin/sweep", b"").await?.ok("sweep")?)?;
    figures.note("expired_previews_swept_ms", ms(from.elapsed()));
    // The server's own schedule may have been first.
    let left = "select count(*) from previews where status <> 'destroying'";
    let left = number(&mut postgres.connect(database).await?, left).await?;
    ensure!(left == 0 && swept["previews_expired"] == EXPIRED, "{left} were not swept: {swept}");
    board.end().await
}

async fn live(postgres: &Postgres, figures: &mut Figures) -> anyhow::Result<()> {
    let database = "live_previews";
    let board = Board::copy(postgres, EMPTY, database, Combine::Off).await?;
    let mut conn = postgres.connect(database).await?;
    execute(&mut conn, &format!("update plans set previews_max = {}", 2 * LIVE)).await?;
    let host = Host::start(&board).await?;
    // The first one makes what the next ones find.
    host.preview().await?;
    let (mut by_hand, mut all) = (Vec::new(), Vec::new());
    for _ in 0..STARTS {
        by_hand.push(ms(host.by_hand().await?));
        let build = host.preview().await?;
        let took = format!(
            "select (extract(epoch from p.started_at - b.ended_at) * 1000)::bigint
            from previews p join builds b on b.id = p.build_id where b.id = '{build}'"
        );
        all.push(as_f64(usize::try_from(number(&mut conn, &took).await?)?));
    }
    let (by_hand, all) = (quantile(&mut by_hand, 0.5), quantile(&mut all, 0.5));
    figures.note("service_by_hand_ms", by_hand);
    figures.note("preview_started_ms", all);
    figures.note("preview_start_added_ms", all - by_hand);
    while number(&mut conn, "select count(*) from previews where status = 'running'").await? < i64::try_from(LIVE)? {
        tokio::try_join!(host.preview(), host.preview())?;
    }
    execute(&mut conn, "select pg_stat_statements_reset()").await?;
    let from = Instant::now();
    sleep(COUNTED).await;
    let (syncs, writes) = (calls(&mut conn, SYNCS).await?, calls(&mut conn, WRITES).await?);
    let tails = calls(&mut conn, TAILS).await?;
    ensure!(syncs > 0.0, "no sync in a minute");
    figures.note(
        "live_previews",
        as_f64(usize::try_from(number(&mut conn, "select count(*) from previews where status = 'running'").await?)?),
    );
    figures.note("seconds_between_syncs", from.elapsed().as_secs_f64() / syncs);
    figures.note("writes_a_sync", writes / syncs);
    figures.note("log_writes_a_sync", tails / syncs);
    host.end().await?;
    board.end().await
}

async fn calls(conn: &mut sqlx::PgConnection, which: &str) -> anyhow::Result<f64> {
    let query = format!(
        "select coalesce(sum(calls), 0)::bigint from pg_stat_statements
        where toplevel and ({which}) and query not like '%pg_stat_statements%'
            and dbid = (select oid from pg_database where datname = current_database())"
    );
    Ok(as_f64(usize::try_from(number(conn, &query).await?)?))
}

fn ms(took: Duration) -> f64 {
    took.as_secs_f64() * 1000.0
}
