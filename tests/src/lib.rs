//! What the tests share: a board to tell stories on.
//!
//! Time passes by moving what the database stored, never by sleeping: [`Board::age`] makes a build older than it is.

#![allow(clippy::disallowed_methods, reason = "tests state their own SQL, to see what is really stored")]

pub mod billing;
mod database;
pub mod document;
pub mod fairness;
pub mod scenario;
pub mod stored;

pub use database::url;
pub use scenario::Board;
