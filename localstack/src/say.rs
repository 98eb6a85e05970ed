//! Lines for the person at the terminal. None of them panics: who reads them may be gone (`| head`), and so may the
//! terminal.

use std::fmt::Display;
use std::io::{self, Write as _, stderr, stdout};

/// A line on standard output.
///
/// # Errors
///
/// If nobody reads it.
pub fn out(line: impl Display) -> io::Result<()> {
    writeln!(stdout(), "{line}")
}

/// A line on standard error. That nobody reads it is no reason to end anything.
pub fn err(line: impl Display) {
    let _ = writeln!(stderr(), "{line}");
}
