//! The fake's promises, with real containers of busybox.

#![allow(clippy::unwrap_used, reason = "a test that can not go on fails")]

#[path = "../../skipped.rs"]
mod skipped;

mod containers;
mod endings;
mod faults;
mod itself;
mod life;
mod order;
mod requests;
mod shape;
mod stand;
mod volumes;
