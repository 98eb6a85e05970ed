//! What a task can't do for a build: refused before anything is started, never run weaker.

use super::definition::STEPS_MAX;
use crate::isolation::docker::{is_reference, registry};
use crate::outcome::Fail;
use protocol::EndReason;
use protocol::pipeline::{Network, Step};
use protocol::worker::Job;

/// The images of a build's rooms, in order: its steps', and then those of what it tidies up with.
#[must_use]
pub fn images(job: &Job) -> Vec<&str> {
    steps(job).map(|step| step.image.as_str()).collect()
}

fn steps(job: &Job) -> impl Iterator<Item = &Step> {
    job.steps.iter().chain(&job.on_cancel)
}

/// Why `image` can't be had in a task, if it can't.
#[must_use]
pub fn refuses_image(image: &str) -> Option<String> {
    let is_none = image == "host" || !is_reference(image);
    is_none.then(|| format!("image {image:?} is not to be had on ECS, which runs images from a registry"))
}

/// Why `job` can't be run in a task, if it can't.
#[must_use]
pub fn refuses(job: &Job) -> Option<Fail> {
    let rooms = steps(job).count();
    if rooms > STEPS_MAX {
        // The pipeline's, not this worker's trouble: other builds go on.
        let why = format!(
            "the build has {rooms} steps with those that it tidies up with; a task of ECS has room for {STEPS_MAX}"
        );
        return Some(Fail::Told(EndReason::NeverStarted, why));
    }
    steps(job).find_map(|step| refuses_step(job, step))
}

fn refuses_step(job: &Job, step: &Step) -> Option<Fail> {
    let Step { name, image, network, .. } = step;
    if let Some(why) = refuses_image(image) {
        return Some(Fail::Image(why));
    }
    if *network == Network::None {
        let why =
            format!("step {name:?} is to have no network, which a container can't have apart from its task on ECS");
        return Some(Fail::Image(why));
    }
    // What registries are shown would have to be where everybody who describes definitions reads it.
    let shown = registry(image);
    let is_secret = job.registry_secrets.contains_key(shown);
    is_secret.then(|| Fail::Image(format!("image {image:?}: on ECS {shown} can't be shown a build's own secret")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::isolation::ecs::stub::{job, step};
    use protocol::worker::Secret;

    fn reason(job: &Job) -> Option<EndReason> {
        refuses(job).and_then(|fail| fail.outcome()).map(|outcome| outcome.reason)
    }

    #[test]
    fn a_build_has_as_many_rooms_as_steps_and_no_more_than_a_task_takes() {
        let steps = |count: usize| (0..count).map(|at| step(&format!("step-{at}"), "rust:1")).collect();
        let eight = Job { steps: steps(6), on_cancel: steps(2), ..job() };
        assert_eq!((reason(&eight), images(&eight).len()), (None, 8));
        let nine = Job { steps: steps(7), on_cancel: steps(2), ..job() };
        assert_eq!(reason(&nine), Some(EndReason::NeverStarted));
        assert!(!refuses(&nine).unwrap().is_ours(), "a pipeline's length is no trouble of the worker's");
    }

    #[test]
    fn what_a_task_can_not_give_is_refused() {
        let of = |steps| reason(&Job { steps, ..job() });
        assert_eq!(of(vec![step("a", "rust:1")]), None);
        assert_eq!(of(vec![step("a", "host")]), Some(EndReason::ImageFailed));
        assert_eq!(of(vec![step("a", "no image")]), Some(EndReason::ImageFailed));
        let sealed = Step { network: Network::None, ..step("a", "rust:1") };
        assert_eq!(of(vec![step("a", "rust:1"), sealed]), Some(EndReason::ImageFailed));
    }

    #[test]
    fn a_registry_that_wants_a_builds_own_secret_is_refused_and_another_is_not() {
        let secrets = [("ghcr.io".to_owned(), Secret("me:pass".into()))];
        let with = |image| Job { steps: vec![step("a", image)], registry_secrets: secrets.clone().into(), ..job() };
        assert_eq!(reason(&with("ghcr.io/a/b")), Some(EndReason::ImageFailed));
        assert_eq!(reason(&with("rust:1")), None);
    }
}
