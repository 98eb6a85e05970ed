//! `/api/v1/builds`: builds as a workspace sees its own.

use crate::pipelines::etag;
use axum::extract::{Path, Query, State};
use axum::http::header::ETAG;
use axum::response::{IntoResponse, Response};
use edge::place::placed;
use edge::{Api, Json, Rejection, Shell, path};
use protocol::build::{Build, Builds};
use protocol::{Problem, Status, id};
use rules::pipeline::is_slug;
use serde::Deserialize;
use store::listing::{self, Filter};
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
        let before = self
            .cursor
            .map(|text| id::parse(&text).ok_or_else(|| Rejection::invalid("cursor", "not the next_cursor of a page")));
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
    let builds = placed(&shell, api.workspace, listed).await?;
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
    let build = placed(&shell, api.workspace, listed).await?.pop().ok_or(Rejection::NotFound)?;
    Ok(([(ETAG, etag(build.version))], Json(build)).into_response())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(asked: Asked, expected: Result<(u32, Option<Uuid>), &str>) {
        match (asked.read(), expected) {
            (Ok(wanted), Ok(expected)) => assert_eq!((wanted.limit, wanted.before), expected),
            (Err(Rejection::Invalid { field, .. }), Err(expected)) => assert_eq!(field, expected),
            (Ok(_), Err(expected)) => panic!("{expected} was let through"),
            (Err(error), _) => panic!("{error}"),
        }
    }

    fn text(text: &str) -> Option<String> {
        Some(text.to_owned())
    }

    #[test]
    fn a_page_holds_20_unless_asked_for_1_to_100() {
        check(Asked::default(), Ok((20, None)));
        for (limit, expected) in [
            ("0", Err("limit")),
            ("1", Ok((1, None))),
            ("100", Ok((100, None))),
            ("101", Err("limit")),
            ("-1", Err("limit")),
            ("many", Err("limit")),
            ("", Err("limit")),
        ] {
            check(Asked { limit: text(limit), ..Asked::default() }, expected);
        }
    }

    #[test]
    fn a_cursor_is_what_a_page_gave() {
        let id = Uuid::from_u128(7);
        check(Asked { cursor: Some(id.to_string()), ..Asked::default() }, Ok((20, Some(id))));
        check(Asked { cursor: text("7"), ..Asked::default() }, Err("cursor"));
    }

    #[test]
    fn a_filter_that_no_build_can_pass_is_named() {
        check(Asked { status: text("queued"), ..Asked::default() }, Err("status"));
        check(Asked { pipeline: text("a\0"), ..Asked::default() }, Err("pipeline"));
    }
}
