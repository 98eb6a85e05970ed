//! `/api/v1/pipelines`: what builds are made from.

use axum::extract::{Path, State};
use axum::http::header::ETAG;
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use edge::{Api, Json, Rejection, Shell, path};
use protocol::Problem;
use protocol::pipeline::{Pipeline, PipelineSpec, Pipelines};
use protocol::pipeline_problems::slug_problem;
use store::pipelines::{self, Deleted};

/// All pipelines of the workspace, by name.
#[utoipa::path(get, path = "/api/v1/pipelines", tag = "pipelines", responses((status = 200, body = Pipelines)))]
pub(crate) async fn list(State(shell): State<Shell>, api: Api) -> Result<Json<Pipelines>, Rejection> {
    let pipelines = pipelines::list(&shell.store, api.workspace).await?;
    Ok(Json(Pipelines { pipelines }))
}

/// Sets a pipeline up, or changes it. Builds that were admitted before keep what they were admitted with.
#[utoipa::path(
    put,
    path = "/api/v1/pipelines/{slug}",
    tag = "pipelines",
    params(
        ("slug" = String, Path, description = "its name"),
        ("If-Match" = Option<String>, Header, description = "its version; another one is 412")
    ),
    request_body = PipelineSpec,
    responses(
        (status = 200, description = "changed", body = Pipeline),
        (status = 201, description = "set up", body = Pipeline),
        (status = 412, description = "concurrent_update", body = Problem),
        (status = 422, description = "a field that can't be", body = Problem),
    )
)]
pub(crate) async fn put(
    State(shell): State<Shell>,
    api: Api,
    Path(slug): Path<String>,
    headers: HeaderMap,
    Json(spec): Json<PipelineSpec>,
) -> Result<Response, Rejection> {
    check(&slug, &spec)?;
    let pipeline = match path::if_match(&headers)? {
        None => pipelines::put(&shell.store, api.workspace, &slug, &spec).await?,
        Some(version) => pipelines::replace(&shell.store, api.workspace, &slug, &spec, version)
            .await?
            .ok_or(Rejection::ConcurrentUpdate)?,
    };
    tracing::info!(workspace.id = %api.workspace, pipeline.slug = %slug, pipeline.version = pipeline.version, "pipeline set");
    let status = if pipeline.version == 1 { StatusCode::CREATED } else { StatusCode::OK };
    Ok((status, [(ETAG, etag(pipeline.version))], Json(pipeline)).into_response())
}

/// The first thing that can't be, with its field.
fn check(slug: &str, spec: &PipelineSpec) -> Result<(), Rejection> {
    if let Some(problem) = slug_problem(slug) {
        return Err(Rejection::invalid("slug", problem));
    }
    match spec.problems().into_iter().next() {
        Some((field, detail)) => Err(Rejection::invalid(field, detail)),
        None => Ok(()),
    }
}

/// A pipeline.
#[utoipa::path(
    get,
    path = "/api/v1/pipelines/{slug}",
    tag = "pipelines",
    params(("slug" = String, Path, description = "its name")),
    responses((status = 200, body = Pipeline), (status = 404, description = "unknown", body = Problem))
)]
pub(crate) async fn read(
    State(shell): State<Shell>,
    api: Api,
    Path(slug): Path<String>,
) -> Result<Response, Rejection> {
    let pipeline = pipelines::find(&shell.store, api.workspace, &without_nul(slug)?).await?;
    let pipeline = pipeline.ok_or(Rejection::NotFound)?;
    Ok(([(ETAG, etag(pipeline.version))], Json(pipeline)).into_response())
}

/// Deletes a pipeline; its builds that wait will end as `no_pipeline`.
#[utoipa::path(
    delete,
    path = "/api/v1/pipelines/{slug}",
    tag = "pipelines",
    params(
        ("slug" = String, Path, description = "its name"),
        ("If-Match" = Option<String>, Header, description = "its version; another one is 412")
    ),
    responses(
        (status = 204, description = "gone"),
        (status = 404, description = "unknown", body = Problem),
        (status = 412, description = "concurrent_update", body = Problem),
    )
)]
pub(crate) async fn delete(
    State(shell): State<Shell>,
    api: Api,
    Path(slug): Path<String>,
    headers: HeaderMap,
) -> Result<StatusCode, Rejection> {
    let version = path::if_match(&headers)?;
    match pipelines::delete(&shell.store, api.workspace, &without_nul(slug)?, version).await? {
        Deleted::Gone => Ok(StatusCode::NO_CONTENT),
        Deleted::Changed => Err(Rejection::ConcurrentUpdate),
        Deleted::Unknown => Err(Rejection::NotFound),
    }
}

/// Postgres has no NUL in its text, so nothing has a name with one.
pub(crate) fn without_nul(name: String) -> Result<String, Rejection> {
    if name.contains('\0') { Err(Rejection::NotFound) } else { Ok(name) }
}

/// A version as an ETag.
pub(crate) fn etag(version: i64) -> String {
    format!("\"{version}\"")
}
