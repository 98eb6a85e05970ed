//! What was measured, and what was hoped for.

use std::collections::BTreeMap;

/// Figures by name; of each as many as there were rounds.
#[derive(Default)]
pub struct Figures(BTreeMap<&'static str, Vec<f64>>);

impl Figures {
    /// Notes a figure.
    pub fn note(&mut self, name: &'static str, value: f64) {
        eprintln!("  {name} {value:.3}");
        self.0.entry(name).or_default().push(value);
    }

    /// The median of a figure; `None` if it was not measured.
    pub fn median(&self, name: &str) -> Option<f64> {
        self.0.get(name).and_then(|values| median(values.clone()))
    }

    /// The median over the rounds of one figure in terms of another of the same round.
    pub fn ratio(&self, of: &str, to: &str) -> Option<f64> {
        let pairs = self.0.get(of)?.iter().zip(self.0.get(to)?);
        median(pairs.map(|(of, to)| of / to).collect())
    }

    /// All medians.
    pub fn medians(&self) -> impl Iterator<Item = (&'static str, f64)> {
        self.0.iter().filter_map(|(name, values)| Some((*name, median(values.clone())?)))
    }
}

/// The value in the middle; of two, the mean.
fn median(mut values: Vec<f64>) -> Option<f64> {
    values.sort_by(f64::total_cmp);
    let middle = values.len() / 2;
    let upper = *values.get(middle)?;
    Some(if values.len() % 2 == 1 { upper } else { f64::midpoint(values[middle - 1], upper) })
}

/// The value below which this share of all is. `share` is between 0 and 1.
pub fn quantile(values: &mut [f64], share: f64) -> f64 {
    values.sort_by(f64::total_cmp);
    let below = values.iter().enumerate().filter(|(at, _)| as_f64(*at) < share * as_f64(values.len())).count();
    values.get(below.saturating_sub(1)).copied().unwrap_or(f64::NAN)
}

/// A count as a figure.
pub fn as_f64(count: usize) -> f64 {
    u32::try_from(count).map_or(f64::INFINITY, f64::from)
}

/// What is hoped of a figure, or of the ratio of two.
pub struct Goal {
    /// In words.
    pub words: &'static str,
    /// The figure.
    pub of: &'static str,
    /// What it is compared with.
    pub to: Option<&'static str>,
    /// The bound.
    pub bound: Bound,
}

/// A bound.
#[derive(Clone, Copy)]
pub enum Bound {
    /// This or more.
    AtLeast(f64),
    /// This or less.
    AtMost(f64),
    /// Less.
    Below(f64),
}

impl Bound {
    /// Whether a value is within.
    pub fn holds(self, value: f64) -> bool {
        match self {
            Self::AtLeast(bound) => value >= bound,
            Self::AtMost(bound) => value <= bound,
            Self::Below(bound) => value < bound,
        }
    }
}

impl Goal {
    /// The value that the goal is about.
    pub fn value(&self, figures: &Figures) -> Option<f64> {
        self.to.map_or_else(|| figures.median(self.of), |to| figures.ratio(self.of, to))
    }
}

const fn ratio(words: &'static str, of: &'static str, to: &'static str, bound: Bound) -> Goal {
    Goal { words, of, to: Some(to), bound }
}

/// What is hoped for.
pub const GOALS: [Goal; 9] = [
    ratio("HTTP pairs to bare pairs", "http_pairs_per_s", "bare_pairs_per_s", Bound::AtLeast(0.7)),
    ratio("HTTP pairs to our own statements", "http_pairs_per_s", "own_sql_pairs_per_s", Bound::AtLeast(0.85)),
    ratio("combined HTTP pairs to bare pairs", "http_combined_pairs_per_s", "bare_pairs_per_s", Bound::AtLeast(2.0)),
    ratio("claim p99, a million waiting to a thousand", "claim_p99_ms_1m", "claim_p99_ms_1k", Bound::AtMost(1.2)),
    ratio(
        "claim p99, a million skipped to a thousand",
        "claim_p99_ms_1m_skipped",
        "claim_p99_ms_1k",
        Bound::AtMost(1.2),
    ),
    ratio("log chunks to COPY, text", "log_mb_per_s", "copy_mb_per_s", Bound::AtLeast(0.7)),
    ratio("log chunks to COPY, random bytes", "log_random_mb_per_s", "copy_random_mb_per_s", Bound::AtLeast(0.7)),
    Goal { words: "idle sweep, ms", of: "idle_sweep_ms", to: None, bound: Bound::Below(5.0) },
    Goal { words: "heartbeats that are HOT, %", of: "heartbeat_hot_percent", to: None, bound: Bound::AtLeast(95.0) },
];

/// The same of previews.
pub const PREVIEW_GOALS: [Goal; 2] = [
    Goal {
        words: "what a preview adds to its service's start, ms",
        of: "preview_start_added_ms",
        to: None,
        bound: Bound::Below(100.0),
    },
    Goal {
        words: "sweep of 10,000 expired previews, ms",
        of: "expired_previews_swept_ms",
        to: None,
        bound: Bound::Below(2000.0),
    },
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn medians_and_quantiles_are_values_that_were_seen() {
        assert_eq!(median(vec![3.0, 1.0, 2.0]), Some(2.0));
        assert_eq!(median(vec![4.0, 1.0]), Some(2.5));
        assert_eq!(median(Vec::new()), None);
        let mut hundred: Vec<f64> = (1..=100).map(f64::from).collect();
        assert_eq!(quantile(&mut hundred, 0.5).total_cmp(&50.0), std::cmp::Ordering::Equal);
        assert_eq!(quantile(&mut hundred, 0.99).total_cmp(&99.0), std::cmp::Ordering::Equal);
    }
}
