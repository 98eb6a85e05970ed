//! The figures in docs/performance.md, and the pictures beside it.

use crate::chart::Chart;
use crate::figures::{Figures, GOALS, Goal, PREVIEW_GOALS};
use crate::options::Options;
use crate::report::{PREVIEW_ROWS, ROWS, bound, number};
use anyhow::Context as _;
use std::fmt::Write as _;
use std::path::Path;

/// What is between one of these lines and the next end is rewritten.
const BEGIN: &str = "<!-- figures: ./tests/run bench --docs -->\n";
const PREVIEWS_BEGIN: &str = "<!-- figures: ./tests/run bench --only previews --docs -->\n";
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

/// Rewrites the figures that were measured, and their pictures. Those of previews stand by themselves, since they are measured so.
///
/// # Errors
///
/// If a file can't be read or written, or has not the lines between which the figures stand.
pub fn write(figures: &Figures, options: &Options) -> anyhow::Result<()> {
    let docs = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs");
    let page = docs.join("performance.md");
    let mut text = std::fs::read_to_string(&page)?;
    let is_measured = |rows: &[(&str, &str)]| rows.iter().any(|(name, _)| figures.median(name).is_some());
    if is_measured(&ROWS) {
        std::fs::create_dir_all(docs.join("performance"))?;
        for (file, chart) in &CHARTS {
            std::fs::write(docs.join("performance").join(file), chart.draw(figures))?;
        }
        text = replaced(&text, BEGIN, &all(figures, options)?)?;
    }
    if is_measured(&PREVIEW_ROWS) {
        text = replaced(&text, PREVIEWS_BEGIN, &previews(figures, options)?)?;
    }
    Ok(std::fs::write(&page, text)?)
}

/// `page` with `section` in place of what stood between `begin` and the next end.
fn replaced(page: &str, begin: &str, section: &str) -> anyhow::Result<String> {
    let (before, rest) = page.split_once(begin).context("docs/performance.md has no place for figures")?;
    let (_, after) = rest.split_once(END).context("docs/performance.md has no end of figures")?;
    Ok(format!("{before}{begin}{section}{END}{after}"))
}

fn all(figures: &Figures, options: &Options) -> anyhow::Result<String> {
    let Options { seconds, rounds, rows, .. } = options;
    let (cores, rows) = (std::thread::available_parallelism()?, number(f64::from(*rows)));
    let mut text = format!("Medians of {rounds} rounds of {seconds} s on {cores} cores; a million is {rows}.\n");
    text.push_str(&tables(figures, &GOALS, &ROWS)?);
    for (file, chart) in &CHARTS {
        write!(text, "\n![{}](performance/{file})\n", chart.title)?;
    }
    Ok(text)
}

fn previews(figures: &Figures, options: &Options) -> anyhow::Result<String> {
    let cores = std::thread::available_parallelism()?;
    let rounds = match options.rounds {
        1 => "One round".to_owned(),
        rounds => format!("Medians of {rounds} rounds"),
    };
    Ok(format!("{rounds} on {cores} cores.\n{}", tables(figures, &PREVIEW_GOALS, &PREVIEW_ROWS)?))
}

fn tables(figures: &Figures, goals: &[Goal], rows: &[(&str, &str)]) -> anyhow::Result<String> {
    let mut text = String::from("\n| goal | measured | wanted |\n| --- | --- | --- |\n");
    for goal in goals {
        let value = goal.value(figures);
        let met = if value.is_some_and(|value| goal.bound.holds(value)) { "" } else { " (missed)" };
        writeln!(text, "| {} | {}{met} | {} |", goal.words, shown(value), bound(goal.bound))?;
    }
    text.push_str("\n| figure | |\n| --- | --- |\n");
    for (name, words) in rows {
        writeln!(text, "| {words} | {} |", shown(figures.median(name)))?;
    }
    Ok(text)
}

fn shown(value: Option<f64>) -> String {
    value.map_or_else(|| "–".to_owned(), number)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_are_written_where_their_own_stood_and_nothing_else_changes() {
        let page = format!("a\n{BEGIN}1\n{END}b\n{PREVIEWS_BEGIN}2\n{END}c\n");
        let written = format!("a\n{BEGIN}1\n{END}b\n{PREVIEWS_BEGIN}3\n{END}c\n");
        assert_eq!(replaced(&page, PREVIEWS_BEGIN, "3\n").unwrap(), written);
        assert!(replaced("a\n", BEGIN, "1\n").is_err());
    }
}
