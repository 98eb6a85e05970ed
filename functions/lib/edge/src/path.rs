//! What stands in addresses and headers: ids and versions.

use crate::Rejection;
use http::HeaderMap;
use http::header::IF_MATCH;
use uuid::Uuid;

/// An id in an address.
///
/// # Errors
///
/// [`Rejection::BadRequest`] if it is not a UUID.
pub fn uuid(text: &str) -> Result<Uuid, Rejection> {
    Uuid::try_parse(text).map_err(|_| Rejection::BadRequest("the id in the address is not a UUID".into()))
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
