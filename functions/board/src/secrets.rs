//! `/api/v1/secrets`: values go in, and never come out but to a claim.

use crate::pipelines::without_nul;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use edge::{Api, Json, Rejection, Shell};
use protocol::Problem;
use protocol::workspace::{SecretName, SecretValue, Secrets};
use rules::pipeline::{SECRET_MAX_BYTES, is_env_name};
use store::secrets;

/// All secrets of the workspace, by name, without their values.
#[utoipa::path(get, path = "/api/v1/secrets", tag = "secrets", responses((status = 200, body = Secrets)))]
pub(crate) async fn list(State(shell): State<Shell>, api: Api) -> Result<Json<Secrets>, Rejection> {
    let secrets = secrets::list(&shell.store, api.workspace).await?;
    Ok(Json(Secrets { secrets }))
}

/// Sets a secret's value.
#[utoipa::path(
    put,
    path = "/api/v1/secrets/{name}",
    tag = "secrets",
    params(("name" = String, Path, description = "its name, also that of the variable")),
    request_body = SecretValue,
    responses(
        (status = 200, description = "set", body = SecretName),
        (status = 413, description = "longer than 64 KiB", body = Problem),
        (status = 422, description = "a name or value that can't be", body = Problem),
    )
)]
pub(crate) async fn put(
    State(shell): State<Shell>,
    api: Api,
    Path(name): Path<String>,
    Json(SecretValue { value }): Json<SecretValue>,
) -> Result<Json<SecretName>, Rejection> {
    if !is_env_name(&name) {
        let detail = "a secret's name is a letter or _, then letters, digits and _; CALLBOARD_ is ours";
        return Err(Rejection::invalid("name", detail));
    }
    if value.0.len() > SECRET_MAX_BYTES {
        return Err(Rejection::TooLarge("a secret's value holds at most 64 KiB".into()));
    }
    if value.0.is_empty() {
        return Err(Rejection::invalid("value", "a secret holds at least one byte; delete it to have none"));
    }
    if value.0.contains('\0') {
        return Err(Rejection::invalid("value", "a variable's value holds no NUL"));
    }
    let sealed = shell.seal.seal(api.workspace, &name, &value.0);
    let sealed = secrets::Sealed { key_id: &sealed.key_id, nonce: &sealed.nonce, ciphertext: &sealed.ciphertext };
    let stored = secrets::put(&shell.store, api.workspace, &name, sealed).await?;
    tracing::info!(workspace.id = %api.workspace, secret.name = %name, "secret set");
    Ok(Json(stored))
}

/// Deletes a secret.
#[utoipa::path(
    delete,
    path = "/api/v1/secrets/{name}",
    tag = "secrets",
    params(("name" = String, Path, description = "its name")),
    responses((status = 204, description = "gone"), (status = 404, description = "unknown", body = Problem))
)]
pub(crate) async fn delete(
    State(shell): State<Shell>,
    api: Api,
    Path(name): Path<String>,
) -> Result<StatusCode, Rejection> {
    let gone = secrets::delete(&shell.store, api.workspace, &without_nul(name)?).await?;
    if gone { Ok(StatusCode::NO_CONTENT) } else { Err(Rejection::NotFound) }
}
