//! The figures in docs/performance.md, and the pictures beside it.

use crate::chart::Chart;
use crate::figures::{Figures, GOALS};
use crate::options::Options;
use crate::report::{ROWS, bound, number};
use anyhow::Context as _;
use std::fmt::Write as _;
use std::path::Path;

/// What is between these lines is rewritten.
const BEGIN: &str = "<!-- figures: ./tests/run bench --docs -->\n";
const END: &str = "<!-- end of figures -->\n";

const CHARTS: [(&str, Chart); 3] = [
    (
        "pairs.svg",
        Chart {
            title: "Claim and complete, pairs a second",
            bars: &[
                ("bare pair, pgbench", "bare_pairs_per_s"),
                ("our statements, pgbench", "own_sql_pairs_per_s"),
                ("over HTTP", "http_pairs_per_s"),
                ("over HTTP, combined", "http_combined_pairs_per_s"),
            ],
        },
    ),
    (
        "claims.svg",
        Chart {
            title: "One claim over HTTP, milliseconds",
            bars: &[
                ("1,000 waiting, p50", "claim_p50_ms_1k"),
                ("1,000,000 waiting, p50", "claim_p50_ms_1m"),
                ("1,000,000 skipped, p50", "claim_p50_ms_1m_skipped"),
                ("1,000 waiting, p99", "claim_p99_ms_1k"),
                ("1,000,000 waiting, p99", "claim_p99_ms_1m"),
                ("1,000,000 skipped, p99", "claim_p99_ms_1m_skipped"),
            ],
        },
    ),
    (
        "logs.svg",
        Chart {
            title: "Log chunks, megabytes a second",
            bars: &[
                ("COPY, text", "copy_mb_per_s"),
                ("over HTTP, text", "log_mb_per_s"),
                ("COPY, random bytes", "copy_random_mb_per_s"),
                ("over HTTP, random bytes", "log_random_mb_per_s"),
            ],
        },
    ),
];

/// Rewrites the figures and the pictures.
///
/// # Errors
///
/// If a file can't be read or written, or has not the lines between which the figures stand.
pub fn write(figures: &Figures, options: &Options) -> anyhow::Result<()> {
    let docs = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs");
    std::fs::create_dir_all(docs.join("performance"))?;
    for (file, chart) in &CHARTS {
        std::fs::write(docs.join("performance").join(file), chart.draw(figures))?;
    }
    let page = docs.join("performance.md");
    let text = std::fs::read_to_string(&page)?;
    let (before, rest) = text.split_once(BEGIN).context("docs/performance.md has no place for figures")?;
    let (_, after) = rest.split_once(END).context("docs/performance.md has no end of figures")?;
    std::fs::write(&page, format!("{before}{BEGIN}{}{END}{after}", section(figures, options)?))?;
    Ok(())
}

fn section(figures: &Figures, options: &Options) -> anyhow::Result<String> {
    let Options { seconds, rounds, rows, .. } = options;
    let cores = std::thread::available_parallelism()?;
    let mut text = format!(
        "Medians of {rounds} rounds of {seconds} s on {cores} cores; a million is {}.\n\n| goal | measured | wanted |\n| --- | --- | --- |\n",
        number(f64::from(*rows))
    );
    for goal in &GOALS {
        let value = goal.value(figures);
        let met = if value.is_some_and(|value| goal.bound.holds(value)) { "" } else { " (missed)" };
        writeln!(text, "| {} | {}{met} | {} |", goal.words, shown(value), bound(goal.bound))?;
    }
    text.push_str("\n| figure | |\n| --- | --- |\n");
    for (name, words) in ROWS {
        writeln!(text, "| {words} | {} |", shown(figures.median(name)))?;
    }
    for (file, chart) in &CHARTS {
        write!(text, "\n![{}](performance/{file})\n", chart.title)?;
    }
    Ok(text)
}

fn shown(value: Option<f64>) -> String {
    value.map_or_else(|| "–".to_owned(), number)
}
