//! What is printed: text for people, JSON for programs, colours on a terminal alone.

use crate::answer::Answer;
use crate::args::Color;
use crate::paint::Paint;
use crate::table;
use serde_json::Value;
use std::io::{self, IsTerminal as _, Write as _, stdout};

/// How to print.
#[derive(Clone, Copy, Debug)]
pub struct Output {
    /// Whether JSON is wanted.
    pub json: bool,
    /// Whether to paint.
    pub paint: Paint,
    /// How many columns the terminal has, if it is one.
    pub columns: Option<usize>,
}

impl Output {
    /// As the options and the terminal have it.
    #[must_use]
    pub fn new(json: bool, color: Color) -> Self {
        let is_dumb = std::env::var_os("TERM").is_none_or(|term| term == "dumb");
        let is_wanted = || std::env::var_os("NO_COLOR").is_none_or(|no| no.is_empty()) && !is_dumb;
        let paint = match color {
            Color::Auto => stdout().is_terminal() && is_wanted(),
            Color::Always => true,
            Color::Never => false,
        };
        Self { json, paint: Paint(paint), columns: terminal_columns() }
    }

    /// Whether a line may be written over: on a terminal that can.
    #[must_use]
    pub fn is_live(self) -> bool {
        self.columns.is_some() && std::env::var_os("TERM").is_some_and(|term| term != "dumb")
    }

    /// Prints the board's own JSON, or else what `text` makes of it.
    ///
    /// # Errors
    ///
    /// If standard output is closed.
    pub fn print<T>(self, answer: &Answer<T>, text: impl FnOnce(&T) -> String) -> io::Result<()> {
        if self.json { self.line(&harmless(&answer.json)) } else { self.line(text(&answer.value).trim_end()) }
    }

    /// Says that something is done. For a program the exit code says it.
    ///
    /// # Errors
    ///
    /// If standard output is closed.
    pub fn done(self, text: &str) -> io::Result<()> {
        if self.json { Ok(()) } else { self.line(text) }
    }

    /// A table that fits.
    #[must_use]
    pub fn table(self, headings: &[&str], rows: &[Vec<String>]) -> String {
        table::table(headings, rows, self.paint, self.columns)
    }

    fn line(self, text: &str) -> io::Result<()> {
        writeln!(stdout(), "{text}")
    }
}

/// How many columns the terminal has now; none if standard output is none.
#[must_use]
pub fn terminal_columns() -> Option<usize> {
    let size = if stdout().is_terminal() { terminal_size::terminal_size_of(stdout()) } else { None };
    size.map(|(terminal_size::Width(columns), _)| columns.into())
}

/// JSON whose strings hold no control characters, not even those that JSON lets stand; to a program it is the same.
fn harmless(json: &Value) -> String {
    let text = format!("{json:#}");
    let escaped = |letter: char| match letter {
        '\n' => letter.to_string(),
        letter if letter.is_control() => format!("\\u{:04x}", u32::from(letter)),
        letter => letter.to_string(),
    };
    text.chars().map(escaped).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn json_controls_no_terminal_and_is_the_same_json() {
        let json = serde_json::json!({ "a": "\u{9b}2J\u{7f}\u{1b}\n" });
        let text = harmless(&json);
        assert!(!text.replace('\n', "").contains(char::is_control), "{text:?}");
        assert_eq!(serde_json::from_str::<Value>(&text).unwrap(), json);
    }
}
