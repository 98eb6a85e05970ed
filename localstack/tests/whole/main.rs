//! Whole builds and previews on a whole stack: real Postgres, real functions, the real worker, real sandboxes, a repository over
//! https.

mod builds;
mod command;
mod contained;
mod killed;
mod previews;
mod scene;
#[path = "../../../tests/skipped.rs"]
mod skipped;
mod traces;
mod up;
