//! The same routes behind Lambda and behind a socket.

use crate::aws::lambda;
use crate::config::BadSetting;
use crate::query::Calls;
use crate::request::Around;
use crate::{Config, Rejection, Routes, Shell, listen, request, telemetry};
use axum::Router;
use axum::extract::DefaultBodyLimit;
use axum::middleware::from_fn_with_state;
use std::error::Error;
use std::sync::Arc;
use tower_http::catch_panic::CatchPanicLayer;
use utoipa::openapi::path::Operation;
use utoipa::openapi::security::{Http, HttpAuthScheme, SecurityRequirement, SecurityScheme};
use utoipa::openapi::{ContentBuilder, Info, OpenApi, Ref, RefOr, ResponseBuilder};

/// The largest body that any call takes, unless its route says otherwise: 1 MiB.
pub const BODY_MAX_BYTES: usize = 1024 * 1024;

const PROBLEM_TYPE: &str = "application/problem+json";

/// The OpenAPI document of `routes`: what each of them says of itself, and that they want a bearer token.
#[must_use]
pub fn document(routes: Routes) -> OpenApi {
    let (_, mut document) = routes.split_for_parts();
    document.info = Info::new("Callboard", env!("CARGO_PKG_VERSION"));
    document.info.description = Some("A build queue and a worker fleet.".into());
    let components = document.components.get_or_insert_default();
    components.add_security_scheme("token", SecurityScheme::Http(Http::new(HttpAuthScheme::Bearer)));
    document.security = Some(vec![SecurityRequirement::new("token", Vec::<String>::new())]);
    for item in document.paths.paths.values_mut() {
        let operations = [&mut item.get, &mut item.put, &mut item.post, &mut item.delete];
        for operation in operations.into_iter().flatten() {
            add_common_refusals(operation);
            call_problems_by_their_type(operation);
        }
    }
    document
}

/// Refusals are `application/problem+json`, which the routes' own words can't say.
fn call_problems_by_their_type(operation: &mut Operation) {
    let refusals = operation.responses.responses.iter_mut().filter(|(status, _)| status.as_str() >= "400");
    for (_, response) in refusals {
        if let RefOr::T(response) = response
            && let Some(content) = response.content.shift_remove("application/json")
        {
            response.content.insert(PROBLEM_TYPE.into(), content);
        }
    }
}

/// What any call may be refused with, besides what its route says of itself.
fn add_common_refusals(operation: &mut Operation) {
    let open = operation.security.as_ref().is_some_and(|security| security.contains(&SecurityRequirement::default()));
    let mut refusals = vec![
        ("500", "our fault; the logs know the request_id"),
        ("503", "the database does not answer, or another call was in the way: try again"),
    ];
    if !open {
        refusals.push(("400", "a part of the address, a header, or the body is not what this call takes"));
        refusals.push(("401", "no token, or one that is unknown, revoked or of another kind"));
    }
    if operation.request_body.is_some() {
        refusals.push(("413", "the body is too large"));
        refusals.push(("415", "the body is not application/json, or in another charset than UTF-8"));
    }
    for (status, description) in refusals {
        let problem = Ref::from_schema_name("Problem");
        let content = ContentBuilder::new().schema(Some(problem)).build();
        let response = ResponseBuilder::new().description(description).content(PROBLEM_TYPE, content);
        operation.responses.responses.entry(status.into()).or_insert_with(|| response.build().into());
    }
}

/// The routes as a service: with request ids, limits, and a problem for every refusal.
pub fn app(routes: Routes, shell: Shell) -> Router {
    let (router, document) = routes.split_for_parts();
    let known = Around { calls: Calls::of(&document), shell: shell.clone() };
    let around = from_fn_with_state(Arc::new(known), request::around);
    // One layer made of all: each by itself is a box that every request has cloned, and more of them inside.
    router
        .fallback(|| async { http::StatusCode::NOT_FOUND })
        .layer((DefaultBodyLimit::max(BODY_MAX_BYTES), around, CatchPanicLayer::custom(panicked)))
        .with_state(shell)
}

fn panicked(_: Box<dyn std::any::Any + Send>) -> axum::response::Response {
    axum::response::IntoResponse::into_response(Rejection::Internal("a handler panicked".into()))
}

/// A function's `main`: serves `routes` on Lambda where its runtime is, else on `CALLBOARD_LISTEN` (`127.0.0.1:8080`).
///
/// # Errors
///
/// A setting that is missing, a port that is taken, or the Lambda runtime's own.
pub async fn main(routes: Routes) -> Result<(), Box<dyn Error + Send + Sync>> {
    #[expect(clippy::disallowed_methods)]
    let env = |name: &str| std::env::var(name).ok();
    let on_lambda = env("AWS_LAMBDA_RUNTIME_API").is_some();
    telemetry::start(env("CALLBOARD_LOG").as_deref(), env("CALLBOARD_LOG_FORMAT").as_deref(), on_lambda)?;
    if on_lambda {
        return lambda::run(routes).await;
    }
    let app = app(routes, Shell::new(Config::from_env()?)?);
    let listen = env("CALLBOARD_LISTEN").unwrap_or_else(|| "127.0.0.1:8080".into());
    let unheard = |error| BadSetting::new("CALLBOARD_LISTEN", format!("can't listen on {listen:?}: {error}"));
    let listener = tokio::net::TcpListener::bind(&listen).await.map_err(unheard)?;
    tracing::info!(listen = %listener.local_addr()?, "serving");
    listen::serve(listener, app, listen::HEAD_WAIT).await;
    Ok(())
}

/// The `main` of a function that is scheduled or called by name, on Lambda only: serves `routes` to requests, and does what is `due` at
/// other events.
///
/// # Errors
///
/// A setting that is missing, or the Lambda runtime's own.
pub async fn scheduled_main<F>(
    routes: Routes,
    due: fn(Shell, serde_json::Value) -> F,
) -> Result<(), Box<dyn Error + Send + Sync>>
where
    F: Future<Output = Result<serde_json::Value, Rejection>> + Send + 'static,
{
    #[expect(clippy::disallowed_methods)]
    let env = |name: &str| std::env::var(name).ok();
    telemetry::start(env("CALLBOARD_LOG").as_deref(), env("CALLBOARD_LOG_FORMAT").as_deref(), true)?;
    lambda::run_scheduled(routes, due).await
}
