//! What is said of an end beside the outcome, cut to what is kept.

use protocol::build::StepResult;

/// The longest message kept, in bytes.
const MESSAGE_MAX_BYTES: usize = 1024;
/// The longest name of a step that is kept, in bytes.
const STEP_MAX_BYTES: usize = 256;

/// A report is never refused for what it says to people: that is cut to what can be stored. Nor for a commit that can't be one: refused, it
/// would come again as `internal`, or not at all, and the outcome would be lost.
pub(crate) fn tidy(message: &mut Option<String>, commit: &mut Option<String>, steps: &mut Vec<StepResult>) {
    if let Some(message) = message {
        cut(message, MESSAGE_MAX_BYTES);
    }
    *commit = commit.take().filter(|commit| rules::runnable::is_commit(commit));
    steps.truncate(rules::pipeline::STEPS_MAX + 1);
    for step in steps {
        cut(&mut step.name, STEP_MAX_BYTES);
    }
}

/// Without what Postgres can't store, and no longer than `max` bytes.
fn cut(text: &mut String, max: usize) {
    text.retain(|letter| letter != '\0');
    text.truncate(text.floor_char_boundary(max));
}
