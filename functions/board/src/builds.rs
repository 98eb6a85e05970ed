//! `/api/v1/builds`: builds as a workspace sees its own.

use crate::pipelines::etag;
use crate::waiting::{Needs, waiting_for};
use axum::extract::{Path, Query, State};
use axum::http::header::ETAG;
use axum::response::{IntoResponse, Response};
use edge::{Api, Json, Rejection, Shell, path};
use protocol::build::{Build, Builds};
use protocol::{Problem, Status};
use rules::pipeline::is_slug;
use serde::Deserialize;
use store::listing::{self, Filter, Listed};
use store::{workers, workspaces};
use uuid::Uuid;

const LIMIT: u32 = 20;
const LIMIT_MAX: u32 = 100;

/// What may stand behind the `?`. Texts, so that a bad one is told apart by name.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct Asked {
    status: Option<String>,
    pipeline: Option<String>,
    limit: Option<String>,
    cursor: Option<String>,
}

struct Wanted {
    status: Option<Status>,
    pipeline: Option<String>,
    limit: u32,
    before: Option<Uuid>,
}

impl Asked {
    fn read(self) -> Result<Wanted, Rejection> {
        let status = self.status.map(|word| {
            Status::parse(&word).ok_or_else(|| {
                Rejection::invalid("status", "pending, running, success, failed, timed_out or cancelled")
            })
        });
        let limit = self.limit.map(|text| {
            let number = text.parse().ok().filter(|limit| (1..=LIMIT_MAX).contains(limit));
            number.ok_or_else(|| Rejection::invalid("limit", "a number from 1 to 100"))
        });
        let before = self.cursor.map(|text| {
            Uuid::try_parse(&text).map_err(|_| Rejection::invalid("cursor", "not the next_cursor of a page"))
        });
        if self.pipeline.as_deref().is_some_and(|slug| !is_slug(slug)) {
            return Err(Rejection::invalid("pipeline", "not the name of a pipeline"));
        }
        Ok(Wanted {
            status: status.transpose()?,
            pipeline: self.pipeline,
            limit: limit.transpose()?.unwrap_or(LIMIT),
            before: before.transpose()?,
        })
    }
}

/// The workspace's builds, newest first.
#[utoipa::path(
    get,
    path = "/api/v1/builds",
    tag = "builds",
    params(
        ("status" = Option<String>, Query, description = "those in this state"),
        ("pipeline" = Option<String>, Query, description = "those of this pipeline"),
        ("limit" = Option<u32>, Query, description = "1 to 100; 20 if absent"),
        ("cursor" = Option<String>, Query, description = "the next_cursor of the page before"),
    ),
    responses((status = 200, body = Builds), (status = 422, description = "a parameter that can't be", body = Problem))
)]
pub(crate) async fn list(
    State(shell): State<Shell>,
    api: Api,
    Query(asked): Query<Asked>,
) -> Result<Json<Builds>, Rejection> {
    let Wanted { status, pipeline, limit, before } = asked.read()?;
    let filter = Filter { status, pipeline: pipeline.as_deref(), before };
    let mut ids = listing::newest(&shell.store, api.workspace, filter, limit + 1).await?;
    let kept = usize::try_from(limit).unwrap_or(usize::MAX);
    let more = ids.len() > kept;
    ids.truncate(kept);
    let listed = listing::builds(&shell.store, api.workspace, &ids).await?;
    let next_cursor = if more { ids.last().map(Uuid::to_string) } else { None };
    let builds = placed(&shell, api, listed).await?;
    Ok(Json(Builds { builds, next_cursor }))
}

/// A build.
#[utoipa::path(
    get,
    path = "/api/v1/builds/{id}",
    tag = "builds",
    params(("id" = Uuid, Path, description = "the build")),
    responses((status = 200, body = Build), (status = 404, description = "unknown", body = Problem))
)]
pub(crate) async fn read(State(shell): State<Shell>, api: Api, Path(id): Path<String>) -> Result<Response, Rejection> {
    let listed = listing::builds(&shell.store, api.workspace, &[path::uuid(&id)?]).await?;
    let build = placed(&shell, api, listed).await?.pop().ok_or(Rejection::NotFound)?;
    Ok(([(ETAG, etag(build.version))], Json(build)).into_response())
}

/// The builds, those that wait with their place in the queue and what they wait for.
async fn placed(shell: &Shell, api: Api, listed: Vec<Listed>) -> Result<Vec<Build>, Rejection> {
    if listed.iter().all(|listed| listed.build.status != Status::Pending) {
        return Ok(listed.into_iter().map(|listed| listed.build).collect());
    }
    let standing = workspaces::standing(&shell.store, api.workspace).await?.ok_or(Rejection::NotFound)?;
    let able = workers::at_work(&shell.store).await?;
    let mut builds = Vec::with_capacity(listed.len());
    for Listed { mut build, number, requires, images } in listed {
        if build.status == Status::Pending {
            let needs = Needs { requires: &requires, images: &images };
            build.position = Some(listing::position(&shell.store, api.workspace, number).await?);
            build.waiting_for = Some(waiting_for(standing.plan, standing.usage, standing.head, needs, &able));
        }
        builds.push(build);
    }
    Ok(builds)
}
