//! Durations as people write them: `90s`, `10m`, `1h30m`.

use crate::pipeline_problems::TIMEOUT_MAX_SECONDS;
use std::fmt;

/// What is wrong with a duration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BadDuration {
    /// Not numbers with units.
    Malformed,
    /// Nothing at all.
    Zero,
    /// More than a day.
    TooLong,
}

impl fmt::Display for BadDuration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Malformed => "is not a duration; write 90s, 10m or 1h",
            Self::Zero => "is no time at all; write at least 1s",
            Self::TooLong => "is longer than a day (24h)",
        })
    }
}

/// Reads a duration: hours, minutes and seconds in this order, each at most once, at least one of them. Returns seconds,
/// 1 to 86,400.
///
/// # Errors
///
/// What is wrong with it.
pub fn parse_duration(text: &str) -> Result<u32, BadDuration> {
    let mut rest = text;
    let mut total: u32 = 0;
    for (unit, seconds) in [('h', 3600), ('m', 60), ('s', 1)] {
        let Some((count, after)) = rest.split_once(unit) else { continue };
        total = total.saturating_add(number(count)?.saturating_mul(seconds));
        rest = after;
    }
    match total {
        _ if !rest.is_empty() || text.is_empty() => Err(BadDuration::Malformed),
        0 => Err(BadDuration::Zero),
        1..=TIMEOUT_MAX_SECONDS => Ok(total),
        _ => Err(BadDuration::TooLong),
    }
}

fn number(digits: &str) -> Result<u32, BadDuration> {
    if digits.is_empty() || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err(BadDuration::Malformed);
    }
    Ok(digits.parse().unwrap_or(u32::MAX))
}

/// Writes `seconds` so that [`parse_duration`] reads the same: 5400 is `1h30m`.
#[must_use]
pub fn spell_duration(seconds: u32) -> String {
    let parts = [(seconds / 3600, 'h'), (seconds / 60 % 60, 'm'), (seconds % 60, 's')];
    parts.iter().filter(|(count, _)| *count > 0).map(|(count, unit)| format!("{count}{unit}")).collect()
}
