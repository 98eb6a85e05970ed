//! Callboard on one machine: an embedded Postgres, every function on one loopback port, the schedule, a worker.
//!
//! The functions are the very routes that Lambda serves; there is no second path.

// `println!` panics where nobody reads; `say` does not.
#![deny(clippy::print_stdout, clippy::print_stderr)]

pub mod clean;
pub mod client;
pub mod database;
pub mod demo;
mod download;
pub mod follow;
mod fresh;
pub mod git_https;
pub mod input;
mod keep;
pub mod keys;
pub mod leftovers;
pub mod lock;
pub mod migrate;
pub mod paint;
pub mod postgres;
pub mod propose;
pub mod receipt;
pub mod say;
mod schedule;
pub mod screen;
mod signals;
pub mod spell;
pub mod stack;
pub mod table;
pub mod tokens;
pub mod up;
pub mod worker;

pub use database::Database;
pub use demo::{DemoOptions, demo};
pub use migrate::migrate;
pub use stack::{Options, Stack};
pub use up::{GivenUp, UpOptions, default_dir, up};

/// Writes what happens to standard error, as much of it as `CALLBOARD_LOG` says.
///
/// # Errors
///
/// If it, or `CALLBOARD_LOG_FORMAT`, says nothing that can be.
pub fn log_to_stderr() -> Result<(), edge::config::BadSetting> {
    // The process's own setting, read once.
    #[expect(clippy::disallowed_methods)]
    let (filter, format) = (std::env::var("CALLBOARD_LOG").ok(), std::env::var("CALLBOARD_LOG_FORMAT").ok());
    edge::telemetry::start(filter.as_deref(), format.as_deref(), false)
}

/// Every function's routes, merged.
#[must_use]
pub fn routes() -> edge::Routes {
    admission::routes()
        .merge(board::routes())
        .merge(claim::routes())
        .merge(complete::routes())
        .merge(heartbeat::routes())
        .merge(logs::routes())
        .merge(previews::routes())
        .merge(reaper::routes())
}
