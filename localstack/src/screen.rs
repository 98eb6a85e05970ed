//! What standard output is: a terminal with so many columns that can be painted, or none.

use crate::paint::Paint;
use std::io::{IsTerminal as _, stdout};

/// How to show things.
#[derive(Clone, Copy, Debug)]
pub struct Screen {
    /// Whether to paint.
    pub paint: Paint,
    /// How many columns there are, if it is a terminal.
    pub columns: Option<usize>,
    /// Whether a line may be written over: on a terminal that can.
    pub is_live: bool,
}

impl Screen {
    /// Standard output as it is. `painted` overrules what the terminal and NO_COLOR say.
    #[must_use]
    pub fn new(painted: Option<bool>) -> Self {
        let is_dumb = std::env::var_os("TERM").is_none_or(|term| term == "dumb");
        let wanted = std::env::var_os("NO_COLOR").is_none_or(|no| no.is_empty()) && !is_dumb;
        let paint = painted.unwrap_or_else(|| stdout().is_terminal() && wanted);
        let columns = columns();
        Self { paint: Paint(paint), columns, is_live: columns.is_some() && !is_dumb }
    }
}

/// How many columns the terminal has now; none if standard output is none.
#[must_use]
pub fn columns() -> Option<usize> {
    let size = if stdout().is_terminal() { terminal_size::terminal_size_of(stdout()) } else { None };
    size.map(|(terminal_size::Width(columns), _)| columns.into())
}
