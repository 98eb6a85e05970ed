//! The trace that a call belongs to. It stands as `trace.id` in the span of the call's request, and so in each of its log lines.

use axum::extract::FromRequestParts;
use http::HeaderMap;
use http::request::Parts;
use protocol::trace::{TRACEPARENT, Traceparent};
use std::convert::Infallible;
use tracing::Span;
use tracing::field::display;

/// The field of a request's span that has the id.
const FIELD: &str = "trace.id";

/// What a caller says; nothing where it says it wrongly, or twice: that is no reason to refuse a call.
pub(crate) fn given(headers: &HeaderMap) -> Option<Traceparent> {
    let mut values = headers.get_all(TRACEPARENT).iter();
    let (value, None) = (values.next()?, values.next()) else { return None };
    Traceparent::parse(value.to_str().ok()?)
}

/// Has what follows of this request's log lines belong to that trace.
pub fn note(traceparent: Traceparent) {
    Span::current().record(FIELD, display(traceparent.trace_id()));
}

/// The trace that a new build is to belong to: its caller's, else one of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Trace(pub Traceparent);

impl<S: Send + Sync> FromRequestParts<S> for Trace {
    type Rejection = Infallible;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Infallible> {
        Ok(Self(given(&parts.headers).unwrap_or_else(|| {
            let made = Traceparent::random(rand::random(), rand::random());
            note(made);
            made
        })))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::{HeaderValue, Request};

    const GIVEN: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";

    async fn trace(values: &[&str]) -> Traceparent {
        let values = values.iter().map(|value| HeaderValue::from_bytes(value.as_bytes()).expect("a value"));
        let (mut parts, ()) = Request::new(()).into_parts();
        for value in values {
            parts.headers.append(TRACEPARENT, value);
        }
        let Ok(Trace(trace)) = Trace::from_request_parts(&mut parts, &()).await;
        trace
    }

    #[tokio::test]
    async fn a_callers_trace_is_taken_where_it_is_said_once_and_rightly_and_else_each_has_its_own() {
        assert_eq!(trace(&[GIVEN]).await.to_string(), GIVEN);
        for wrong in [&[][..], &[""], &[GIVEN, GIVEN], &["00-é"], &[&GIVEN[1..]]] {
            let made = trace(wrong).await;
            assert_ne!(made.trace_id(), Traceparent::parse(GIVEN).expect("one").trace_id(), "{wrong:?}");
            assert_ne!(made, trace(wrong).await, "{wrong:?}");
        }
    }
}
