//! The run: seeds, then rounds of every measure, one after the other, so that what the machine does meanwhile falls on all.

mod heartbeats;
mod latency;
mod logs;
mod pairs;
mod previews;
mod rounds;
mod sweep;

use crate::figures::Figures;
use crate::options::{Options, Part};
use crate::postgres::Postgres;
use crate::seed;
use pairs::Pairs;

/// A database with its tenants and nothing else.
const EMPTY: &str = "empty";
/// The same with a queue for every tenant.
const QUEUED: &str = "queued";

/// Measures all that is wanted.
///
/// # Errors
///
/// If something can't be run, an answer is not the one it should be, or what is stored does not hold together.
pub async fn all(options: &Options) -> anyhow::Result<Figures> {
    let postgres = Postgres::start().await?;
    let mut figures = Figures::default();
    eprintln!("seeding");
    let pairs = prepare(&postgres, options).await?;
    for number in 1..=options.rounds {
        eprintln!("round {number} of {}", options.rounds);
        round(&postgres, options, pairs.as_ref(), &mut figures).await?;
    }
    for database in [latency::DATABASES.as_slice(), &[sweep::DATABASE]].concat() {
        if postgres.has(database).await? {
            seed::check(&postgres, database).await?;
        }
    }
    Ok(figures)
}

async fn prepare<'a>(postgres: &'a Postgres, options: &Options) -> anyhow::Result<Option<Pairs<'a>>> {
    seed::board(postgres, EMPTY).await?;
    postgres.create(QUEUED, Some(EMPTY)).await?;
    seed::pending(postgres, QUEUED, seed::EVERY, options.queued()).await?;
    postgres.settle(QUEUED).await?;
    if options.wants(Part::Latency) {
        latency::prepare(postgres, options).await?;
    }
    if options.wants(Part::Sweep) {
        sweep::prepare(postgres, options).await?;
    }
    Ok(if options.wants(Part::Pairs) { Some(Pairs::prepare(postgres, options).await?) } else { None })
}

async fn round(
    postgres: &Postgres,
    options: &Options,
    pairs: Option<&Pairs<'_>>,
    figures: &mut Figures,
) -> anyhow::Result<()> {
    if let Some(pairs) = pairs {
        pairs.measure(figures).await?;
    }
    if options.wants(Part::Logs) {
        logs::measure(postgres, options, figures).await?;
    }
    if options.wants(Part::Latency) {
        latency::measure(postgres, options, figures).await?;
    }
    if options.wants(Part::Sweep) {
        sweep::measure(postgres, options, figures).await?;
    }
    if options.wants(Part::Heartbeats) {
        heartbeats::measure(postgres, options, figures).await?;
    }
    if options.wants(Part::Previews) {
        previews::measure(postgres, figures).await?;
    }
    if options.wants(Part::Statements) {
        rounds::measure(postgres, figures).await?;
    }
    Ok(())
}
