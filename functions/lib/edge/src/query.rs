//! What stands behind the `?` of an address: a call takes the parameters that it describes, each once, and no other, as it
//! takes no unknown field in its body.

use crate::Rejection;
use axum::extract::{MatchedPath, Query, Request};
use axum::http::Method;
use axum::http::request::Parts;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;
use utoipa::openapi::OpenApi;
use utoipa::openapi::path::{Operation, ParameterIn};

/// How much of a name that nobody knows is repeated.
const SHOWN_MAX: usize = 64;

/// The parameters that the call of a request takes.
#[derive(Clone, Debug, Default)]
struct Taken(Arc<BTreeSet<String>>);

/// The parameters of every call, by its address.
#[derive(Clone, Debug)]
pub(crate) struct Calls(Arc<BTreeMap<String, HashMap<Method, Taken>>>);

impl Calls {
    /// Those that a document describes.
    pub(crate) fn of(document: &OpenApi) -> Self {
        let paths = document.paths.paths.iter().map(|(path, item)| {
            let methods = [
                (Method::GET, &item.get),
                (Method::PUT, &item.put),
                (Method::POST, &item.post),
                (Method::DELETE, &item.delete),
            ];
            let described = methods.into_iter().filter_map(|(method, operation)| Some((method, operation.as_ref()?)));
            (path.clone(), described.map(|(method, operation)| (method, taken_by(operation))).collect())
        });
        Self(Arc::new(paths.collect()))
    }

    /// Notes on a request what its call takes, for [`check`].
    pub(crate) fn mark(&self, request: &mut Request) {
        let path = request.extensions().get::<MatchedPath>().map(MatchedPath::as_str);
        // Whoever asks for the head of an answer asks as for all of it.
        let method = if request.method() == Method::HEAD { &Method::GET } else { request.method() };
        let taken = path.and_then(|path| self.0.get(path)?.get(method)).cloned();
        request.extensions_mut().insert(taken.unwrap_or_default());
    }
}

fn taken_by(operation: &Operation) -> Taken {
    let parameters = operation.parameters.iter().flatten();
    let named = parameters.filter(|parameter| parameter.parameter_in == ParameterIn::Query);
    Taken(Arc::new(named.map(|parameter| parameter.name.clone()).collect()))
}

/// Whether a request holds only what its call takes.
///
/// # Errors
///
/// [`Rejection::BadRequest`] that names a parameter that nobody knows, or that stands there twice.
pub(crate) fn check(parts: &Parts) -> Result<(), Rejection> {
    let taken = parts.extensions.get::<Taken>().cloned().unwrap_or_default();
    let Query(given) = Query::<Vec<(String, String)>>::try_from_uri(&parts.uri)
        .map_err(|_| Rejection::BadRequest("what stands behind the ? can't be read".into()))?;
    let mut seen = BTreeSet::new();
    for (name, _) in given {
        if !taken.0.contains(&name) {
            return Err(Rejection::BadRequest(unknown(&name, &taken.0)));
        }
        if !seen.insert(name.clone()) {
            return Err(Rejection::BadRequest(format!("`{name}` stands behind the ? more than once")));
        }
    }
    Ok(())
}

fn unknown(name: &str, taken: &BTreeSet<String>) -> String {
    let name = &name[..name.floor_char_boundary(SHOWN_MAX)];
    let known: Vec<_> = taken.iter().map(|known| format!("`{known}`")).collect();
    match known.as_slice() {
        [] => format!("unknown parameter `{name}`: this call takes none behind the ?"),
        known => format!("unknown parameter `{name}`, expected {}", known.join(" or ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(uri: &str) -> Result<(), String> {
        let (mut parts, ()) = Request::builder().uri(uri).body(()).unwrap().into_parts();
        parts.extensions.insert(Taken(Arc::new(["limit", "status"].map(str::to_owned).into())));
        super::check(&parts).map_err(|refused| refused.problem().detail.unwrap_or_default())
    }

    #[test]
    fn a_call_takes_what_it_describes_once() {
        assert_eq!(["/x", "/x?", "/x?limit=1&status=", "/x?l%69mit=1"].map(check), [const { Ok(()) }; 4]);
        let unknown = |name: &str| Err(format!("unknown parameter `{name}`, expected `limit` or `status`"));
        assert_eq!(check("/x?limit=1&colour=red"), unknown("colour"));
        assert_eq!(check("/x?Limit=1"), unknown("Limit"));
        assert_eq!(check(&format!("/x?{}=1", "é".repeat(99).replace('é', "%C3%A9"))), unknown(&"é".repeat(32)));
        assert_eq!(check("/x?limit=1&limit=1"), Err("`limit` stands behind the ? more than once".into()));
    }

    #[test]
    fn a_call_that_describes_none_takes_none() {
        let (parts, ()) = Request::builder().uri("/x?a=1").body(()).unwrap().into_parts();
        let refused = super::check(&parts).unwrap_err().problem();
        assert_eq!(refused.detail.as_deref(), Some("unknown parameter `a`: this call takes none behind the ?"));
    }
}
