//! Bodies as JSON: every way to get one wrong is told apart, with the place in it.

use crate::Rejection;
use axum::body::Bytes;
use axum::extract::{FromRequest, OptionalFromRequest, Request};
use axum::response::{IntoResponse, Response};
use http::header::CONTENT_TYPE;
use http::{HeaderMap, StatusCode};
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::time::Duration;
use tokio::time::timeout;

/// How long a body may take to come. A request that never ends would hold its connection as long as its caller likes.
const BODY_WAIT: Duration = Duration::from_secs(60);

/// A body of JSON, received or sent.
#[derive(Clone, Copy, Debug)]
pub struct Json<T>(pub T);

impl<T: DeserializeOwned, S: Send + Sync> FromRequest<S> for Json<T> {
    type Rejection = Rejection;

    async fn from_request(request: Request, state: &S) -> Result<Self, Rejection> {
        if !is_json(request.headers()) {
            return Err(Rejection::UnsupportedMediaType);
        }
        parse(&whole(request, state).await?).map(Self)
    }
}

/// A body that may be absent: `None` if there is not a byte of it.
impl<T: DeserializeOwned, S: Send + Sync> OptionalFromRequest<S> for Json<T> {
    type Rejection = Rejection;

    async fn from_request(request: Request, state: &S) -> Result<Option<Self>, Rejection> {
        let is_json = is_json(request.headers());
        match &whole(request, state).await?[..] {
            [] => Ok(None),
            _ if !is_json => Err(Rejection::UnsupportedMediaType),
            bytes => parse(bytes).map(Self).map(Some),
        }
    }
}

async fn whole<S: Send + Sync>(request: Request, state: &S) -> Result<Bytes, Rejection> {
    let late = |_| Rejection::BadRequest(format!("the body did not come within {} s", BODY_WAIT.as_secs()));
    let came = timeout(BODY_WAIT, Bytes::from_request(request, state)).await.map_err(late)?;
    came.map_err(|refused| match refused.status() {
        StatusCode::PAYLOAD_TOO_LARGE => Rejection::TooLarge("the body is larger than this call allows".into()),
        _ => Rejection::BadRequest("the body ended early".into()),
    })
}

/// Whether a body is announced as JSON, which is UTF-8: in another charset it would be read as what it is not.
fn is_json(headers: &HeaderMap) -> bool {
    let kind = headers.get(CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or("");
    let mut parts = kind.split(';').map(str::trim);
    let is_utf8 = |parameter: &str| match parameter.split_once('=') {
        Some((name, value)) if name.trim().eq_ignore_ascii_case("charset") => {
            let value = value.trim().trim_matches('"');
            value.eq_ignore_ascii_case("utf-8") || value.eq_ignore_ascii_case("utf8")
        }
        Some(_) | None => true,
    };
    parts.next().is_some_and(|kind| kind.eq_ignore_ascii_case("application/json")) && parts.all(is_utf8)
}

/// Reads `bytes` as JSON.
///
/// # Errors
///
/// [`Rejection::BadRequest`] that says where and what. It does not repeat values: they may be secret.
pub fn parse<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, Rejection> {
    // serde takes a list for a struct as well: its fields in their order, without their names.
    if bytes.trim_ascii_start().first() == Some(&b'[') {
        return Err(Rejection::BadRequest("body: not an object".into()));
    }
    // Keeping track of the place costs as much as reading: it is kept only for a body that can't be read.
    if let Ok(value) = serde_json::from_slice(bytes) {
        return Ok(value);
    }
    let mut json = serde_json::Deserializer::from_slice(bytes);
    let value = serde_path_to_error::deserialize(&mut json).map_err(|error| {
        let (path, inner) = (error.path().to_string(), error.inner());
        Rejection::BadRequest(format!(
            "{} at line {} column {}: {}",
            if matches!(path.as_str(), "." | "?") { "body" } else { path.trim_end_matches(".?") },
            inner.line(),
            inner.column(),
            without_values(&inner.to_string()),
        ))
    })?;
    json.end().map_err(|_| Rejection::BadRequest("the body goes on after its JSON".into()))?;
    Ok(value)
}

/// serde's messages name the value that they met (`invalid type: string "…"`, ``unknown variant `…` ``): all but field names is
/// left out.
fn without_values(message: &str) -> String {
    let message = message.split(" at line ").next().unwrap_or("");
    if let Some(rest) = message.strip_prefix("unknown variant ") {
        let expected = rest.rsplit_once(", expected ").map_or("another word", |(_, expected)| expected);
        return format!("unknown variant, expected {expected}");
    }
    match message.split_once(": ") {
        Some((kind, rest)) if kind.starts_with("invalid") => match rest.rsplit_once(", expected ") {
            Some((_, expected)) => format!("{kind}, expected {expected}"),
            None => kind.to_owned(),
        },
        Some(_) | None => message.to_owned(),
    }
}

impl<T: Serialize> IntoResponse for Json<T> {
    fn into_response(self) -> Response {
        axum::Json(self.0).into_response()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn announced(kind: &str) -> bool {
        is_json(&HeaderMap::from_iter([(CONTENT_TYPE, kind.parse().unwrap())]))
    }

    #[tokio::test(start_paused = true)]
    async fn a_body_that_never_ends_is_not_waited_for_for_ever() {
        let body = axum::body::Body::from_stream(futures::stream::pending::<Result<Bytes, std::io::Error>>());
        let request = Request::builder().header(CONTENT_TYPE, "application/json").body(body).unwrap();
        let refused = <Json<u8> as FromRequest<()>>::from_request(request, &()).await.unwrap_err();
        assert!(matches!(refused, Rejection::BadRequest(why) if why == "the body did not come within 60 s"));
    }

    #[test]
    fn what_broke_off_before_any_field_is_the_body() {
        let refused = parse::<std::collections::BTreeMap<String, u8>>(b"{\"a\": ").unwrap_err();
        assert!(matches!(&refused, Rejection::BadRequest(why) if why.starts_with("a at line 1")), "{refused:?}");
        let refused = parse::<std::collections::BTreeMap<String, u8>>(b"{\"a\"").unwrap_err();
        assert!(matches!(&refused, Rejection::BadRequest(why) if !why.contains('?')), "{refused:?}");
    }

    #[test]
    fn json_is_utf8_whatever_else_is_said_of_it() {
        for fine in [
            "application/json",
            "Application/JSON ;charset=UTF-8",
            "application/json; charset=\"utf-8\"",
            "application/json; charset=utf8; profile=x",
        ] {
            assert!(announced(fine), "{fine}");
        }
        for bad in ["application/json; charset=latin1", "application/json;x=y; Charset = \"utf-16\"", "text/json", ""] {
            assert!(!announced(bad), "{bad}");
        }
    }
}
