//! The worker: phones in to a Callboard's control plane, takes the oldest build, runs its steps sealed off, and calls
//! back until its end is acknowledged (SPEC.md, section 3).
//!
//! One loop per file: [`poll`] claims, [`run`] sees one build through, [`beat`] renews its lease, [`logs`] ship its
//! output, [`stop`] says why it is to end early, [`complete`] reports. Steps run behind [`isolation`]; each has a
//! [`guard`] that ends it when the worker can't.

pub mod api;
pub mod away;
pub mod backoff;
pub mod beat;
pub mod cli;
pub mod clock;
pub mod clone;
pub mod complete;
pub mod config;
pub mod course;
pub mod descriptors;
pub mod doctor;
pub mod egress;
pub mod equip;
pub mod exposed;
pub mod guard;
pub mod hand_over;
pub mod input;
pub mod isolation;
pub mod lease;
pub mod logs;
pub mod mark;
pub mod mask;
pub mod metrics;
pub mod network;
pub mod outcome;
pub mod poll;
pub mod previews;
pub mod probe;
pub mod proc;
pub mod protection;
pub mod recovery;
pub mod remains;
pub mod removal;
pub mod run;
pub mod runner;
pub mod script;
pub mod settings;
pub mod site;
#[cfg(test)]
#[path = "../../tests/skipped.rs"]
mod skipped;
pub mod stdin;
pub mod stop;
pub mod strays;
pub mod task;
pub mod tools;
pub mod trace;
pub mod worker;
pub mod workplace;
