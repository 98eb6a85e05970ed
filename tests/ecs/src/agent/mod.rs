//! The life of a task: what the control plane and the machine of Fargate do ("Amazon ECS task lifecycle").

mod body;
mod end;
mod order;
mod reach;
mod site;
mod start;

pub(crate) use site::Site;

use crate::definition::Container;
use crate::ecs::{Ecs, now};
use crate::machine::{Ended, Image};
use crate::settings::{Settings, ms};
use crate::task::{Health, PartStatus, Status, Stop, Task};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::sleep;

/// How often what has no event of its own is looked at: health, and what waits for it.
const LOOK_EVERY: Duration = Duration::from_millis(200);
/// "OutOfMemoryError" is how a container's reason begins ("Stopped tasks error messages").
const OUT_OF_MEMORY: &str = "OutOfMemoryError: Container killed due to memory usage";

/// Where a container of a task stands.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Phase {
    Waiting,
    Running {
        since: Instant,
        health: Option<bool>,
    },
    /// With its exit code, if it ever ran.
    Ended(Option<i64>),
}

struct Life {
    ecs: Arc<Ecs>,
    id: String,
    settings: Settings,
    orders: watch::Receiver<Option<Stop>>,
    containers: Vec<Container>,
    images: Vec<Image>,
    phases: Vec<Phase>,
    site: Option<Site>,
    /// The containers that run, until they end.
    running: JoinSet<(usize, Ended)>,
}

/// Lives a task's life from PROVISIONING to STOPPED.
pub(crate) async fn live(ecs: Arc<Ecs>, id: String, orders: watch::Receiver<Option<Stop>>) {
    let settings = ecs.settings();
    let applied =
        |task: &mut Task| task.definition.containers.iter().map(|it| task.overrides.applied(it)).collect::<Vec<_>>();
    let Some(containers) = ecs.with(&id, applied) else { return };
    let phases = vec![Phase::Waiting; containers.len()];
    let (images, site, running) = (Vec::new(), None, JoinSet::new());
    let mut life = Life { ecs, id, settings, orders, containers, images, phases, site, running };
    let stop = match life.begin().await {
        Ok(()) => life.run().await,
        Err(stop) => stop,
    };
    life.set(|task| task.end(stop.clone(), now()));
    life.end(stop).await;
}

/// Waits until the task is to stop.
async fn ordered(orders: &mut watch::Receiver<Option<Stop>>) -> Stop {
    told(orders, |_| true).await
}

/// Waits until the task is to stop in such a way.
async fn told(orders: &mut watch::Receiver<Option<Stop>>, is_it: impl Fn(&Stop) -> bool) -> Stop {
    let heard = orders.wait_for(|stop| stop.as_ref().is_some_and(&is_it)).await.ok().and_then(|stop| stop.clone());
    match heard {
        Some(stop) => stop,
        None => std::future::pending().await,
    }
}

impl Life {
    fn set<T>(&self, change: impl FnOnce(&mut Task) -> T) -> Option<T> {
        self.ecs.with(&self.id, change)
    }

    /// Lets time pass, unless the task is to stop.
    async fn nap(&mut self, time: Duration) -> Result<(), Stop> {
        tokio::select! {
            biased;
            stop = ordered(&mut self.orders) => Err(stop),
            () = sleep(time) => Ok(()),
        }
    }

    /// All before the first container: the network's interface, images, volumes.
    async fn begin(&mut self) -> Result<(), Stop> {
        self.nap(ms(self.settings.provisioning_ms)).await?;
        self.set(|task| {
            task.states.push(Status::Pending);
            task.times.pull_started = Some(now());
        });
        self.pull().await?;
        self.nap(ms(self.settings.pulling_ms)).await?;
        self.set(|task| task.times.pull_stopped = Some(now()));
        let volumes = self.set(|task| task.definition.volumes.iter().map(|volume| volume.name.clone()).collect());
        let made = Site::make(&self.ecs.machine, &self.id, &self.settings, volumes.unwrap_or_default()).await;
        let failed = |why| Stop::new("TaskFailedToStart", format!("ResourceInitializationError: {why}"));
        self.site = Some(made.map_err(failed)?);
        Ok(())
    }

    /// Starts containers and sees them end, until the task is to stop.
    async fn run(&mut self) -> Stop {
        loop {
            if let Err(stop) = self.start_ready().await {
                return stop;
            }
            let is_up = !self.phases.contains(&Phase::Waiting);
            if is_up {
                self.is_up();
            }
            let looks = !is_up || self.containers.iter().any(|container| container.health_check.is_some());
            tokio::select! {
                biased;
                stop = ordered(&mut self.orders) => return stop,
                Some(Ok((place, ended))) = self.running.join_next() => {
                    self.note(place, ended);
                    if self.containers[place].essential {
                        return Stop::new("EssentialContainerExited", "Essential container in task exited");
                    }
                }
                () = sleep(LOOK_EVERY), if looks => self.look().await,
            }
        }
    }

    /// RUNNING is a task all of whose containers have been started.
    fn is_up(&self) {
        self.set(|task| {
            if task.status() == Status::Pending {
                task.states.push(Status::Running);
                task.times.started = Some(now());
            }
        });
    }

    /// Keeps what a container's end was.
    fn note(&mut self, place: usize, ended: Ended) {
        self.phases[place] = Phase::Ended(ended.exit_code);
        self.set(|task| {
            let part = &mut task.parts[place];
            part.status = PartStatus::Stopped;
            part.exit_code = ended.exit_code;
            part.reason = ended.is_out_of_memory.then(|| OUT_OF_MEMORY.to_owned());
            part.output = ended.output;
        });
    }

    /// Looks at the health of what has a check.
    async fn look(&mut self) {
        for place in 0..self.containers.len() {
            let Phase::Running { since, .. } = self.phases[place] else { continue };
            let (Some(_), Some(site)) = (&self.containers[place].health_check, &self.site) else { continue };
            let health = self.ecs.machine.is_healthy(&site.container(&self.containers[place].name)).await;
            self.phases[place] = Phase::Running { since, health };
            self.set(|task| {
                task.parts[place].health = match health {
                    Some(true) => Health::Healthy,
                    Some(false) => Health::Unhealthy,
                    None => Health::Unknown,
                };
            });
        }
    }
}
