//! What every function has in common at its edge: configuration, tokens, plans, JSON, errors as statuses, telemetry, and
//! how it is served, on Lambda or on a socket.

pub mod auth;
pub mod aws;
pub mod billing;
pub mod combine;
pub mod config;
pub mod json;
pub mod listen;
pub mod log_token;
mod missing;
pub mod path;
pub mod place;
mod query;
pub mod rejection;
pub mod request;
pub mod seal;
mod sender;
pub mod serve;
pub mod shell;
pub mod telemetry;

pub use auth::{Api, Operator, WorkerToken};
pub use aws::metrics::{Metric, Metrics};
pub use aws::tasks::Tasks;
pub use billing::Billing;
pub use combine::Combiner;
pub use config::Config;
pub use json::Json;
pub use log_token::Runner;
pub use rejection::Rejection;
pub use serve::{app, main, scheduled_main};
pub use shell::Shell;

/// The routes of a function, with their part of the OpenAPI document.
pub type Routes = utoipa_axum::router::OpenApiRouter<Shell>;
