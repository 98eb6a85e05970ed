//! `/api/v1/admin`: workspaces, plans, tokens, workers; for operators.

use crate::pipelines::without_nul;
use crate::workspace::{limits, shown};
use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use edge::auth::{WorkerToken, new_token};
use edge::{Billing, Json, Operator, Rejection, Shell};
use protocol::Problem;
use protocol::admin::{CreatedToken, NewToken, PutWorkspace, TokenKind, Tokens, Workers, Workspaces};
use protocol::pipeline_problems::slug_problem;
use protocol::worker::Secret;
use protocol::workspace::{PlanLimits, Workspace};
use rules::billing::{BUILD_SECONDS_MAX, BUILDS_MAX, MINUTES_PER_MONTH, PREVIEW_SECONDS_MAX, PREVIEWS_MAX};
use store::{tokens, workers, workspaces};

/// All workspaces, by name.
#[utoipa::path(get, path = "/api/v1/admin/workspaces", tag = "admin", responses((status = 200, body = Workspaces)))]
pub(crate) async fn workspaces(State(shell): State<Shell>, _: Operator) -> Result<Json<Workspaces>, Rejection> {
    let workspaces = workspaces::list(&shell.store, &shell.config.timing).await?.into_iter().map(shown).collect();
    Ok(Json(Workspaces { workspaces }))
}

/// Makes a workspace, or sets the plan of the one there is.
#[utoipa::path(
    put,
    path = "/api/v1/admin/workspaces/{slug}",
    tag = "admin",
    params(("slug" = String, Path, description = "its name")),
    request_body = PutWorkspace,
    responses(
        (status = 200, description = "it was there", body = Workspace),
        (status = 201, description = "made", body = Workspace),
        (status = 409, description = "billed_elsewhere: plans come from the billing service", body = Problem),
        (status = 422, description = "a field that can't be", body = Problem),
    )
)]
pub(crate) async fn put_workspace(
    State(shell): State<Shell>,
    _: Operator,
    Path(slug): Path<String>,
    Json(put): Json<PutWorkspace>,
) -> Result<Response, Rejection> {
    if let Some(problem) = slug_problem(&slug) {
        return Err(Rejection::invalid("slug", problem));
    }
    if let Some(plan) = &put.plan {
        billed_here(&shell)?;
        check_plan("plan.", plan)?;
    }
    let mut tx = shell.store.begin().await?;
    let new = workspaces::insert(&mut tx, &slug).await?;
    if let Some(plan) = &put.plan {
        workspaces::set_plan(&mut tx, &slug, plan).await?;
    }
    tx.commit().await?;
    tracing::info!(workspace.slug = %slug, new, "workspace set");
    let status = if new { StatusCode::CREATED } else { StatusCode::OK };
    Ok((status, Json(named(&shell, &slug).await?)).into_response())
}

/// A workspace.
#[utoipa::path(
    get,
    path = "/api/v1/admin/workspaces/{slug}",
    tag = "admin",
    params(("slug" = String, Path, description = "its name")),
    responses((status = 200, body = Workspace), (status = 404, description = "unknown", body = Problem))
)]
pub(crate) async fn read_workspace(
    State(shell): State<Shell>,
    _: Operator,
    Path(slug): Path<String>,
) -> Result<Json<Workspace>, Rejection> {
    named(&shell, &slug).await.map(Json)
}

async fn named(shell: &Shell, slug: &str) -> Result<Workspace, Rejection> {
    let standing = workspaces::named(&shell.store, &without_nul(slug.to_owned())?, &shell.config.timing).await?;
    standing.map(shown).ok_or(Rejection::NotFound)
}

