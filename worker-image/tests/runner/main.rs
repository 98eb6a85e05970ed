//! The runner as it is, with rooms that are real processes of the shim, and a real git server; only the board is a fake, and in the place of
//! containers are directories of this host.

#![allow(clippy::unwrap_used, reason = "a test that can not go on fails")]

mod board;
mod containers;
mod course;
mod doors;
mod ends;
mod first;
#[allow(dead_code, reason = "the worker's tests ask it for more")]
#[path = "../sealed/forge.rs"]
mod forge;
mod shims;
#[path = "../../../tests/skipped.rs"]
mod skipped;
mod stage;
