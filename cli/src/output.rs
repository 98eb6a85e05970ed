//! What is printed: text for people, JSON for programs, colours on a terminal alone.

use crate::answer::Answer;
use crate::args::Color;
use localstack::paint::Paint;
use localstack::screen::Screen;
use localstack::{say, table};
use serde_json::Value;
use std::io;

/// How to print.
#[derive(Clone, Copy, Debug)]
pub struct Output {
    /// Whether JSON is wanted.
    pub json: bool,
    /// What standard output is.
    pub screen: Screen,
    /// Whether to paint.
    pub paint: Paint,
    /// How many columns the terminal has, if it is one.
    pub columns: Option<usize>,
}

impl Output {
    /// As the options and the terminal have it.
    #[must_use]
    pub fn new(json: bool, color: Color) -> Self {
        let painted = match color {
            Color::Auto => None,
            Color::Always => Some(true),
            Color::Never => Some(false),
        };
        let screen = Screen::new(painted);
        Self { json, screen, paint: screen.paint, columns: screen.columns }
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
        say::out(text)
    }
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
