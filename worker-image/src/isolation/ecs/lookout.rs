//! Looks at the tasks of all builds, a hundred a call, and tells each build what became of its own.

use super::calls::{Calls, Described, Seen};
use super::pace::FullJitter;
use crate::clock::Boot;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::{Notify, watch};
use tokio::task::JoinSet;
use tokio::time::sleep;
use tracing::warn;

/// How many tasks DescribeTasks takes.
pub(super) const CALL_MAX: usize = 100;
/// How often all are looked at.
const EVERY: Duration = Duration::from_secs(2);
/// How long ECS may not know a task before it is gone: what RunTask has made is not known everywhere at once.
const GONE_AFTER: Duration = Duration::from_secs(120);

/// What is known of a task.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum State {
    /// Nothing yet.
    #[default]
    Unseen,
    /// It was there.
    Seen(Box<Seen>),
    /// ECS knows no such task any more.
    Gone,
}

/// Looks as long as this lives.
#[derive(Debug)]
pub struct Lookout {
    tasks: Arc<Tasks>,
    _looking: JoinSet<()>,
}

/// The tasks that somebody waits for.
#[derive(Debug, Default)]
struct Tasks {
    watched: Mutex<BTreeMap<String, Watched>>,
    added: Notify,
}

#[derive(Debug, Default)]
struct Watched {
    state: watch::Sender<State>,
    missing_since: Option<Boot>,
}

/// One task that is looked at until this is dropped.
#[derive(Debug)]
pub struct Watch {
    tasks: Arc<Tasks>,
    arn: String,
    state: watch::Receiver<State>,
}

impl Lookout {
    /// Looks at what is to be watched, by `calls`.
    #[must_use]
    pub fn start(calls: Arc<dyn Calls>) -> Self {
        Self::every(EVERY, calls)
    }

    pub(super) fn every(every: Duration, calls: Arc<dyn Calls>) -> Self {
        let (tasks, mut looking) = (Arc::<Tasks>::default(), JoinSet::new());
        looking.spawn(look(Arc::clone(&tasks), calls, every));
        Self { tasks, _looking: looking }
    }

    /// Watches a task.
    #[must_use]
    pub fn watch(&self, arn: &str) -> Watch {
        let watched = Watched::default();
        let state = watched.state.subscribe();
        self.tasks.watched().insert(arn.to_owned(), watched);
        self.tasks.added.notify_one();
        Watch { tasks: Arc::clone(&self.tasks), arn: arn.to_owned(), state }
    }
}

impl Watch {
    /// Waits until all of its containers have ended, and calls `runs` once they are seen to run. None if it is gone.
    pub async fn over(&mut self, runs: impl Fn()) -> Option<Seen> {
        loop {
            let state = self.state.borrow_and_update().clone();
            match state {
                State::Unseen => {}
                State::Seen(seen) if seen.is_over() => return Some(*seen),
                State::Seen(seen) if seen.status == "RUNNING" => runs(),
                State::Seen(_) => {}
                State::Gone => return None,
            }
            if self.state.changed().await.is_err() {
                return None;
            }
        }
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.tasks.watched().remove(&self.arn);
    }
}

impl Tasks {
    fn watched(&self) -> MutexGuard<'_, BTreeMap<String, Watched>> {
        self.watched.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn arns(&self) -> Vec<String> {
        self.watched().keys().cloned().collect()
    }

    /// What DescribeTasks said at `now`.
    fn told(&self, described: Described, now: Boot) {
        let mut watched = self.watched();
        for seen in described.tasks {
            if let Some(task) = watched.get_mut(&seen.arn) {
                task.missing_since = None;
                let state = State::Seen(Box::new(seen));
                task.state.send_if_modified(|old| std::mem::replace(old, state.clone()) != state);
            }
        }
        for arn in described.missing {
            let Some(task) = watched.get_mut(&arn) else { continue };
            if now.since(*task.missing_since.get_or_insert(now)) >= GONE_AFTER {
                task.state.send_replace(State::Gone);
            }
        }
    }
}

