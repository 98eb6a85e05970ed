//! What standard output is: a terminal with so many columns that can be painted, or none.

use crate::paint::Paint;
use std::io::{IsTerminal as _, stdout};

/// The columns of a terminal that does not say how many it has.
const USUAL: usize = 80;

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
        Self { paint: Paint(paint), columns: columns(), is_live: told().is_some() && !is_dumb }
    }
}

/// How many columns the terminal has now; none if standard output is none.
#[must_use]
pub fn columns() -> Option<usize> {
    wide(stdout().is_terminal(), told())
}

/// One that does not say its size, as a serial console or a container's, is a terminal all the same: what builds write must not
/// command it.
fn wide(is_terminal: bool, told: Option<usize>) -> Option<usize> {
    is_terminal.then(|| told.unwrap_or(USUAL))
}

/// What the terminal says of its columns.
fn told() -> Option<usize> {
    let size = if stdout().is_terminal() { terminal_size::terminal_size_of(stdout()) } else { None };
    size.map(|(terminal_size::Width(columns), _)| columns.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_terminal_that_does_not_say_its_size_is_one() {
        assert_eq!(wide(true, None), Some(USUAL));
        assert_eq!(wide(true, Some(100)), Some(100));
        assert_eq!(wide(false, None), None);
    }
}
