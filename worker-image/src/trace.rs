//! The trace of a build in this worker's own log.

use protocol::trace::Traceparent;
use tracing::{Span, info_span};

/// What log lines about a build of this trace stand in; they have its id as `trace.id`.
#[must_use]
pub fn span(traceparent: Option<Traceparent>) -> Span {
    traceparent.map_or_else(Span::none, |traceparent| info_span!("build", trace.id = %traceparent.trace_id()))
}
