//! Logs: readable on a terminal, JSON elsewhere when `CALLBOARD_LOG_FORMAT=json` or on Lambda.

use std::io::{IsTerminal as _, stderr};
use tracing_subscriber::EnvFilter;

/// What is logged if `CALLBOARD_LOG` says nothing: our own lines, and of others what may need a person.
const FILTER: &str = "info,tokio_cron_scheduler=warn";

/// Sets up logging for this process, once. `filter` is what `CALLBOARD_LOG` says.
pub fn start(filter: Option<&str>, json: bool) {
    let filter = EnvFilter::try_new(filter.unwrap_or(FILTER)).unwrap_or_else(|_| EnvFilter::new(FILTER));
    let lines = tracing_subscriber::fmt().with_env_filter(filter).with_writer(stderr).with_ansi(stderr().is_terminal());
    // A second start (tests) keeps the first one's settings.
    let _ = if json { lines.json().flatten_event(true).try_init() } else { lines.try_init() };
}
