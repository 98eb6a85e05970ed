//! The decisions of Callboard: states, lease, budget, what may run, the order of logs.
//!
//! Everything here is a pure function of its arguments. No I/O, no clock, no dice: instants, ids and randomness come
//! in as arguments, `now` is always the last one. What a rule decides here, the database repeats as a guard.

pub mod billing;
pub mod budget;
pub mod ending;
pub mod fairness;
pub mod fetch;
pub mod lease;
pub mod logs;
pub mod migrations;
pub mod pipeline;
pub mod preview;
pub mod report;
pub mod routing;
pub mod runnable;
pub mod status;
pub mod timing;
pub mod units;
pub mod variables;
pub mod waiting;

pub use status::{CancelReason, EndReason, Status};
pub use timing::Timing;
pub use units::{Seconds, Timestamp};
