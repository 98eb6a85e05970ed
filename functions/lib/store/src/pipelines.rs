//! Pipelines, each a name in its workspace and what a build of it runs.

use crate::{Error, Store};
use protocol::pipeline::{Pipeline, PipelineSpec};
use sqlx::types::Json;
use time::OffsetDateTime;
use uuid::Uuid;

struct Row {
    slug: String,
    spec: Json<PipelineSpec>,
    version: i64,
    created_at: OffsetDateTime,
    updated_at: OffsetDateTime,
}

impl From<Row> for Pipeline {
    fn from(row: Row) -> Self {
        let Row { slug, spec, version, created_at, updated_at } = row;
        Self { slug, spec: spec.0, version, created_at, updated_at }
    }
}

/// Sets a pipeline up, or changes the one there is; version 1 says that it is new. The slug and the spec must be valid.
///
/// # Errors
///
/// [`Error`] if the database fails.
pub async fn put(store: &Store, workspace: Uuid, slug: &str, spec: &PipelineSpec) -> Result<Pipeline, Error> {
    let row = sqlx::query_as!(
        Row,
        r#"insert into pipelines as p (workspace_id, slug, spec) values ($1, $2, $3)
           on conflict (workspace_id, slug) do update
           set spec = excluded.spec, version = p.version + 1, updated_at = clock_timestamp()
           returning slug, spec as "spec: Json<PipelineSpec>", version, created_at, updated_at"#,
        workspace,
        slug,
        Json(spec) as _
    )
    .fetch_one(&store.pool)
    .await?;
    Ok(row.into())
}

/// Changes a pipeline that still has this version. `None` if it has another, or is not there.
///
/// # Errors
///
/// [`Error`] if the database fails.
pub async fn replace(
    store: &Store,
    workspace: Uuid,
    slug: &str,
    spec: &PipelineSpec,
    version: i64,
) -> Result<Option<Pipeline>, Error> {
    let row = sqlx::query_as!(
        Row,
        r#"update pipelines p set spec = $3, version = p.version + 1, updated_at = clock_timestamp()
           where workspace_id = $1 and slug = $2 and version = $4
           returning slug, spec as "spec: Json<PipelineSpec>", version, created_at, updated_at"#,
        workspace,
        slug,
        Json(spec) as _,
        version
    )
    .fetch_optional(&store.pool)
    .await?;
    Ok(row.map(Pipeline::from))
}

/// A pipeline by name.
///
/// # Errors
///
/// [`Error`] if the database fails.
pub async fn find(store: &Store, workspace: Uuid, slug: &str) -> Result<Option<Pipeline>, Error> {
    let row = sqlx::query_as!(
        Row,
        r#"select slug, spec as "spec: Json<PipelineSpec>", version, created_at, updated_at
           from pipelines where workspace_id = $1 and slug = $2"#,
        workspace,
        slug
    )
    .fetch_optional(&store.pool)
    .await?;
    Ok(row.map(Pipeline::from))
}

/// All pipelines of a workspace, by name.
///
/// # Errors
///
/// [`Error`] if the database fails.
pub async fn list(store: &Store, workspace: Uuid) -> Result<Vec<Pipeline>, Error> {
    let rows = sqlx::query_as!(
        Row,
        r#"select slug, spec as "spec: Json<PipelineSpec>", version, created_at, updated_at
           from pipelines where workspace_id = $1 order by slug"#,
        workspace
    )
    .fetch_all(&store.pool)
    .await?;
    Ok(rows.into_iter().map(Pipeline::from).collect())
}

/// What became of a delete.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Deleted {
    /// It is gone; its pending builds end as `no_pipeline`.
    Gone,
    /// It has another version than the caller saw.
    Changed,
    /// There is none.
    Unknown,
}

/// Deletes a pipeline; if `version` is given, only where it still has that one.
///
/// # Errors
///
/// [`Error`] if the database fails.
pub async fn delete(store: &Store, workspace: Uuid, slug: &str, version: Option<i64>) -> Result<Deleted, Error> {
    let row = sqlx::query!(
        r#"with gone as (
               delete from pipelines
               where workspace_id = $1 and slug = $2 and ($3::bigint is null or version = $3) returning 1)
           select exists (select from gone) as "gone!",
               exists (select from pipelines where workspace_id = $1 and slug = $2) as "known!""#,
        workspace,
        slug,
        version
    )
    .fetch_one(&store.pool)
    .await?;
    Ok(match (row.gone, row.known) {
        (true, _) => Deleted::Gone,
        (false, true) => Deleted::Changed,
        (false, false) => Deleted::Unknown,
    })
}
