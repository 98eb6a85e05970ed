//! What a host says of a preview, what that changes, and what the host is told.

use super::{Stage, State, WaitingFor};
use crate::status::words;
use serde::{Deserialize, Deserializer};

words! {
    /// How a host finds one of its previews.
    Seen {
        /// The build's workspace is here; nothing runs, nothing is bound.
        Kept = "kept",
        /// It is being started.
        Starting = "starting",
        /// Its health path answers.
        Running = "running",
        /// It could not be started or kept up; nothing runs.
        Failed = "failed",
        /// It is being torn down, or that has gone wrong so far.
        Destroying = "destroying",
        /// Nothing of it runs or is bound; its directory may still be here.
        Destroyed = "destroyed",
    }
}

words! {
    /// What a host is told of a preview.
    Order {
        /// Keep the workspace, and do nothing yet.
        Wait = "wait",
        /// Start the service, and bind a port for it.
        Start = "start",
        /// It is as it should be, or on its way there.
        Keep = "keep",
        /// Another preview of this host holds the port: bind another one.
        Rebind = "rebind",
        /// End the service; keep its log and its directory.
        Stop = "stop",
        /// End the service and whatever else runs, and free the port. The directory stays.
        Destroy = "destroy",
        /// The board keeps nothing of it for this host: end it and remove its directory.
        Forget = "forget",
    }
}

impl<'de> Deserialize<'de> for Seen {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let expected = "not how a preview is: kept, starting, running, failed, destroying or destroyed";
        Self::parse(&String::deserialize(from)?).ok_or_else(|| serde::de::Error::custom(expected))
    }
}

/// An order of a newer release reads as `keep`: a host never ends what it was not clearly told to end.
impl<'de> Deserialize<'de> for Order {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        Ok(Self::parse(&String::deserialize(from)?).unwrap_or(Self::Keep))
    }
}

/// A preview as the board has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Held {
    /// Its state.
    pub state: State,
    /// Raised by every change.
    pub version: i64,
    /// Whether a host has taken it up.
    pub adopted: bool,
    /// Whether it has one of its workspace's places.
    pub placed: bool,
    /// Whether its workspace had a place free when the row was read.
    pub room: bool,
    /// The port that is leased for it.
    pub port: Option<u16>,
    /// What it waits for.
    pub waiting: Option<WaitingFor>,
    /// What its host last said to people.
    pub message: Option<String>,
}

/// What a host says of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Said {
    /// How it is.
    pub seen: Seen,
    /// The version that the host was last told; `None`: it was told of none yet.
    pub version: Option<i64>,
    /// At what it failed.
    pub stage: Option<Stage>,
    /// The port that is bound for it, or that was and can't be bound again; `None` once it is free.
    pub port: Option<u16>,
    /// Whether every port of the host's range is taken.
    pub no_port: bool,
    /// What is the matter, for people.
    pub message: Option<String>,
}

/// What a row is to be after a report.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Next {
    /// Its state.
    pub state: State,
    /// At what it failed, if it does so now.
    pub stage: Option<Stage>,
    /// The port to hold a lease of. If another preview holds it, the row stays in its state without one.
    pub port: Option<u16>,
    /// What it waits for; if there turns out to be no place, `quota`.
    pub waiting: Option<WaitingFor>,
    /// Whether it is to get a place.
    pub place: bool,
    /// What is told to people.
    pub message: Option<String>,
}

/// Decides what a report changes; `None`: nothing, because all is as it was, or because the host did not know the row as it is.
#[must_use]
pub fn take_in(held: &Held, said: &Said) -> Option<Next> {
    if held.state.is_final() || (held.adopted && said.version != Some(held.version)) {
        return None;
    }
    let (state, stage) = moved(held, said);
    let waits = state == State::Starting;
    let place = waits && !held.placed && held.room;
    let next = Next {
        state,
        stage,
        port: port(state, held.port, said.port),
        waiting: match () {
            () if !waits => None,
            () if !held.placed && !place => Some(WaitingFor::Quota),
            () => said.no_port.then_some(WaitingFor::Port),
        },
        place,
        message: message(state, held, said),
    };
    let same = next.state == held.state
        && next.port == held.port
        && next.waiting == held.waiting
        && next.message == held.message;
    (!held.adopted || !same || place).then_some(next)
}

/// Where a report moves the row, and the stage of a failure. What should run and does not has failed; how, the host may know.
fn moved(held: &Held, said: &Said) -> (State, Option<Stage>) {
    let failed = |stage: Stage| (State::Failed, Some(said.stage.unwrap_or(stage)));
    match (held.state, said.seen) {
        (State::Starting, Seen::Running) if held.placed && said.port.is_some() => (State::Running, None),
        (State::Starting, Seen::Failed) => failed(Stage::Start),
        (State::Running, Seen::Failed) => failed(Stage::Run),
        (State::Starting | State::Running, Seen::Destroying | Seen::Destroyed) | (State::Running, Seen::Kept) => {
            failed(Stage::Recovery)
        }
        (State::Destroying, Seen::Destroyed) if said.port.is_none() => (State::Destroyed, None),
        (
            State::Starting | State::Running | State::Expired | State::Destroying | State::Destroyed | State::Failed,
            Seen::Kept | Seen::Starting | Seen::Running | Seen::Failed | Seen::Destroying | Seen::Destroyed,
        ) => (held.state, None),
    }
}

/// A port is leased for what lives. What has ended keeps the lease it has until its host says that the port is free.
fn port(state: State, leased: Option<u16>, bound: Option<u16>) -> Option<u16> {
    if state.is_live() { bound } else { leased.filter(|_| bound.is_some()) }
}

/// What a failure or a teardown is about stays to be read; what else a host says in passing is not kept.
fn message(state: State, held: &Held, said: &Said) -> Option<String> {
    match state {
        State::Starting | State::Running => None,
        State::Failed if held.state != State::Failed => said.message.clone(),
        State::Destroying => said.message.clone().or_else(|| held.message.clone()),
        State::Failed | State::Expired | State::Destroyed => held.message.clone(),
    }
}

/// Decides what a host is told of a preview. `held`: the row, unless there is none or it is another host's; `build_runs`: its
/// build has not ended, so that there can be none yet.
#[must_use]
pub fn order(held: Option<&Held>, seen: Option<Seen>, build_runs: bool) -> Order {
    let Some(held) = held else { return if build_runs { Order::Wait } else { Order::Forget } };
    match held.state {
        State::Starting if !held.placed => Order::Wait,
        State::Starting if matches!(seen, None | Some(Seen::Kept)) => Order::Start,
        State::Starting | State::Running | State::Expired => Order::Keep,
        State::Failed if matches!(seen, Some(Seen::Starting | Seen::Running)) => Order::Stop,
        State::Failed => Order::Keep,
        State::Destroying => Order::Destroy,
        State::Destroyed if matches!(seen, None | Some(Seen::Kept | Seen::Destroyed)) => Order::Keep,
        State::Destroyed => Order::Destroy,
    }
}

#[cfg(test)]
#[path = "host_tests.rs"]
mod tests;
