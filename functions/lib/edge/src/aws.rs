//! What only a function on Lambda has: settings that are secrets, fetched at the first call, and events instead of a socket.
//!
//! AWS's own SDK would be half of a function's zip and is not needed for one call. None of this runs outside of Lambda.

mod database_user;
pub mod lambda;
pub mod metrics;
mod secrets;
mod sign;
