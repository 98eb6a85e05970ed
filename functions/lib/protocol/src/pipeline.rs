//! Pipelines: what a build of one runs (SPEC.md, 2), and the same shape for the file `callboard.yaml`.

use crate::object;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use time::OffsetDateTime;
use utoipa::openapi::{KnownFormat, ObjectBuilder, RefOr, Schema, SchemaFormat, Type};
use utoipa::{PartialSchema, ToSchema};

/// Variables by name.
pub type Env = BTreeMap<String, String>;

/// What is built where neither the pipeline nor the build names it: a repository's default branch has any name.
pub const DEFAULT_REF: &str = "HEAD";

/// What a step's processes may reach.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum Network {
    /// Public addresses, and what the operator allows.
    #[default]
    Isolated,
    /// Nothing.
    None,
}

/// One step of a pipeline: commands that run in order in an isolated task.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Step {
    /// Its name, unique in the pipeline.
    pub name: String,
    /// The image to run in; `host` is a sandbox over the worker's own system.
    #[serde(default = "host")]
    pub image: String,
    /// Shell commands, in order; the first that fails ends the step.
    pub commands: Vec<String>,
    /// Variables for this step; they win over the build's.
    #[serde(default, deserialize_with = "object::map", skip_serializing_if = "Env::is_empty")]
    pub env: Env,
    /// How long the step may take, in seconds; without it only the build's deadline counts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeout_seconds: Option<u32>,
    /// What it may reach.
    #[serde(default)]
    pub network: Network,
    /// Whether it runs when the build is cancelled after its clone, and at no other time: to tidy up, for a minute at most in all, and
    /// uncharged.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub on_cancel: bool,
}

fn host() -> String {
    "host".into()
}

/// A live preview: a service that is started from a build's workspace once the build has succeeded, and is ended when its time
/// is over. It sees the build's variables and its pipeline's secrets.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct PreviewSpec {
    /// The image to run in; `host` is a sandbox over the worker's own system.
    #[serde(default = "host")]
    pub image: String,
    /// Shell commands, in order; the last one is the service.
    pub commands: Vec<String>,
    /// The port that the service listens on, 1 to 65535.
    #[schema(minimum = 1)]
    pub port: u16,
    /// What is asked of the service until it answers with a status below 400.
    #[serde(default = "root")]
    pub health_path: String,
    /// How long it lives, in seconds; at most as long as the plan allows.
    #[serde(default = "an_hour")]
    pub ttl_seconds: u32,
    /// Variables of the service; they win over the build's.
    #[serde(default, deserialize_with = "object::map", skip_serializing_if = "Env::is_empty")]
    pub env: Env,
    /// Whether what is left of one that failed is kept, stopped, until somebody destroys it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub retain_failed: bool,
}

/// How long a preview lives whose pipeline does not say, in seconds.
pub const PREVIEW_TTL_SECONDS: u32 = 3600;

fn root() -> String {
    "/".into()
}
fn an_hour() -> u32 {
    PREVIEW_TTL_SECONDS
}

/// A pipeline as a caller sets it up.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct PipelineSpec {
    /// Where its source is: `https://`, no credentials.
    pub repository: String,
    /// The branch, tag or commit that is built when a build names none; `HEAD`, what the repository itself has as its default,
    /// if absent.
    #[serde(default = "head")]
    pub default_ref: String,
    /// What is run, in order.
    #[serde(deserialize_with = "object::list")]
    pub steps: Vec<Step>,
    /// Variables of every step.
    #[serde(default, deserialize_with = "object::map", skip_serializing_if = "Env::is_empty")]
    pub env: Env,
    /// How long a build may take, in seconds; this is also what it reserves.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeout_seconds: Option<u32>,
    /// Labels that a worker must have.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub requires: Vec<String>,
    /// The workspace's secrets that its steps see as variables.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub secrets: Vec<String>,
    /// The secret that the clone, and nothing else, gets as a password (`user:password`, or a bare token).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub clone_secret: Option<String>,
    /// Secrets for pulling images, by registry.
    #[serde(default, deserialize_with = "object::map", skip_serializing_if = "BTreeMap::is_empty")]
    pub registry_secrets: BTreeMap<String, String>,
    /// Whether the clone brings submodules.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub submodules: bool,
    /// What is started once a build has succeeded.
    #[serde(default, deserialize_with = "object::option", skip_serializing_if = "Option::is_none")]
    pub preview: Option<PreviewSpec>,
}

fn head() -> String {
    DEFAULT_REF.into()
}

/// A pipeline as the board shows it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Pipeline {
    /// Its name in the workspace.
    pub slug: String,
    /// What it runs.
    #[serde(flatten)]
    pub spec: PipelineSpec,
    /// Raised by every change; the ETag.
    pub version: i64,
    /// When it was first set up.
    #[serde(with = "time::serde::rfc3339")]
    pub created_at: OffsetDateTime,
    /// When it was last changed.
    #[serde(with = "time::serde::rfc3339")]
    pub updated_at: OffsetDateTime,
}

impl PartialSchema for Pipeline {
    /// The spec's fields and four more. They can't stand beside a reference to it, as a derived schema has them: the spec
    /// refuses every field that it does not know.
    fn schema() -> RefOr<Schema> {
        let RefOr::T(Schema::Object(mut spec)) = PipelineSpec::schema() else { return PipelineSpec::schema() };
        spec.additional_properties = None;
        let instant = || ObjectBuilder::new().schema_type(Type::String).format(Some(DATE_TIME));
        let (name, number) =
            (ObjectBuilder::new().schema_type(Type::String), ObjectBuilder::new().schema_type(Type::Integer));
        ObjectBuilder::from(spec)
            .description(Some("A pipeline as the board shows it."))
            .property("slug", name.description(Some("Its name in the workspace.")))
            .property("version", number.description(Some("Raised by every change; the ETag.")))
            .property("created_at", instant().description(Some("When it was first set up.")))
            .property("updated_at", instant().description(Some("When it was last changed.")))
            .required("slug")
            .required("version")
            .required("created_at")
            .required("updated_at")
            .into()
    }
}

const DATE_TIME: SchemaFormat = SchemaFormat::KnownFormat(KnownFormat::DateTime);

impl ToSchema for Pipeline {
    fn schemas(schemas: &mut Vec<(String, RefOr<Schema>)>) {
        PipelineSpec::schemas(schemas);
    }
}

/// All pipelines of a workspace, by name.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Pipelines {
    /// The pipelines.
    pub pipelines: Vec<Pipeline>,
}