impl Drop for Tasks {
    fn drop(&mut self) {
        self.watched().clear();
    }
}

async fn look(tasks: Arc<Tasks>, calls: Arc<dyn Calls>, every: Duration) {
    let mut waits = FullJitter::default();
    loop {
        let arns = tasks.arns();
        if arns.is_empty() {
            tasks.added.notified().await;
            continue;
        }
        for some in arns.chunks(CALL_MAX) {
            match calls.describe(some).await {
                Ok(described) => {
                    waits = FullJitter::default();
                    tasks.told(described, Boot::now());
                }
                Err(trouble) => {
                    warn!(%trouble, "tasks can't be looked at; it is tried again");
                    sleep(waits.next_wait()).await;
                }
            }
        }
        sleep(every).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::isolation::ecs::calls::Trouble;
    use crate::isolation::ecs::stub::Stub;

    const NOW: Boot = Boot(1_000_000);

    fn seen(arn: &str, status: &str) -> Seen {
        Seen { arn: arn.into(), status: status.into(), ..Seen::default() }
    }

    fn missing(arn: &str) -> Described {
        Described { tasks: Vec::new(), missing: vec![arn.into()] }
    }

    fn watched(arn: &str) -> (Arc<Tasks>, watch::Receiver<State>) {
        let (tasks, watched) = (Arc::<Tasks>::default(), Watched::default());
        let state = watched.state.subscribe();
        tasks.watched().insert(arn.into(), watched);
        (tasks, state)
    }

    #[test]
    fn a_task_that_was_just_made_may_be_missing_for_a_while() {
        let (tasks, state) = watched("a");
        tasks.told(missing("a"), NOW);
        tasks.told(missing("a"), NOW.plus(GONE_AFTER - Duration::from_millis(1)));
        assert_eq!(*state.borrow(), State::Unseen);
        tasks.told(missing("a"), NOW.plus(GONE_AFTER));
        assert_eq!(*state.borrow(), State::Gone);
    }

    #[test]
    fn one_that_was_seen_in_between_is_not_gone() {
        let (tasks, state) = watched("a");
        tasks.told(missing("a"), NOW);
        tasks.told(Described { tasks: vec![seen("a", "PENDING")], missing: Vec::new() }, NOW.plus(GONE_AFTER));
        tasks.told(missing("a"), NOW.plus(GONE_AFTER));
        assert_eq!(*state.borrow(), State::Seen(Box::new(seen("a", "PENDING"))));
    }

    #[tokio::test]
    async fn many_are_looked_at_a_hundred_at_a_time_and_one_that_nobody_waits_for_no_more() {
        let stub = Arc::new(Stub::default());
        let lookout = Lookout::every(Duration::from_millis(1), Arc::<Stub>::clone(&stub));
        let arns: Vec<String> = (0..250).map(|number| format!("task-{number}")).collect();
        arns.iter().for_each(|arn| stub.put(seen(arn, "STOPPED")));
        let mut watches: Vec<Watch> = arns.iter().map(|arn| lookout.watch(arn)).collect();
        for watch in &mut watches {
            assert_eq!(watch.over(|| {}).await.map(|seen| seen.arn), Some(watch.arn.clone()));
        }
        assert!(stub.sizes().iter().all(|size| *size <= 100) && stub.sizes().contains(&100), "{:?}", stub.sizes());
        drop(watches);
        assert!(lookout.tasks.arns().is_empty());
    }

    #[tokio::test]
    async fn a_throttled_look_is_made_again() {
        let stub = Arc::new(Stub::default());
        stub.fail("DescribeTasks", Trouble::Throttled("slow down".into()));
        let lookout = Lookout::every(Duration::from_millis(1), Arc::<Stub>::clone(&stub));
        stub.put(seen("a", "DEPROVISIONING"));
        assert!(lookout.watch("a").over(|| {}).await.is_some());
    }
}
