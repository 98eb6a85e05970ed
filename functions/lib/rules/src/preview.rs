//! Live previews: their states and who may change them, when they expire, and what a host's report means (SPEC.md, 4).
//!
//! The board holds what is wanted; a host says how things are and is told what each of its previews is to become. A report
//! counts only if it was made by somebody who knew the row as it is now: it names the row's version. So a doubled, late or
//! overtaken report changes nothing.

mod expiry;
mod host;

pub use expiry::{Extension, due, extend, is_cleanup_due};
pub use host::{Held, Next, Order, Said, Seen, order, take_in};

use crate::status::words;
use serde::{Deserialize, Deserializer};

words! {
    /// The state of a preview. `destroyed` is final.
    State {
        /// Its build succeeded; it has no service yet that answers.
        Starting = "starting",
        /// Its health path answers.
        Running = "running",
        /// Its time is over.
        Expired = "expired",
        /// Its host is to end it.
        Destroying = "destroying",
        /// Its host has ended it: nothing of it runs, and its port is free.
        Destroyed = "destroyed",
        /// It could not be started or kept up; see the stage.
        Failed = "failed",
    }
}

words! {
    /// At what a preview failed.
    Stage {
        /// It never answered on its health path.
        Start = "start",
        /// Its service ended, or stopped answering.
        Run = "run",
        /// A restart of the host or the worker found it missing or incomplete.
        Recovery = "recovery",
        /// Its worker has no back end that can hold a preview.
        Unsupported = "unsupported",
        /// Its host has not called for too long.
        HostLost = "host_lost",
        /// Our fault.
        Internal = "internal",
    }
}

words! {
    /// What a starting preview waits for.
    WaitingFor {
        /// The host that keeps its build's workspace has not called yet.
        Host = "host",
        /// The workspace has as many live previews as its plan allows.
        Quota = "quota",
        /// Every port of its host's range is taken.
        Port = "port",
    }
}

impl<'de> Deserialize<'de> for State {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let expected = "not a state: starting, running, expired, destroying, destroyed or failed";
        Self::parse(&String::deserialize(from)?).ok_or_else(|| serde::de::Error::custom(expected))
    }
}

/// An unknown stage reads as `internal`: workers and functions are upgraded apart.
impl<'de> Deserialize<'de> for Stage {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        Ok(Self::parse(&String::deserialize(from)?).unwrap_or(Self::Internal))
    }
}

/// An unknown word reads as `host`, of which there is always one to wait for.
impl<'de> Deserialize<'de> for WaitingFor {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        Ok(Self::parse(&String::deserialize(from)?).unwrap_or(Self::Host))
    }
}

/// Who moves a preview from one state to another.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Actor {
    /// The host that holds it, by a sync.
    Host,
    /// Somebody who destroys it.
    User,
    /// The scheduled clean-up.
    Scheduler,
}

impl Actor {
    /// Every one.
    pub const ALL: [Self; 3] = [Self::Host, Self::User, Self::Scheduler];
}

impl State {
    /// Whether nothing may change it any more.
    #[must_use]
    pub fn is_final(self) -> bool {
        self == Self::Destroyed
    }

    /// Whether it may hold one of its workspace's places, and may be extended.
    #[must_use]
    pub fn is_live(self) -> bool {
        match self {
            Self::Starting | Self::Running => true,
            Self::Expired | Self::Destroying | Self::Destroyed | Self::Failed => false,
        }
    }

    /// Whether `actor` may move a preview from `self` to `to` (SPEC.md, 4). The scheduler fails previews of a lost host, and
    /// confirms for hosts that never came or are forgotten.
    #[must_use]
    pub fn may_become(self, to: Self, actor: Actor) -> bool {
        match (self, to) {
            (Self::Starting, Self::Running) => actor == Actor::Host,
            (Self::Starting | Self::Running, Self::Failed) => matches!(actor, Actor::Host | Actor::Scheduler),
            (Self::Running, Self::Expired) => actor == Actor::Scheduler,
            (Self::Running, Self::Destroying) => actor == Actor::User,
            (Self::Starting | Self::Expired | Self::Failed, Self::Destroying) => {
                matches!(actor, Actor::User | Actor::Scheduler)
            }
            (Self::Destroying, Self::Destroyed) => matches!(actor, Actor::Host | Actor::Scheduler),
            (Self::Starting | Self::Running | Self::Expired | Self::Destroying | Self::Destroyed | Self::Failed, _) => {
                false
            }
        }
    }
}

/// Whether a destroy changes a preview in this state; one that is being destroyed, or is, stays as it is.
#[must_use]
pub fn destroys(state: State) -> bool {
    state.may_become(State::Destroying, Actor::User)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use proptest::sample::select;

    #[test]
    fn the_state_table_of_the_contract() {
        use State::{Destroyed, Destroying, Expired, Failed, Running, Starting};
        let mut allowed = Vec::new();
        for (from, to) in State::ALL.iter().flat_map(|from| State::ALL.iter().map(move |to| (*from, *to))) {
            let actors: Vec<_> = Actor::ALL.into_iter().filter(|actor| from.may_become(to, *actor)).collect();
            if !actors.is_empty() {
                allowed.push((from, to, actors));
            }
        }
        let (host, user, scheduler) = (Actor::Host, Actor::User, Actor::Scheduler);
        assert_eq!(
            allowed,
            [
                (Starting, Running, vec![host]),
                (Starting, Destroying, vec![user, scheduler]),
                (Starting, Failed, vec![host, scheduler]),
                (Running, Expired, vec![scheduler]),
                (Running, Destroying, vec![user]),
                (Running, Failed, vec![host, scheduler]),
                (Expired, Destroying, vec![user, scheduler]),
                (Destroying, Destroyed, vec![host, scheduler]),
                (Failed, Destroying, vec![user, scheduler]),
            ]
        );
    }

    #[test]
    fn a_destroy_takes_any_of_them_to_destroying_and_leaves_what_is_on_its_way() {
        for state in State::ALL {
            assert_eq!(destroys(*state), !matches!(state, State::Destroying | State::Destroyed), "{state}");
        }
    }

    #[test]
    fn words_of_a_newer_release_are_read_as_the_plainest() {
        fn read(word: &str) -> serde::de::value::StrDeserializer<'_, serde::de::value::Error> {
            serde::de::value::StrDeserializer::new(word)
        }
        assert_eq!(Stage::deserialize(read("teleport")), Ok(Stage::Internal));
        assert_eq!(WaitingFor::deserialize(read("godot")), Ok(WaitingFor::Host));
        assert!(State::deserialize(read("paused")).is_err());
    }

    proptest! {
        #[test]
        fn a_preview_ends_after_at_most_four_moves(moves in prop::collection::vec((select(State::ALL), select(&Actor::ALL)), 0..60)) {
            let (mut state, mut taken) = (State::Starting, 0);
            for (to, actor) in moves {
                if state.may_become(to, actor) {
                    state = to;
                    taken += 1;
                }
            }
            prop_assert!(taken <= 4);
        }
    }
}
