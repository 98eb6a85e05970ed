//! `POST /api/v1/builds` and `POST /api/v1/builds/{id}/retry`.

use crate::admit::{self, Admitted};
use axum::extract::{Path, State};
use axum::http::header::LOCATION;
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use edge::place::placed;
use edge::{Api, Json, Rejection, Shell, Trace, path};
use protocol::Problem;
use protocol::build::{Build, Retry, Submit};
use protocol::pipeline::Env;
use rules::variables::{Origin, environment};
use rules::{pipeline, runnable};
use sha2::{Digest as _, Sha256};
use store::submissions::{self, Key, NewBuild, Source};
use store::{listing, secrets};

/// Admits a build of a pipeline.
#[utoipa::path(
    post,
    path = "/api/v1/builds",
    tag = "builds",
    params(
        ("Idempotency-Key" = Option<String>, Header, description = "makes a repeat return the first build; kept 24 h"),
        ("traceparent" = Option<String>, Header, description = "the trace that the build is to belong to, by W3C's Trace Context; one of its own if absent or wrong")
    ),
    request_body = Submit,
    responses(
        (status = 201, description = "admitted, now or by an earlier call with this key", body = Build),
        (status = 402, description = "minutes_exhausted", body = Problem),
        (status = 422, description = "a field that can't be, or another body with this key", body = Problem),
        (status = 429, description = "queue_full", body = Problem),
        (status = 503, description = "billing_unavailable", body = Problem),
    )
)]
pub(crate) async fn submit(
    State(shell): State<Shell>,
    api: Api,
    Trace(trace): Trace,
    headers: HeaderMap,
    Json(submit): Json<Submit>,
) -> Result<Response, Rejection> {
    check(&submit)?;
    let asked = serde_json::to_vec(&submit).map_err(|error| Rejection::Internal(error.to_string()))?;
    let digest = Sha256::digest(asked);
    let key = key(&headers, &digest)?;
    if let Some(before) = admit::earlier(&shell, api.workspace, key).await? {
        return answer(&shell, api, before).await;
    }
    let source = submissions::source(&shell.store, api.workspace, &submit.pipeline).await?;
    let source = source.ok_or_else(|| {
        Rejection::invalid(
            "pipeline",
            "the workspace has no pipeline of that name; GET /api/v1/pipelines lists those there are",
        )
    })?;
    let build = NewBuild { traceparent: Some(trace), ..made_of(submit, source, &shell)? };
    check_secrets(&shell, api, &build).await?;
    let admitted = admit::admit(&shell, api.workspace, &build, key).await?;
    answer(&shell, api, admitted).await
}

/// Admits a new build made from a final one's snapshot and commit.
#[utoipa::path(
    post,
    path = "/api/v1/builds/{id}/retry",
    tag = "builds",
    params(
        ("id" = Uuid, Path, description = "the build to try again"),
        ("Idempotency-Key" = Option<String>, Header, description = "makes a repeat return the first build; kept 24 h"),
        ("traceparent" = Option<String>, Header, description = "the trace that the new build is to belong to; one of its own if absent or wrong")
    ),
    request_body(content = Option<Retry>, description = "may be absent"),
    responses(
        (status = 201, description = "admitted, now or by an earlier call with this key", body = Build),
        (status = 402, description = "minutes_exhausted", body = Problem),
        (status = 404, description = "unknown", body = Problem),
        (status = 409, description = "build_not_final", body = Problem),
        (status = 422, description = "a secret that is not set any more, or another call with this key", body = Problem),
        (status = 429, description = "queue_full", body = Problem),
        (status = 503, description = "billing_unavailable", body = Problem),
    )
)]
pub(crate) async fn retry(
    State(shell): State<Shell>,
    api: Api,
    Trace(trace): Trace,
    headers: HeaderMap,
    Path(id): Path<String>,
    _: Option<Json<Retry>>,
) -> Result<Response, Rejection> {
    let id = path::uuid(&id)?;
    let digest = Sha256::digest(format!("retry {id}"));
    let key = key(&headers, &digest)?;
    if let Some(before) = admit::earlier(&shell, api.workspace, key).await? {
        return answer(&shell, api, before).await;
    }
    let first = submissions::snapshot(&shell.store, api.workspace, id).await?.ok_or(Rejection::NotFound)?;
    if !first.status.is_final() {
        return Err(Rejection::BuildNotFinal);
    }
    let build = NewBuild { traceparent: Some(trace), ..first.build };
    check_secrets(&shell, api, &build).await?;
    let admitted = admit::admit(&shell, api.workspace, &build, key).await?;
    answer(&shell, api, admitted).await
}

