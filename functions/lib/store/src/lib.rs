//! The only SQL of the project: a module per table, a query per function. Rust decides; SQL can only refuse.

pub mod billing;
pub mod builds;
pub mod claims;
pub mod endings;
pub mod fetches;
pub mod gauges;
pub mod listing;
pub mod log_pages;
pub mod logs;
pub mod migrations;
pub mod pipelines;
pub mod port_leases;
pub mod preview_cleanup;
pub mod preview_syncs;
pub mod previews;
pub mod reports;
pub mod secrets;
pub mod submissions;
pub mod sweeps;
pub mod task_stops;
mod time_limits;
pub mod tokens;
pub mod workers;
pub mod workspaces;

mod columns;
mod connections;
mod error;
mod executor;
mod held;
mod pool;

pub use error::Error;
pub use executor::Transaction;
/// A place where a test may let the process die. Nothing in builds without the feature `failpoints`.
pub use fail::fail_point;
pub use held::Statements;
pub use pool::Store;
