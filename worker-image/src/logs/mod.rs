//! A build's log on its way to the board: bytes are read, masked, cut into chunks, kept until acknowledged, and sent.
//!
//! Nothing here ever makes a step wait: what the board does not take is spooled to disk within a bound, and what goes
//! past the bound is counted and named in a marker.

mod asides;
mod cue;
mod cut;
mod journal;
mod queue;
mod read;
mod ship;
mod spool;

pub use asides::Place;
pub use cue::Cue;
pub use cut::{cut, whole_chars};
pub use journal::Journal;
pub use read::{Outlet, Reading, Sink, read, read_to};
pub use ship::{Shipped, ship};
