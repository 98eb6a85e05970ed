//! Colours, where they are wanted.

use protocol::Status;
use protocol::build::StepStatus;
use unicode_width::UnicodeWidthChar as _;

/// Whether to paint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Paint(pub bool);

/// What marks the lines of a step, one after the other.
const STEPS: [&str; 6] = ["36", "35", "34", "33", "32", "96"];

impl Paint {
    /// For headings.
    #[must_use]
    pub fn bold(self, text: &str) -> String {
        self.with("1", text)
    }

    /// For what is less important.
    #[must_use]
    pub fn dim(self, text: &str) -> String {
        self.with("2", text)
    }

    /// For what marks the lines of the step at this place.
    #[must_use]
    pub fn step(self, at: usize, text: &str) -> String {
        self.with(STEPS[at % STEPS.len()], text)
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

    /// The status of a step in its colour.
    #[must_use]
    pub fn step_status(self, status: StepStatus) -> String {
        match status {
            StepStatus::Success => self.with("32", "success"),
            StepStatus::Failed => self.with("31", "failed"),
            StepStatus::TimedOut => self.with("31", "timed_out"),
            StepStatus::Cancelled => self.with("33", "cancelled"),
            StepStatus::Skipped => self.with("2", "skipped"),
        }
    }

    fn with(self, code: &str, text: &str) -> String {
        if self.0 { format!("\x1b[{code}m{text}\x1b[0m") } else { text.to_owned() }
    }
}

/// How many columns of a terminal a text takes; the sequences that colour it take none.
#[must_use]
pub fn width(text: &str) -> usize {
    cut(text, usize::MAX).1
}

/// A text that takes at most `columns`: cut, with `…` at its end, if it is longer. Colours stay.
#[must_use]
pub fn fit(text: &str, columns: usize) -> String {
    if width(text) <= columns {
        return text.to_owned();
    }
    let end = if text.contains('\x1b') { "\x1b[0m" } else { "" };
    format!("{}…{end}", cut(text, columns.saturating_sub(1)).0)
}

/// As much of a text as fits, and how wide that is.
fn cut(text: &str, columns: usize) -> (&str, usize) {
    let (mut inside, mut wide) = (false, 0);
    for (at, letter) in text.char_indices() {
        let takes = if inside || letter == '\x1b' { 0 } else { letter.width().unwrap_or(0) };
        inside = (inside || letter == '\x1b') && letter != 'm';
        if wide + takes > columns {
            return (&text[..at], wide);
        }
        wide += takes;
    }
    (text, wide)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn colours_take_no_room() {
        let cell = Paint(true).status(Status::Success);
        assert_eq!((width(&cell), cell.as_str()), (7, "\x1b[32msuccess\x1b[0m"));
        assert_eq!(Paint(false).status(Status::Success), "success");
    }

    #[test]
    fn what_is_too_long_is_cut_by_columns() {
        assert_eq!([fit("abcdef", 6), fit("abcdef", 5), fit("abcdef", 1)], ["abcdef", "abcd…", "…"]);
        assert_eq!((width("日本語"), fit("日本語", 5).as_str(), fit("日本語", 4).as_str()), (6, "日本…", "日…"));
        assert_eq!(fit("\x1b[32msuccess\x1b[0m", 4), "\x1b[32msuc…\x1b[0m");
    }
}
