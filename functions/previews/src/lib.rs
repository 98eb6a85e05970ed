//! Live previews: what their workspace does with them, and what hosts say of them and are told (SPEC.md, 4).
//!
//! Postgres holds what is wanted. No host is called: each calls in, is told what its previews are to become, and says what came
//! of it.

mod leases;
mod sync;
mod web;

use axum::extract::DefaultBodyLimit;
use edge::Routes;
use utoipa_axum::routes;

/// The largest sync: 1,000 reports, most of which say little.
const SYNC_MAX_BYTES: usize = 4 * 1024 * 1024;

/// The routes of this function.
pub fn routes() -> Routes {
    let sync = Routes::new().routes(routes!(sync::sync)).layer(DefaultBodyLimit::max(SYNC_MAX_BYTES));
    Routes::new()
        .routes(routes!(web::list))
        .routes(routes!(web::read, web::destroy))
        .routes(routes!(web::extend))
        .routes(routes!(leases::reconcile))
        .merge(sync)
}
