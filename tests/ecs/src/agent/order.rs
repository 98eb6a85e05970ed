//! Which container may start when, and stop when ("ContainerDependency").

use super::Phase;
use crate::definition::{Condition, Container};
use crate::settings::Stopping;
use std::time::{Duration, Instant};

/// Whether a container may start.
#[derive(Debug, PartialEq)]
pub(super) enum Ready {
    Now,
    NotYet,
    /// With why not.
    Never(String),
}

/// Whether the container at `place` may start at `now`.
pub(super) fn ready(place: usize, containers: &[Container], phases: &[Phase], now: Instant) -> Ready {
    let mut found = Ready::Now;
    for dependency in &containers[place].depends_on {
        let Some(other) = containers.iter().position(|it| it.name == dependency.container_name) else { continue };
        match met(dependency.condition, &containers[other], phases[other], now) {
            Ready::Now => {}
            Ready::NotYet => found = Ready::NotYet,
            never @ Ready::Never(_) => return never,
        }
    }
    found
}

fn met(condition: Condition, other: &Container, phase: Phase, now: Instant) -> Ready {
    let never = |why: &str| Ready::Never(format!("dependency container {} {why}", other.name));
    match (condition, phase) {
        (Condition::Start, Phase::Running { .. } | Phase::Ended(_))
        | (Condition::Complete, Phase::Ended(_))
        | (Condition::Success, Phase::Ended(Some(0)))
        | (Condition::Healthy, Phase::Running { health: Some(true), .. }) => Ready::Now,
        (Condition::Success, Phase::Ended(_)) => never("did not exit successfully"),
        (Condition::Healthy, Phase::Ended(_)) => never("ended before it was healthy"),
        (Condition::Healthy, Phase::Running { health: Some(false), .. }) => never("is unhealthy"),
        // It gives up after the startTimeout of the other one ("ContainerDefinition", startTimeout).
        (_, Phase::Running { since, .. }) if is_late(other, since, now) => never("took longer than its startTimeout"),
        (_, Phase::Running { .. } | Phase::Waiting) => Ready::NotYet,
    }
}

fn is_late(other: &Container, since: Instant, now: Instant) -> bool {
    other.start_timeout.is_some_and(|seconds| now >= since + Duration::from_secs(seconds.into()))
}

/// Whether the container at `place` may be asked to end: for shutdown, dependencies are reversed.
pub(super) fn may_stop(place: usize, containers: &[Container], phases: &[Phase], stopping: Stopping) -> bool {
    let needs_it = |(other, phase): (&Container, &Phase)| {
        matches!(phase, Phase::Running { .. })
            && other.depends_on.iter().any(|it| it.container_name == containers[place].name)
    };
    stopping == Stopping::AtOnce || !containers.iter().zip(phases).any(needs_it)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::definition::Definition;
    use serde_json::json;

    /// Two containers, of which the second waits for the first one.
    fn containers(condition: &str) -> Vec<Container> {
        let body = json!({
            "family": "order",
            "containerDefinitions": [
                {
                    "name": "first", "image": "x", "memory": 6, "essential": false, "startTimeout": 2,
                    "healthCheck": { "command": ["CMD", "true"] },
                },
                {
                    "name": "second", "image": "x", "memory": 6,
                    "dependsOn": [{ "containerName": "first", "condition": condition }],
                },
            ],
        });
        Definition::read(&body).unwrap().containers
    }

    fn of(condition: &str, first: Phase, now: Instant) -> Ready {
        ready(1, &containers(condition), &[first, Phase::Waiting], now)
    }

    #[test]
    fn a_container_starts_when_its_condition_is_met() {
        let now = Instant::now();
        let running = |health| Phase::Running { since: now, health };
        for (condition, met) in [
            ("START", running(None)),
            ("HEALTHY", running(Some(true))),
            ("COMPLETE", Phase::Ended(Some(1))),
            ("SUCCESS", Phase::Ended(Some(0))),
        ] {
            assert_eq!(of(condition, Phase::Waiting, now), Ready::NotYet, "{condition}");
            assert_eq!(of(condition, met, now), Ready::Now, "{condition}");
        }
        for condition in ["HEALTHY", "COMPLETE", "SUCCESS"] {
            assert_eq!(of(condition, running(None), now), Ready::NotYet, "{condition}");
        }
    }

    #[test]
    fn a_container_gives_up_what_can_not_come() {
        let now = Instant::now();
        let running = |health| Phase::Running { since: now, health };
        for (condition, phase) in [
            ("SUCCESS", Phase::Ended(Some(1))),
            ("SUCCESS", Phase::Ended(None)),
            ("HEALTHY", Phase::Ended(Some(0))),
            ("HEALTHY", running(Some(false))),
        ] {
            assert!(matches!(of(condition, phase, now), Ready::Never(_)), "{condition} {phase:?}");
        }
        let later = |ms| now + Duration::from_millis(ms);
        assert_eq!(of("COMPLETE", running(None), later(1999)), Ready::NotYet);
        assert!(matches!(of("COMPLETE", running(None), later(2000)), Ready::Never(_)));
    }

    #[test]
    fn what_others_depend_on_stops_after_them() {
        let running = Phase::Running { since: Instant::now(), health: None };
        let may =
            |phases: [Phase; 2], stopping| [0, 1].map(|place| may_stop(place, &containers("START"), &phases, stopping));
        assert_eq!(may([running, running], Stopping::Reversed), [false, true]);
        assert_eq!(may([running, Phase::Ended(Some(0))], Stopping::Reversed), [true, true]);
        assert_eq!(may([running, Phase::Waiting], Stopping::Reversed), [true, true]);
        assert_eq!(may([running, running], Stopping::AtOnce), [true, true]);
    }
}
