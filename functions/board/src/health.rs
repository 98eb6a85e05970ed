//! Alive, ready, measured, described.

use axum::extract::State;
use axum::http::header::CONTENT_TYPE;
use axum::response::{IntoResponse, Response};
use edge::{Rejection, Shell};
use protocol::Problem;
use std::fmt::Write as _;
use store::gauges::{self, Gauges};

/// The document of all functions' routes, made from them; a test holds the two equal.
const OPENAPI: &str = protocol::OPENAPI;

/// Whether the function is alive.
#[utoipa::path(get, path = "/healthz", tag = "health", security(()), responses((status = 200, body = String)))]
pub(crate) async fn healthz() -> &'static str {
    "ok\n"
}

/// Whether the database answers and is migrated.
#[utoipa::path(
    get,
    path = "/readyz",
    tag = "health",
    security(()),
    responses((status = 200, body = String), (status = 503, description = "unavailable", body = Problem))
)]
pub(crate) async fn readyz(State(shell): State<Shell>) -> Result<&'static str, Rejection> {
    if shell.store.is_ready().await? { Ok("ok\n") } else { Err(Rejection::NotMigrated) }
}

/// The board's numbers, for Prometheus. No workspace is named.
#[utoipa::path(get, path = "/metrics", tag = "health", security(()), responses((status = 200, body = String)))]
pub(crate) async fn metrics(State(shell): State<Shell>) -> Result<Response, Rejection> {
    let gauges = gauges::read(&shell.store).await?;
    Ok(([(CONTENT_TYPE, "text/plain; version=0.0.4")], text(&gauges)).into_response())
}

#[expect(clippy::cast_precision_loss, reason = "a gauge is a float, and no board has 2^53 builds")]
fn text(gauges: &Gauges) -> String {
    let mut text = String::new();
    for (name, help, value) in [
        ("callboard_builds_pending", "Builds that wait.", Some(gauges.pending as f64)),
        ("callboard_builds_running", "Builds that run.", Some(gauges.running as f64)),
        (
            "callboard_workers",
            "Workers that asked for work in the last 2 minutes, or hold a build.",
            Some(gauges.workers as f64),
        ),
        ("callboard_builds_lapsed", "Running builds whose lease has lapsed.", Some(gauges.lapsed as f64)),
        (
            "callboard_oldest_pending_age_seconds",
            "How long the oldest build has waited.",
            gauges.oldest_pending_age_seconds,
        ),
        ("callboard_last_sweep_age_seconds", "How long ago the last sweep was.", gauges.last_sweep_age_seconds),
        ("callboard_previews_live", "Previews that start or run.", Some(gauges.previews_live as f64)),
        (
            "callboard_previews_destroying",
            "Previews that their hosts are to end.",
            Some(gauges.previews_destroying as f64),
        ),
        ("callboard_port_leases", "Ports that are leased for previews.", Some(gauges.port_leases as f64)),
    ] {
        if let Some(value) = value {
            let _ = writeln!(text, "# HELP {name} {help}\n# TYPE {name} gauge\n{name} {value}");
        }
    }
    text
}

/// This document.
#[utoipa::path(get, path = "/openapi.json", tag = "health", security(()), responses((status = 200, description = "OpenAPI 3.1")))]
pub(crate) async fn openapi() -> Response {
    ([(CONTENT_TYPE, "application/json")], OPENAPI).into_response()
}
