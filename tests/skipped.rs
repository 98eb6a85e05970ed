//! A test that can't run here is not one that passed. Runners hide what passed tests print, so that it is also written to a
//! file, for whoever started the tests to show at the end; and whoever needs it run says so.
//!
//! * `CALLBOARD_SKIPPED` names the file: a line is appended for each skipped test.
//! * `CALLBOARD_REQUIRE_SANDBOX=1`, or what else a test needs in its place, makes it fail instead.
//!
//! For test binaries to include: `#[path = "../../../tests/skipped.rs"] mod skipped;`

use std::fs::OpenOptions;
use std::io::Write as _;

/// Says that the calling test is skipped for want of `need`, a word such as `sandbox`, and what is the matter. To be called on
/// the test's own thread, which has its name.
pub(crate) fn skip(need: &str, why: &str) {
    let thread = std::thread::current();
    let test = thread.name().unwrap_or("a test");
    let line =
        format!("SKIPPED for want of {need}: {} {test}: {}\n", env!("CARGO_PKG_NAME"), why.trim().replace('\n', "; "));
    print!("{line}");
    let required = format!("CALLBOARD_REQUIRE_{}", need.to_uppercase());
    let is_required = std::env::var_os(&required).is_some_and(|value| !value.is_empty() && value != "0");
    assert!(!is_required, "{required} is set: {line}");
    if let Some(path) = std::env::var_os("CALLBOARD_SKIPPED") {
        let file = OpenOptions::new().create(true).append(true).open(&path);
        let written = file.and_then(|mut file| file.write_all(line.as_bytes()));
        written.unwrap_or_else(|error| panic!("the list of skipped tests {}: {error}", path.display()));
    }
}
