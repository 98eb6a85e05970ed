//! What workers, clients and functions say to each other: the serde types of SPEC.md, section 2.
//!
//! Web-app and operator requests refuse unknown fields; worker calls ignore them, since workers and functions are
//! upgraded apart.

pub mod admin;
pub mod build;
pub mod id;
pub mod log;
mod object;
pub mod pipeline;
pub mod pipeline_file;
pub mod pipeline_problems;
pub mod preview;
pub mod problem;
pub mod runner;
pub mod trace;
pub mod worker;
pub mod workspace;

pub use problem::{Code, Problem};
pub use rules::{CancelReason, EndReason, Status};

/// The OpenAPI document of all calls, as it is served at `/openapi.json`.
pub const OPENAPI: &str = include_str!("../openapi.json");
