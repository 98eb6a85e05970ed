//! What goes wrong when a test says so.

use serde::{Deserialize, Serialize};

/// A fault: one that waits for the calls it is for, or, of the last two kinds, one that happens to a task at once.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "kind", deny_unknown_fields)]
pub enum Fault {
    /// The next calls of `action` are answered 500, and nothing is done.
    ServerError {
        /// Such as `RunTask`.
        action: String,
        /// How many calls.
        times: u32,
    },
    /// The next calls of `action` are throttled, and nothing is done.
    Throttled {
        /// Such as `RunTask`.
        action: String,
        /// How many calls.
        times: u32,
    },
    /// The next calls of `action` are done, and their connection ends without an answer.
    LostAnswer {
        /// Such as `RunTask`.
        action: String,
        /// How many calls.
        times: u32,
    },
    /// The next RunTasks place nothing, and say so in `failures`.
    NotPlaced {
        /// Such as `RESOURCE:CPU` ("API failure reasons").
        reason: String,
        /// How many calls.
        times: u32,
    },
    /// The image can't be pulled for the next tasks that have it, as if the registry didn't have it.
    Unpullable {
        /// As definitions name it.
        image: String,
        /// How many tasks.
        times: u32,
    },
    /// Spot takes the task's machine back: SIGTERM to its containers, then `SpotInterruption`.
    SpotInterruption {
        /// The task's id or ARN.
        task: String,
    },
    /// The task's machine is gone with all that ran there: no signal, no exit codes.
    HostLost {
        /// The task's id or ARN.
        task: String,
    },
}

impl Fault {
    fn times(&mut self) -> Option<&mut u32> {
        match self {
            Self::ServerError { times, .. }
            | Self::Throttled { times, .. }
            | Self::LostAnswer { times, .. }
            | Self::NotPlaced { times, .. }
            | Self::Unpullable { times, .. } => Some(times),
            Self::SpotInterruption { .. } | Self::HostLost { .. } => None,
        }
    }
}

/// The faults that wait.
#[derive(Debug, Default)]
pub(crate) struct Waiting(Vec<Fault>);

impl Waiting {
    pub(crate) fn add(&mut self, fault: Fault) {
        self.0.push(fault);
    }

    /// Takes one that `is_it`, so that it happens once less.
    pub(crate) fn take(&mut self, is_it: impl Fn(&Fault) -> bool) -> Option<Fault> {
        let place =
            self.0.iter_mut().position(|fault| is_it(fault) && fault.times().is_some_and(|times| *times > 0))?;
        let fault = &mut self.0[place];
        if let Some(times) = fault.times() {
            *times -= 1;
        }
        Some(fault.clone())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fault_happens_as_often_as_it_was_told() {
        let mut waiting = Waiting::default();
        waiting.add(Fault::NotPlaced { reason: "RESOURCE:CPU".into(), times: 2 });
        waiting.add(Fault::LostAnswer { action: "RunTask".into(), times: 1 });
        let mut taken = || waiting.take(|fault| matches!(fault, Fault::NotPlaced { .. })).is_some();
        assert_eq!([taken(), taken(), taken()], [true, true, false]);
        assert!(
            waiting.take(|fault| matches!(fault, Fault::LostAnswer { action, .. } if action == "RunTask")).is_some()
        );
    }
}
