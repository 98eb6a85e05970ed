//! The file `callboard.yaml`: a pipeline as a person writes it, with an error for each thing that can't be, at its line
//! and key.
//!
//! Its values are read from the text itself, not through YAML's types: a variable `VERSION: 1.10` stays `1.10`.

mod duration;
mod fault;
mod fields;
mod preview;
mod step;
mod write;
mod yaml;

pub use duration::{BadDuration, parse_duration, spell_duration};
pub use fault::{Fault, Faults, Place};
pub use write::write;

use crate::pipeline::{DEFAULT_REF, PipelineSpec};
use crate::pipeline_problems::{LABELS_MAX, is_label, is_registry, repeated};
use fields::{Field, Fields, Reader};
use rules::pipeline::{ENV_MAX, is_env_name, is_slug};
use rules::runnable::{self, BadRepository};
use std::collections::BTreeMap;

/// What the caller knows already; it wins over what the file says, and the file may leave it out.
#[derive(Clone, Copy, Debug, Default)]
pub struct Given<'a> {
    /// The pipeline's name.
    pub name: Option<&'a str>,
    /// Where its source is.
    pub repository: Option<&'a str>,
}

/// A pipeline and the name it is set up under.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PipelineFile {
    /// Its name.
    pub slug: String,
    /// What it runs.
    pub spec: PipelineSpec,
}

const KEYS: &[&str] = &[
    "name",
    "repository",
    "ref",
    "timeout",
    "env",
    "secrets",
    "clone_secret",
    "requires",
    "registry_secrets",
    "submodules",
    "steps",
    "preview",
];

/// Reads a pipeline file.
///
/// # Errors
///
/// All that is wrong with it, by line: YAML itself (then only the first), unknown keys, and every rule of
/// `rules::pipeline` and `rules::runnable`. A value that may be a secret is never repeated.
pub fn parse(text: &str, given: Given<'_>) -> Result<PipelineFile, Faults> {
    let root = yaml::load(text)?;
    let mut reader = Reader::default();
    let fields = reader.map(&Field::root(&root), KEYS);
    let slug = given_or(given.name, "name", &fields, &mut reader, slug);
    let spec = spec(&fields, given, &mut reader);
    reader.done(PipelineFile { slug, spec })
}

fn spec(fields: &Fields<'_>, given: Given<'_>, reader: &mut Reader) -> PipelineSpec {
    PipelineSpec {
        repository: given_or(given.repository, "repository", fields, reader, repository),
        default_ref: fields.get("ref").and_then(|field| git_ref(&field, reader)).unwrap_or_else(|| DEFAULT_REF.into()),
        steps: step::steps(fields, reader),
        env: fields.get("env").map(|field| reader.env(&field)).unwrap_or_default(),
        timeout_seconds: fields.get("timeout").and_then(|field| reader.duration(&field)),
        requires: fields.get("requires").map(|field| labels(&field, reader)).unwrap_or_default(),
        secrets: fields.get("secrets").map(|field| secrets(&field, reader)).unwrap_or_default(),
        clone_secret: fields.get("clone_secret").and_then(|field| secret(&field, reader)),
        registry_secrets: fields.get("registry_secrets").map(|field| registries(&field, reader)).unwrap_or_default(),
        submodules: fields.get("submodules").is_some_and(|field| reader.flag(&field)),
        preview: fields.get("preview").map(|field| preview::preview(&field, reader)),
    }
}

/// What is given, or else the field's value, or else a fault. The file's own value must be right in any case.
fn given_or<'n>(
    given: Option<&str>,
    key: &str,
    fields: &Fields<'n>,
    reader: &mut Reader,
    read: fn(&Field<'n>, &mut Reader) -> Option<String>,
) -> String {
    let field = fields.get(key);
    if field.is_none() && given.is_none() {
        reader.missing(fields, key);
    }
    let read = field.and_then(|field| read(&field, reader));
    given.map(str::to_owned).or(read).unwrap_or_default()
}

fn slug(field: &Field<'_>, reader: &mut Reader) -> Option<String> {
    reader.text_that(field, is_slug, "can't name a pipeline; use 1 to 63 of a-z, 0-9 and -, with no - at either end")
}

fn git_ref(field: &Field<'_>, reader: &mut Reader) -> Option<String> {
    reader.text_that(field, runnable::is_ref, "is not a branch, tag or commit that git accepts")
}

fn repository(field: &Field<'_>, reader: &mut Reader) -> Option<String> {
    let address = reader.text(field)?;
    let what = match runnable::repository(&address) {
        Ok(()) => return Some(address),
        Err(BadRepository::Credentials) => {
            "holds a user name or a password; keep those in a secret, and name it in \
                                            clone_secret"
        }
        Err(BadRepository::NotHttps) => "is not an https:// address; nothing else is cloned",
        Err(BadRepository::Malformed) => "is not an address to clone from; write https://host/path",
    };
    reader.refuse(field, what);
    None
}

fn secret(field: &Field<'_>, reader: &mut Reader) -> Option<String> {
    let name = reader.text(field)?;
    if is_env_name(&name) {
        return Some(name);
    }
    reader.refuse(field, "is not the name of a secret (a letter or _, then letters, digits and _)");
    None
}

fn secrets(field: &Field<'_>, reader: &mut Reader) -> Vec<String> {
    let items = reader.items(field);
    at_most(ENV_MAX, items.len(), field, reader);
    once(&items, secret, reader)
}

fn labels(field: &Field<'_>, reader: &mut Reader) -> Vec<String> {
    let what = "is not a label; write a word such as arch=arm64";
    let items = reader.items(field);
    at_most(LABELS_MAX, items.len(), field, reader);
    once(&items, |item, reader| reader.text_that(item, is_label, what), reader)
}

/// The items as `read` has them, each once.
fn once<'n>(
    items: &[Field<'n>],
    read: impl Fn(&Field<'n>, &mut Reader) -> Option<String>,
    reader: &mut Reader,
) -> Vec<String> {
    let (fields, words): (Vec<_>, Vec<_>) = items.iter().filter_map(|item| Some((item, read(item, reader)?))).unzip();
    for at in repeated(&words) {
        reader.refuse(fields[at], "stands in the list before");
    }
    words
}

fn registries(field: &Field<'_>, reader: &mut Reader) -> BTreeMap<String, String> {
    let entries = reader.entries(field);
    at_most(LABELS_MAX, entries.len(), field, reader);
    for entry in entries.iter().filter(|entry| !is_registry(entry.name())) {
        reader.refuse(entry, "is not a registry; write its host, such as ghcr.io");
    }
    entries.iter().filter_map(|entry| Some((entry.name().to_owned(), secret(entry, reader)?))).collect()
}

fn at_most(most: usize, count: usize, field: &Field<'_>, reader: &mut Reader) {
    if count > most {
        reader.refuse(field, format!("holds {count}; at most {most}"));
    }
}