/// Sets a workspace's plan. It binds new claims only.
#[utoipa::path(
    put,
    path = "/api/v1/admin/workspaces/{slug}/plan",
    tag = "admin",
    params(("slug" = String, Path, description = "the workspace's name")),
    request_body = PlanLimits,
    responses(
        (status = 200, description = "set", body = PlanLimits),
        (status = 404, description = "unknown", body = Problem),
        (status = 409, description = "billed_elsewhere: plans come from the billing service", body = Problem),
        (status = 422, description = "a field that can't be", body = Problem),
    )
)]
pub(crate) async fn put_plan(
    State(shell): State<Shell>,
    _: Operator,
    Path(slug): Path<String>,
    Json(plan): Json<PlanLimits>,
) -> Result<Json<PlanLimits>, Rejection> {
    billed_here(&shell)?;
    check_plan("", &plan)?;
    let mut tx = shell.store.begin().await?;
    if !workspaces::set_plan(&mut tx, &without_nul(slug.clone())?, &plan).await? {
        return Err(Rejection::NotFound);
    }
    tx.commit().await?;
    tracing::info!(workspace.slug = %slug, plan.minutes_per_month = plan.minutes_per_month, "plan set");
    Ok(Json(plan))
}

/// Refuses to set a plan where a billing service gives them: its next answer would undo it.
fn billed_here(shell: &Shell) -> Result<(), Rejection> {
    match shell.billing {
        Billing::PlanTables => Ok(()),
        Billing::Service(_) => Err(Rejection::BilledElsewhere),
    }
}

fn check_plan(prefix: &str, plan: &PlanLimits) -> Result<(), Rejection> {
    for (field, value, range) in [
        ("minutes_per_month", plan.minutes_per_month, MINUTES_PER_MONTH),
        ("build_seconds_max", plan.build_seconds_max, BUILD_SECONDS_MAX),
        ("running_max", plan.running_max, BUILDS_MAX),
        ("pending_max", plan.pending_max, BUILDS_MAX),
        ("previews_max", plan.previews_max, PREVIEWS_MAX),
        ("preview_seconds_max", plan.preview_seconds_max, PREVIEW_SECONDS_MAX),
    ] {
        if !range.contains(&value) {
            let detail = format!("a number from {} to {}", range.start(), range.end());
            return Err(Rejection::invalid(format!("{prefix}{field}"), detail));
        }
    }
    Ok(())
}

/// A workspace's plan.
#[utoipa::path(
    get,
    path = "/api/v1/admin/workspaces/{slug}/plan",
    tag = "admin",
    params(("slug" = String, Path, description = "the workspace's name")),
    responses((status = 200, body = PlanLimits), (status = 404, description = "no plan", body = Problem))
)]
pub(crate) async fn read_plan(
    State(shell): State<Shell>,
    _: Operator,
    Path(slug): Path<String>,
) -> Result<Json<PlanLimits>, Rejection> {
    let standing = workspaces::named(&shell.store, &without_nul(slug)?, &shell.config.timing).await?;
    standing.and_then(|standing| standing.plan).map(|plan| Json(limits(plan))).ok_or(Rejection::NotFound)
}

/// Takes a workspace's plan away: until it has one again, nothing of it is admitted or claimed.
#[utoipa::path(
    delete,
    path = "/api/v1/admin/workspaces/{slug}/plan",
    tag = "admin",
    params(("slug" = String, Path, description = "the workspace's name")),
    responses(
        (status = 204, description = "gone"),
        (status = 404, description = "unknown", body = Problem),
        (status = 409, description = "billed_elsewhere: plans come from the billing service", body = Problem),
    )
)]
pub(crate) async fn delete_plan(
    State(shell): State<Shell>,
    _: Operator,
    Path(slug): Path<String>,
) -> Result<StatusCode, Rejection> {
    billed_here(&shell)?;
    let gone = workspaces::clear_plan(&shell.store, &without_nul(slug)?).await?;
    if gone { Ok(StatusCode::NO_CONTENT) } else { Err(Rejection::NotFound) }
}

