//! A build's log on its way to the board: bytes are read, masked, cut into chunks, kept until acknowledged, and sent.
//!
//! Nothing here makes a step wait, but for half a second once it sends an output elsewhere (`commands`): what the board does
//! not take is spooled to disk within a bound, and what goes past the bound is counted and named in a marker.

mod alive;
mod asides;
mod commands;
mod cue;
mod cut;
mod journal;
mod queue;
mod read;
mod ship;
mod spool;

pub use alive::Alive;
pub use asides::Place;
pub use commands::Commands;
pub use cue::Cue;
pub use cut::{cut, whole_chars};
pub use journal::Journal;
pub use read::{Outlet, Reading, Sink, read, read_to};
pub use ship::{Shipped, ship};
