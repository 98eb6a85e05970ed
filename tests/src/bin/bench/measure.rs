//! The run: seeds, then rounds of every measure, one after the other, so that what the machine does meanwhile falls on all.

mod heartbeats;
mod latency;
mod logs;
mod pairs;
mod rounds;
mod sweep;

use crate::figures::Figures;
use crate::options::{Options, Part};
use crate::postgres::Postgres;
use crate::seed;

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
    say("seeding");
    seed::board(&postgres, EMPTY).await?;
    postgres.create(QUEUED, Some(EMPTY)).await?;
    seed::pending(&postgres, QUEUED, seed::EVERY, options.queued()).await?;
    postgres.settle(QUEUED).await?;
    let pairs = match options.wants(Part::Pairs) {
        true => Some(pairs::Pairs::prepare(&postgres, options).await?),
        false => None,
    };
    if options.wants(Part::Latency) {
        latency::prepare(&postgres, options).await?;
    }
    if options.wants(Part::Sweep) {
        sweep::prepare(&postgres, options).await?;
    }
    for round in 1..=options.rounds {
        say(&format!("round {round} of {}", options.rounds));
        if let Some(pairs) = &pairs {
            pairs.measure(&mut figures).await?;
        }
        if options.wants(Part::Logs) {
            logs::measure(&postgres, options, &mut figures).await?;
        }
        if options.wants(Part::Latency) {
            latency::measure(&postgres, options, &mut figures).await?;
        }
        if options.wants(Part::Sweep) {
            sweep::measure(&postgres, &mut figures).await?;
        }
        if options.wants(Part::Heartbeats) {
            heartbeats::measure(&postgres, options, &mut figures).await?;
        }
        if options.wants(Part::Statements) {
            rounds::measure(&postgres, &mut figures).await?;
        }
    }
    Ok(figures)
}

fn say(what: &str) {
    eprintln!("{what}");
}
