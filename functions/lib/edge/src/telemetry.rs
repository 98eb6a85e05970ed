//! Logs: readable on a terminal, JSON elsewhere when `CALLBOARD_LOG_FORMAT=json` or on Lambda.

use tracing_subscriber::EnvFilter;

/// Sets up logging for this process, once. `filter` is what `CALLBOARD_LOG` says, `info` if nothing.
pub fn start(filter: Option<&str>, json: bool) {
    let filter = EnvFilter::try_new(filter.unwrap_or("info")).unwrap_or_else(|_| EnvFilter::new("info"));
    let lines = tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr);
    // A second start (tests) keeps the first one's settings.
    let _ = if json { lines.json().flatten_event(true).try_init() } else { lines.try_init() };
}
