//! May this build enter the queue? Submit, retry, and taking it back: cancel (SPEC.md, Admission).

mod admit;
mod cancel;
mod submit;

use edge::Routes;
use utoipa_axum::routes;

/// The routes of this function.
pub fn routes() -> Routes {
    Routes::new().routes(routes!(submit::submit)).routes(routes!(submit::retry)).routes(routes!(cancel::cancel))
}
