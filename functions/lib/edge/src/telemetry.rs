//! Logs: readable on a terminal, JSON elsewhere when `CALLBOARD_LOG_FORMAT=json` or on Lambda.

use crate::config::BadSetting;
use std::io::{IsTerminal as _, stderr};
use tracing_subscriber::EnvFilter;

/// What is logged if `CALLBOARD_LOG` says nothing: our own lines, and of others what may need a person.
const FILTER: &str = "info,tokio_cron_scheduler=warn,sqlx::postgres::notice=warn";

/// Sets up logging for this process, once. `filter` is what `CALLBOARD_LOG` says, `format` what `CALLBOARD_LOG_FORMAT` does;
/// without it lines are JSON on Lambda and text elsewhere.
///
/// # Errors
///
/// [`BadSetting`] if one of them says nothing that can be.
pub fn start(filter: Option<&str>, format: Option<&str>, on_lambda: bool) -> Result<(), BadSetting> {
    let (filter, json) = (read_filter(filter)?, on_lambda | is_json(format)?);
    let lines = tracing_subscriber::fmt().with_env_filter(filter).with_writer(stderr).with_ansi(stderr().is_terminal());
    // A second start (tests) keeps the first one's settings.
    let _ = if json { lines.json().flatten_event(true).try_init() } else { lines.try_init() };
    Ok(())
}

fn read_filter(filter: Option<&str>) -> Result<EnvFilter, BadSetting> {
    let problem = "not a filter; give a level (error, warn, info, debug, trace), or levels by target: info,sqlx=debug";
    EnvFilter::try_new(filter.unwrap_or(FILTER)).map_err(|_| BadSetting::new("CALLBOARD_LOG", problem))
}

fn is_json(format: Option<&str>) -> Result<bool, BadSetting> {
    match format {
        None | Some("" | "text") => Ok(false),
        Some("json") => Ok(true),
        Some(_) => Err(BadSetting::new("CALLBOARD_LOG_FORMAT", "neither text nor json")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_filter_or_no_format_is_refused_by_name() {
        let name = |refused: Option<BadSetting>| refused.map_or("", |bad| bad.name);
        for (filter, refused) in [("info", ""), ("warn,sqlx=debug", ""), ("", ""), ("info=x=y", "CALLBOARD_LOG")] {
            assert_eq!(name(read_filter(Some(filter)).err()), refused, "{filter}");
        }
        for (format, refused) in [("text", ""), ("json", ""), ("", ""), ("JSON", "CALLBOARD_LOG_FORMAT")] {
            assert_eq!(name(is_json(Some(format)).err()), refused, "{format}");
        }
        assert_eq!((is_json(None), read_filter(None).is_ok()), (Ok(false), true));
    }
}
