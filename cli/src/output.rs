//! What is printed: tables for people, JSON for programs, colours on a terminal alone.

use crate::args::Color;
use protocol::Status;
use serde::Serialize;
use std::io::{IsTerminal as _, stdout};
use time::OffsetDateTime;

/// How to print.
#[derive(Clone, Copy, Debug)]
pub struct Output {
    /// Whether JSON is wanted.
    pub json: bool,
    paint: bool,
}

impl Output {
    /// As the options and the terminal have it.
    #[must_use]
    pub fn new(json: bool, color: Color) -> Self {
        let auto = || stdout().is_terminal() && std::env::var_os("NO_COLOR").is_none();
        let paint = match color {
            Color::Auto => auto(),
            Color::Always => true,
            Color::Never => false,
        };
        Self { json, paint }
    }

    /// Prints `value` as JSON, or else what `text` makes of it.
    ///
    /// # Errors
    ///
    /// If it can't be JSON.
    pub fn print<T: Serialize>(self, value: &T, text: impl FnOnce(&T) -> String) -> anyhow::Result<()> {
        if self.json {
            println!("{}", serde_json::to_string_pretty(value)?);
        } else {
            let text = text(value);
            println!("{}", text.trim_end());
        }
        Ok(())
    }

    /// A status in its colour.
    #[must_use]
    pub fn status(self, status: Status) -> String {
        let code = match status {
            Status::Pending | Status::Running => "36",
            Status::Success => "32",
            Status::Failed | Status::TimedOut => "31",
            Status::Cancelled => "33",
        };
        self.with(code, status.as_str())
    }

    fn with(self, code: &str, text: &str) -> String {
        if self.paint { format!("\x1b[{code}m{text}\x1b[0m") } else { text.to_owned() }
    }

    /// A table: a row of headings, then the rows, columns aligned; colours don't count.
    #[must_use]
    pub fn table(self, headings: &[&str], rows: &[Vec<String>]) -> String {
        let width_of = |column: usize| {
            rows.iter().map(|row| width(&row[column])).chain([width(headings[column])]).max().unwrap_or(0)
        };
        let widths: Vec<usize> = (0..headings.len()).map(width_of).collect();
        let line = |cells: &[String]| {
            let padded = cells.iter().zip(&widths).map(|(cell, wide)| {
                let fill = wide.saturating_sub(width(cell));
                format!("{cell}{}", " ".repeat(fill))
            });
            padded.collect::<Vec<_>>().join("  ").trim_end().to_owned()
        };
        let headings: Vec<String> = headings.iter().map(|heading| self.with("1", heading)).collect();
        std::iter::once(line(&headings)).chain(rows.iter().map(|row| line(row))).collect::<Vec<_>>().join("\n")
    }
}

/// How wide a text is, without the sequences that colour it.
fn width(text: &str) -> usize {
    let mut inside = false;
    let visible = |letter: &char| {
        let counts = !inside && *letter != '\x1b';
        inside = (inside || *letter == '\x1b') && *letter != 'm';
        counts
    };
    text.chars().filter(visible).count()
}

/// Text of a stranger on one line: no control characters.
#[must_use]
pub fn plain(text: &str) -> String {
    text.chars().map(|letter| if letter.is_control() { ' ' } else { letter }).collect()
}

/// How long ago, in words.
#[must_use]
pub fn ago(at: OffsetDateTime, now: OffsetDateTime) -> String {
    match (now - at).whole_seconds().max(0) {
        seconds @ 0..60 => format!("{seconds} s ago"),
        seconds @ 60..3600 => format!("{} min ago", seconds / 60),
        seconds @ 3600..172_800 => format!("{} h ago", seconds / 3600),
        seconds => format!("{} d ago", seconds / 86_400),
    }
}

/// This machine's clock, which decides nothing: only how long ago something was.
#[must_use]
pub fn now() -> OffsetDateTime {
    #[expect(clippy::disallowed_methods)]
    std::time::SystemTime::now().into()
}

/// A duration, in words.
#[must_use]
pub fn took(ms: u64) -> String {
    match ms / 1000 {
        seconds @ 0..60 => format!("{seconds}.{} s", ms % 1000 / 100),
        seconds @ 60..3600 => format!("{} min {} s", seconds / 60, seconds % 60),
        seconds => format!("{} h {} min", seconds / 3600, seconds % 3600 / 60),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PLAIN: Output = Output { json: false, paint: false };

    #[test]
    fn columns_are_as_wide_as_their_widest_cell_and_lines_end_without_spaces() {
        let rows = [vec!["a".into(), "long cell".into()], vec!["wider".into(), "b".into()]];
        assert_eq!(PLAIN.table(&["X", "Y"], &rows), "X      Y\na      long cell\nwider  b");
    }

    #[test]
    fn colours_do_not_widen_a_column() {
        let painted = Output { json: false, paint: true };
        let cell = painted.status(Status::Success);
        assert_eq!((width(&cell), cell.as_str()), (7, "\x1b[32msuccess\x1b[0m"));
        assert_eq!(PLAIN.status(Status::Success), "success");
    }

    #[test]
    fn times_and_durations_read_well_at_their_edges() {
        let now = OffsetDateTime::UNIX_EPOCH + time::Duration::days(10);
        let before = |seconds| ago(now - time::Duration::seconds(seconds), now);
        assert_eq!(
            [before(-5), before(59), before(60), before(3599)],
            ["0 s ago", "59 s ago", "1 min ago", "59 min ago"]
        );
        assert_eq!([before(3600), before(172_799), before(172_800)], ["1 h ago", "47 h ago", "2 d ago"]);
        assert_eq!([took(0), took(1250), took(60_000), took(3_661_000)], ["0.0 s", "1.2 s", "1 min 0 s", "1 h 1 min"]);
    }

    #[test]
    fn a_strangers_text_controls_nothing() {
        assert_eq!(plain("a\x1b[2Jb\nc"), "a [2Jb c");
    }
}