/// Makes a token. It is shown this once.
#[utoipa::path(
    post,
    path = "/api/v1/admin/tokens",
    tag = "admin",
    request_body = NewToken,
    responses(
        (status = 201, description = "made", body = CreatedToken),
        (status = 422, description = "a field that can't be", body = Problem),
    )
)]
pub(crate) async fn create_token(
    State(shell): State<Shell>,
    _: Operator,
    Json(new): Json<NewToken>,
) -> Result<Response, Rejection> {
    check_token(&new)?;
    let token = new_token(new.kind);
    let WorkerToken { id, digest } = WorkerToken::of(&token);
    let workspace = new.workspace.as_deref();
    let workspaces = new.workspaces.as_deref();
    let stored = tokens::NewToken { id: &id, digest: &digest, kind: new.kind, workspace, workspaces, name: &new.name };
    match tokens::insert(&shell.store, stored).await {
        Ok(true) => {}
        Ok(false) => {
            let field = if workspaces.is_some() { "workspaces" } else { "workspace" };
            return Err(Rejection::invalid(field, "there is no workspace of that name"));
        }
        // Another token has the same first 8 digits: the next one will not.
        Err(store::Error::Conflict(_)) => return Err(Rejection::TryAgain),
        Err(error) => return Err(error.into()),
    }
    tracing::info!(token.id = %id, token.kind = new.kind.as_str(), "token made");
    Ok((StatusCode::CREATED, Json(CreatedToken { id, token: Secret(token) })).into_response())
}

fn check_token(new: &NewToken) -> Result<(), Rejection> {
    check_limits(new)?;
    match (new.kind, &new.workspace) {
        (TokenKind::Api, None) => Err(Rejection::invalid("workspace", "an api token belongs to a workspace: name it")),
        (TokenKind::Worker | TokenKind::Operator, Some(_)) => {
            Err(Rejection::invalid("workspace", "only an api token belongs to a workspace"))
        }
        (TokenKind::Api, Some(slug)) if slug_problem(slug).is_some() => {
            Err(Rejection::invalid("workspace", "not the name of a workspace"))
        }
        (TokenKind::Api | TokenKind::Worker | TokenKind::Operator, _)
            if new.name.len() > 255 || new.name.contains('\0') =>
        {
            Err(Rejection::invalid("name", "at most 255 bytes, no NUL"))
        }
        (TokenKind::Api | TokenKind::Worker | TokenKind::Operator, _) => Ok(()),
    }
}

/// A worker's token may be limited to some workspaces, no other.
fn check_limits(new: &NewToken) -> Result<(), Rejection> {
    let Some(workspaces) = &new.workspaces else { return Ok(()) };
    if new.kind != TokenKind::Worker {
        return Err(Rejection::invalid("workspaces", "only a worker token is limited to workspaces"));
    }
    if workspaces.is_empty() || workspaces.len() > 1000 {
        return Err(Rejection::invalid("workspaces", "name 1 to 1,000 workspaces, or leave it out"));
    }
    if workspaces.iter().any(|slug| slug_problem(slug).is_some()) {
        return Err(Rejection::invalid("workspaces", "not the name of a workspace"));
    }
    Ok(())
}

/// All tokens, newest first, without the tokens themselves.
#[utoipa::path(get, path = "/api/v1/admin/tokens", tag = "admin", responses((status = 200, body = Tokens)))]
pub(crate) async fn tokens(State(shell): State<Shell>, _: Operator) -> Result<Json<Tokens>, Rejection> {
    let tokens = tokens::list(&shell.store).await?;
    Ok(Json(Tokens { tokens }))
}

/// Revokes a token, for good and at once.
#[utoipa::path(
    delete,
    path = "/api/v1/admin/tokens/{id}",
    tag = "admin",
    params(("id" = String, Path, description = "the token's id")),
    responses((status = 204, description = "revoked"), (status = 404, description = "unknown", body = Problem))
)]
pub(crate) async fn revoke_token(
    State(shell): State<Shell>,
    _: Operator,
    Path(id): Path<String>,
) -> Result<StatusCode, Rejection> {
    let known = tokens::revoke(&shell.store, &without_nul(id.clone())?).await?;
    if !known {
        return Err(Rejection::NotFound);
    }
    tracing::info!(token.id = %id, "token revoked");
    Ok(StatusCode::NO_CONTENT)
}

/// Workers as they were last seen.
#[utoipa::path(get, path = "/api/v1/admin/workers", tag = "admin", responses((status = 200, body = Workers)))]
pub(crate) async fn workers(State(shell): State<Shell>, _: Operator) -> Result<Json<Workers>, Rejection> {
    let workers = workers::list(&shell.store).await?;
    Ok(Json(Workers { workers }))
}
