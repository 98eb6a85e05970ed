//! What can be typed.

use clap::{Parser, ValueEnum};
use std::path::PathBuf;
use std::time::Duration;

/// Measures the board beside Postgres, on a server of its own. See docs/performance.md.
#[derive(Clone, Debug, Parser)]
#[command(name = "./tests/run bench")]
pub struct Options {
    /// Write the figures to this file, as JSON.
    #[arg(long)]
    pub json: Option<PathBuf>,
    /// Rewrite the figures in docs/performance.md and the pictures beside it.
    #[arg(long)]
    pub docs: bool,
    /// How long each throughput is measured; other measures grow with it.
    #[arg(long, default_value_t = 10)]
    pub seconds: u32,
    /// How many rows "a million" is.
    #[arg(long, default_value_t = 1_000_000)]
    pub rows: u32,
    /// How often everything is measured; medians are shown.
    #[arg(long, default_value_t = 3)]
    pub rounds: u32,
    /// How many builds wait, for each second of a throughput: a queue that runs dry ends the run.
    #[arg(long, default_value_t = 25_000)]
    pub builds_per_second: u32,
    /// Measure only these; may be repeated.
    #[arg(long, value_enum)]
    pub only: Vec<Part>,
}

/// A part of the benchmark.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Part {
    /// Claim and complete, over HTTP and by pgbench.
    Pairs,
    /// How long a claim takes, with few and with many waiting.
    Latency,
    /// Log chunks beside COPY.
    Logs,
    /// A sweep with nothing to do.
    Sweep,
    /// Heartbeats of ten thousand builds.
    Heartbeats,
    /// Starts of previews, two hundred on one host, and a sweep of ten thousand; only where it is named.
    Previews,
    /// Statements per call.
    Statements,
}

impl Options {
    /// How long a throughput is measured.
    pub fn span(&self) -> Duration {
        Duration::from_secs(u64::from(self.seconds))
    }

    /// How many builds wait where a throughput is measured.
    pub fn queued(&self) -> u32 {
        self.builds_per_second.saturating_mul(self.seconds.saturating_add(1))
    }

    /// Whether a part is to be measured. Previews take minutes, for two hundred builds, and are to be named.
    pub fn wants(&self, part: Part) -> bool {
        (self.only.is_empty() && part != Part::Previews) || self.only.contains(&part)
    }
}
