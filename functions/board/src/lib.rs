//! What web-apps and operators read and set up (SPEC.md, 2).

mod admin;
mod builds;
mod health;
mod live;
mod logs;
mod pipelines;
mod secrets;
mod workspace;

use edge::Routes;
use utoipa_axum::routes;

/// The routes of this function.
pub fn routes() -> Routes {
    Routes::new()
        .routes(routes!(pipelines::list))
        .routes(routes!(pipelines::put, pipelines::read, pipelines::delete))
        .routes(routes!(builds::list))
        .routes(routes!(builds::read))
        .routes(routes!(logs::read))
        .routes(routes!(secrets::list))
        .routes(routes!(secrets::put, secrets::delete))
        .routes(routes!(workspace::read))
        .routes(routes!(admin::workspaces))
        .routes(routes!(admin::put_workspace, admin::read_workspace))
        .routes(routes!(admin::put_plan, admin::read_plan, admin::delete_plan))
        .routes(routes!(admin::create_token, admin::tokens))
        .routes(routes!(admin::revoke_token))
        .routes(routes!(admin::workers))
        .routes(routes!(health::healthz))
        .routes(routes!(health::readyz))
        .routes(routes!(health::metrics))
        .routes(routes!(health::openapi))
}
