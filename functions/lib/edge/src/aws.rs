//! What only a function on Lambda has: settings that are secrets, fetched at the first call, events instead of a socket, and tasks to stop.
//!
//! AWS's own SDK would be half of a function's zip and is not needed for three calls. None of this runs outside of Lambda.

mod database_user;
pub mod lambda;
pub mod metrics;
mod secrets;
mod service;
mod sign;
pub mod tasks;
