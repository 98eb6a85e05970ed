//! What the OpenAPI document says of a call, so that every answer of every test is compared with it.

use http::{Method, StatusCode};
use serde_json::Value;
use std::sync::LazyLock;

static DOCUMENT: LazyLock<Value> =
    LazyLock::new(|| serde_json::from_str(protocol::OPENAPI).expect("the document is JSON"));

/// Holds the document to an answer: the call's description lists its status.
///
/// # Panics
///
/// If it does not. Of addresses and methods that it does not know it need not say anything.
pub fn assert_lists(method: &Method, path: &str, status: StatusCode) {
    let Some(operation) = operation(method, path) else { return };
    let listed = operation["responses"].get(status.as_str()).is_some();
    assert!(listed, "{method} {path} answers {status}, which the OpenAPI document does not list");
}

fn operation(method: &Method, path: &str) -> Option<&'static Value> {
    let paths = DOCUMENT["paths"].as_object()?;
    let exact = |template: &str| !template.contains('{');
    let mut fitting: Vec<_> = paths.iter().filter(|(template, _)| fits(template, path)).collect();
    fitting.sort_by_key(|(template, _)| !exact(template));
    fitting.first()?.1.get(method.as_str().to_lowercase())
}

fn fits(template: &str, path: &str) -> bool {
    let (mut template, mut path) = (template.split('/'), path.split('/'));
    loop {
        match (template.next(), path.next()) {
            (None, None) => return true,
            (Some(part), Some(given)) if part == given || (part.starts_with('{') && !given.is_empty()) => {}
            (Some(_) | None, _) => return false,
        }
    }
}
