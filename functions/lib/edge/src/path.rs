//! What stands in addresses and headers: ids and versions.

use crate::Rejection;
use axum::extract::{FromRequestParts, Path};
use http::HeaderMap;
use http::header::IF_MATCH;
use http::request::Parts;
use uuid::Uuid;

/// An id in an address.
///
/// # Errors
///
/// [`Rejection::BadRequest`] if it is not a UUID in its hyphenated form.
pub fn uuid(text: &str) -> Result<Uuid, Rejection> {
    let none = || Rejection::BadRequest("the id in the address is not a UUID, or not in its hyphenated form".into());
    protocol::id::parse(text).ok_or_else(none)
}

/// The id in an address that has one: [`uuid()`], before the body is read.
#[derive(Clone, Copy, Debug)]
pub struct Id(pub Uuid);

impl<S: Send + Sync> FromRequestParts<S> for Id {
    type Rejection = Rejection;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Rejection> {
        let unread = |_| Rejection::BadRequest("the id in the address is not text".into());
        let Path(text) = Path::<String>::from_request_parts(parts, state).await.map_err(unread)?;
        uuid(&text).map(Self)
    }
}

/// The version of `If-Match: "<version>"`; `None` if there is no such header, or it is `*`.
///
/// # Errors
///
/// [`Rejection::BadRequest`] if it is neither.
pub fn if_match(headers: &HeaderMap) -> Result<Option<i64>, Rejection> {
    let Some(value) = headers.get(IF_MATCH) else { return Ok(None) };
    let text = value.to_str().unwrap_or("").trim();
    if text == "*" {
        return Ok(None);
    }
    let quoted = text.strip_prefix('"').and_then(|rest| rest.strip_suffix('"')).and_then(|digits| digits.parse().ok());
    quoted.map(Some).ok_or_else(|| Rejection::BadRequest("If-Match is not a quoted version, such as \"3\"".into()))
}
