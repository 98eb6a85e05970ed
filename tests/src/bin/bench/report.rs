//! The figures as a table for people, and as JSON.

use crate::docs;
use crate::figures::{Bound, Figures, GOALS, PREVIEW_GOALS};
use crate::options::Options;
use anyhow::Context as _;
use serde_json::{Map, Value};
use std::fmt::Write as _;

/// What each figure is, in the order of the table.
pub const ROWS: [(&str, &str); 32] = [
    ("bare_pairs_per_s", "bare claim + complete, pgbench, a second"),
    ("own_sql_pairs_per_s", "our statements, pgbench, a second"),
    ("http_pairs_per_s", "claim + complete over HTTP, 16 connections, a second"),
    ("http_combined_pairs_per_s", "the same combined, 64 connections, a second"),
    ("bare_postgres_us_per_pair", "a bare pair's processor time, Postgres, µs"),
    ("own_sql_postgres_us_per_pair", "a pair of our statements', Postgres, µs"),
    ("http_postgres_us_per_pair", "an HTTP pair's, Postgres, µs"),
    ("http_server_us_per_pair", "an HTTP pair's, server, µs"),
    ("http_client_us_per_pair", "an HTTP pair's, client, µs"),
    ("http_combined_postgres_us_per_pair", "a combined pair's, Postgres, µs"),
    ("http_combined_server_us_per_pair", "a combined pair's, server, µs"),
    ("http_combined_client_us_per_pair", "a combined pair's, client, µs"),
    ("claim_p50_ms_1k", "claim, 1,000 waiting, p50 ms"),
    ("claim_p99_ms_1k", "claim, 1,000 waiting, p99 ms"),
    ("claim_p50_ms_1m", "claim, 1,000,000 waiting, p50 ms"),
    ("claim_p99_ms_1m", "claim, 1,000,000 waiting, p99 ms"),
    ("claim_p50_ms_1m_skipped", "claim, 1,000,000 waiting in a skipped workspace, p50 ms"),
    ("claim_p99_ms_1m_skipped", "claim, 1,000,000 waiting in a skipped workspace, p99 ms"),
    ("claim_p50_ms_1k_combined", "a lone claim of the combining stack, p50 ms"),
    ("claim_p99_ms_1k_combined", "a lone claim of the combining stack, p99 ms"),
    ("log_mb_per_s", "log chunks over HTTP, text, MB/s"),
    ("copy_mb_per_s", "COPY of the same, MB/s"),
    ("log_random_mb_per_s", "log chunks over HTTP, random bytes, MB/s"),
    ("copy_random_mb_per_s", "COPY of the same, MB/s"),
    ("idle_sweep_ms", "idle sweep beside 1,000,000 finished, ms"),
    ("heartbeats_per_s", "heartbeats a second, of 10,000 builds"),
    ("heartbeat_hot_percent", "heartbeats that are HOT, %"),
    ("heartbeat_cpu_percent", "what they take of a processor, Postgres and server, %"),
    ("statements_per_claim", "statements a claim"),
    ("statements_per_complete", "statements a complete"),
    ("statements_per_heartbeat", "statements a heartbeat"),
    ("statements_per_log_batch", "statements a batch of log chunks"),
];

/// The same of previews.
pub const PREVIEW_ROWS: [(&str, &str); 8] = [
    ("service_by_hand_ms", "a preview's service by hand, start to answer, ms"),
    ("preview_started_ms", "the same as a preview, build's end to running, ms"),
    ("preview_start_added_ms", "what a preview adds to its service's start, ms"),
    ("live_previews", "live previews on one host"),
    ("seconds_between_syncs", "seconds between its syncs, each one request"),
    ("writes_a_sync", "statements that write states, of a sync beside its first"),
    ("log_writes_a_sync", "the same, that write what services have logged"),
    ("expired_previews_swept_ms", "sweep of 10,000 expired previews, ms"),
];

/// Shows the figures, and writes what was asked for.
///
/// # Errors
///
/// If a file can't be written.
pub fn write(figures: &Figures, options: &Options) -> anyhow::Result<()> {
    print!("{}", text(figures)?);
    if let Some(file) = &options.json {
        std::fs::write(file, json(figures)?).with_context(|| format!("{} can't be written", file.display()))?;
    }
    if options.docs { docs::write(figures, options) } else { Ok(()) }
}

fn text(figures: &Figures) -> anyhow::Result<String> {
    let mut text = String::new();
    for (name, words) in ROWS.into_iter().chain(PREVIEW_ROWS) {
        if let Some(value) = figures.median(name) {
            writeln!(text, "{words:<58}{:>12}", number(value))?;
        }
    }
    writeln!(text, "\n{:<58}{:>12}{:>10}", "goal", "measured", "wanted")?;
    for goal in GOALS.iter().chain(&PREVIEW_GOALS) {
        if let Some(value) = goal.value(figures) {
            let met = if goal.bound.holds(value) { "" } else { "  missed" };
            writeln!(text, "{:<58}{:>12}{:>10}{met}", goal.words, number(value), bound(goal.bound))?;
        }
    }
    Ok(text)
}

fn json(figures: &Figures) -> anyhow::Result<String> {
    let rounded = |value: f64| Value::from((value * 1000.0).round() / 1000.0);
    let all: Map<String, Value> = figures.medians().map(|(name, value)| (name.to_owned(), rounded(value))).collect();
    Ok(serde_json::to_string_pretty(&all)? + "\n")
}

/// A bound in words.
pub fn bound(bound: Bound) -> String {
    match bound {
        Bound::AtLeast(value) => format!("≥ {}", number(value)),
        Bound::AtMost(value) => format!("≤ {}", number(value)),
        Bound::Below(value) => format!("< {}", number(value)),
    }
}

/// A number with as many digits as matter: 12,345 · 123 · 12.3 · 1.23.
pub fn number(value: f64) -> String {
    if value >= 1000.0 {
        let digits = format!("{value:.0}");
        return grouped(&digits);
    }
    let places = [100.0, 10.0].iter().filter(|bound| value < **bound).count();
    format!("{value:.places$}")
}

fn grouped(digits: &str) -> String {
    let mut text = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_the_digits_that_matter() {
        assert_eq!([1_234_567.4, 999.6, 12.34, 0.756].map(number), ["1,234,567", "1000", "12.3", "0.76"]);
    }

    #[test]
    fn every_goal_is_about_figures_of_the_table() {
        for (goals, rows) in [(&GOALS[..], &ROWS[..]), (&PREVIEW_GOALS, &PREVIEW_ROWS)] {
            for name in goals.iter().flat_map(|goal| [Some(goal.of), goal.to]).flatten() {
                assert!(rows.iter().any(|(row, _)| *row == name), "{name}");
            }
        }
    }
}