/// The build as it is once it is admitted: what else is told of it is read when no lock is held any more.
async fn answer(shell: &Shell, api: Api, admitted: Admitted) -> Result<Response, Rejection> {
    let (Admitted::New(id) | Admitted::Earlier(id)) = admitted;
    let listed = listing::builds(&shell.store, api.workspace, &[id]).await?;
    let build = placed(shell, api.workspace, listed).await?.pop().ok_or(Rejection::NotFound)?;
    let location = [(LOCATION, format!("/api/v1/builds/{id}"))];
    Ok((StatusCode::CREATED, location, Json(build)).into_response())
}

fn key<'a>(headers: &'a HeaderMap, body_digest: &'a [u8]) -> Result<Option<Key<'a>>, Rejection> {
    let Some(value) = headers.get("idempotency-key") else { return Ok(None) };
    let key = value.to_str().ok().filter(|key| (1..=255).contains(&key.len()));
    let key = key.ok_or_else(|| Rejection::invalid("Idempotency-Key", "give 1 to 255 visible ASCII characters"))?;
    Ok(Some(Key { key, body_digest }))
}

fn check(submit: &Submit) -> Result<(), Rejection> {
    if !pipeline::is_slug(&submit.pipeline) {
        return Err(Rejection::invalid("pipeline", "not the name of a pipeline: a-z, 0-9 and -, at most 63"));
    }
    if submit.git_ref.as_deref().is_some_and(|name| !runnable::is_ref(name)) {
        return Err(Rejection::invalid("ref", "not a branch, tag or commit that git accepts"));
    }
    check_env(&submit.env)
}

fn check_env(env: &Env) -> Result<(), Rejection> {
    if env.len() > pipeline::ENV_MAX {
        return Err(Rejection::invalid("env", format!("more than {} variables", pipeline::ENV_MAX)));
    }
    for (name, value) in env {
        if !pipeline::is_env_name(name) {
            let name: String = name.chars().take(64).flat_map(char::escape_debug).collect();
            let detail = format!(
                "\"{name}\" can't name a variable: a letter or _, then letters, digits and _; CALLBOARD_ is ours"
            );
            return Err(Rejection::invalid("env", detail));
        }
        if !pipeline::is_env_value(value) {
            return Err(Rejection::invalid(format!("env.{name}"), "a value holds no NUL and at most 32 KiB"));
        }
    }
    Ok(())
}

/// A secret that nobody has set would be an empty variable, and a build that is green for the wrong reason.
async fn check_secrets(shell: &Shell, api: Api, build: &NewBuild) -> Result<(), Rejection> {
    let named = build.secrets.iter().chain(&build.clone_secret).chain(build.registry_secrets.values());
    let names: Vec<&str> = named.map(String::as_str).collect();
    if names.is_empty() {
        return Ok(());
    }
    let missing = secrets::missing(&shell.store, api.workspace, &names).await?;
    if missing.is_empty() {
        return Ok(());
    }
    let detail = format!(
        "the pipeline names secrets that are not set: {}; set each first (`callboard secret set NAME`)",
        missing.join(", ")
    );
    Err(Rejection::invalid("secrets", detail))
}

/// The pipeline as it is now, with what the caller sets; the caller's variables win.
fn made_of(submit: Submit, source: Source, shell: &Shell) -> Result<NewBuild, Rejection> {
    let Source { id, spec } = source;
    let env = environment([(Origin::Pipeline, spec.env), (Origin::Build, submit.env)]);
    check_env(&env)?;
    let longest = u32::try_from(shell.config.timing.deadline_max.as_secs().max(1)).unwrap_or(u32::MAX);
    Ok(NewBuild {
        pipeline: id,
        slug: submit.pipeline,
        repository: spec.repository,
        git_ref: submit.git_ref.unwrap_or(spec.default_ref),
        commit: None,
        submodules: spec.submodules,
        steps: spec.steps,
        env,
        secrets: spec.secrets,
        clone_secret: spec.clone_secret,
        registry_secrets: spec.registry_secrets,
        requires: spec.requires,
        retry_of: None,
        traceparent: None,
        preview: spec.preview,
        timeout_seconds: spec.timeout_seconds.unwrap_or(longest).min(longest),
    })
}
