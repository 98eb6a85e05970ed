//! What a 404 says: what was not found, by the address it was looked for at, and where those that there are can be seen. It
//! is the same for what does not exist and for what is another's.

/// By the beginning of a route; the first that fits counts.
const THINGS: &[(&str, &str)] = &[
    ("/api/v1/builds", "no such build; GET /api/v1/builds lists those there are"),
    ("/api/v1/pipelines", "no such pipeline; GET /api/v1/pipelines lists those there are"),
    ("/api/v1/previews", "no such preview; GET /api/v1/previews lists those there are"),
    ("/api/v1/secrets", "no such secret; GET /api/v1/secrets lists those there are"),
    ("/api/v1/workspace", "no such workspace any more; an operator can make it again"),
    (
        "/api/v1/admin/workspaces/{slug}/plan",
        "no such workspace, or one without a plan; GET /api/v1/admin/workspaces lists those there are",
    ),
    ("/api/v1/admin/workspaces", "no such workspace; GET /api/v1/admin/workspaces lists those there are"),
    ("/api/v1/admin/tokens", "no such token; GET /api/v1/admin/tokens lists those there are"),
    ("/internal/worker/builds", "no such build that this token claimed"),
];

/// What was not found at a route of ours.
pub(crate) fn missing(route: &str) -> &'static str {
    let found = THINGS.iter().find(|(begin, _)| route.starts_with(begin));
    found.map_or("no such thing here; /openapi.json lists the addresses", |(_, words)| words)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_missing_is_named_with_where_the_others_are_listed() {
        for (route, words) in [
            ("/api/v1/builds/{id}/cancel", "no such build; GET /api/v1/builds lists"),
            ("/api/v1/pipelines/{slug}", "no such pipeline; GET /api/v1/pipelines lists"),
            ("/api/v1/secrets/{name}", "no such secret; GET /api/v1/secrets lists"),
            ("/api/v1/previews/{id}", "no such preview; GET /api/v1/previews lists"),
            ("/api/v1/admin/tokens/{id}", "no such token; GET /api/v1/admin/tokens lists"),
            ("/api/v1/admin/workspaces/{slug}", "no such workspace; GET /api/v1/admin/workspaces lists"),
            ("/api/v1/admin/workspaces/{slug}/plan", "no such workspace, or one without a plan; GET"),
            ("/internal/worker/builds/{id}/complete", "no such build that this token claimed"),
            ("-", "no such thing here"),
        ] {
            assert!(missing(route).starts_with(words), "{route}: {}", missing(route));
        }
    }
}
