//! The promises of SPEC.md, held against real Postgres: handlers in this process, a fresh database for each test.

#![allow(clippy::disallowed_methods, reason = "tests state their own SQL, to see what is really stored")]

pub(crate) use callboard_tests::{Board, billing as reference, scenario};

#[path = "../skipped.rs"]
mod skipped;

mod admission;
mod billing;
mod board;
mod bodies;
mod boundaries;
mod cancels;
mod checks;
mod claims;
mod connections;
mod database;
mod endings;
mod fair;
mod faults;
mod fetches;
mod ids;
mod lambda;
mod lean;
mod leases;
mod logs;
mod migrations;
mod outages;
mod previews;
mod races;
mod reports;
mod round_trips;
mod routing;
mod senders;
mod silence;
mod sweeps;
mod workers;
