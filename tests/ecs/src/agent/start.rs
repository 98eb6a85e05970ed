//! How a task's containers come up.

use super::order::{Ready, ready};
use super::{Life, Phase, body};
use crate::faults::Fault;
use crate::machine::Image;
use crate::task::{PartStatus, Stop};
use futures::future::join_all;
use std::time::Instant;

/// What a container's start came to.
type Started = Result<String, String>;

impl Life {
    /// Finds the images of all containers. One that is not there ends the task before anything has run
    /// ("CannotPullContainer task errors").
    pub(super) async fn pull(&mut self) -> Result<(), Stop> {
        for place in 0..self.containers.len() {
            match self.image(&self.containers[place].image).await {
                Ok(image) => self.images.push(image),
                Err(why) => {
                    let why = format!("CannotPullContainerError: {why}");
                    self.set(|task| task.parts[place].reason = Some(why.clone()));
                    return Err(Stop::new("TaskFailedToStart", why));
                }
            }
        }
        Ok(())
    }

    async fn image(&self, name: &str) -> Result<Image, String> {
        let words =
            |why: &str| format!("pull image manifest has been retried 1 time(s): failed to resolve ref {name}: {why}");
        let is_it = |fault: &Fault| matches!(fault, Fault::Unpullable { image, .. } if image == name);
        if self.ecs.lock().faults.take(is_it).is_some() {
            return Err(words(&format!("{name}: not found")));
        }
        self.ecs.machine.image(name).await.map_err(|why| words(&why))
    }

    /// Starts all that may start; those together that may at the same time.
    pub(super) async fn start_ready(&mut self) -> Result<(), Stop> {
        loop {
            let mut places = Vec::new();
            for place in 0..self.containers.len() {
                if self.phases[place] != Phase::Waiting {
                    continue;
                }
                match ready(place, &self.containers, &self.phases, Instant::now()) {
                    Ready::Now => places.push(place),
                    Ready::NotYet => {}
                    Ready::Never(why) => return Err(self.failed(place, why)),
                }
            }
            if places.is_empty() {
                return Ok(());
            }
            let started = join_all(places.iter().map(|place| self.start(*place))).await;
            for (place, started) in places.into_iter().zip(started) {
                self.has_started(place, started)?;
            }
        }
    }

    async fn start(&self, place: usize) -> Started {
        let (Some(site), container) = (&self.site, &self.containers[place]) else { return Err("no network".into()) };
        let (machine, name) = (&self.ecs.machine, site.container(&container.name));
        let sizes = self.set(|task| task.definition.sizes()).unwrap_or_default();
        let body = body::body(container, &self.images[place], site, sizes, machine.cpus);
        let made = machine.create(&name, body).await;
        let id = made.map_err(|why| format!("CannotCreateContainerError: Error response from daemon: {why}"))?;
        let started = machine.start(&name).await;
        started.map_err(|why| format!("CannotStartContainerError: Error response from daemon: {why}"))?;
        Ok(id)
    }

    fn has_started(&mut self, place: usize, started: Started) -> Result<(), Stop> {
        match started {
            Ok(id) => {
                self.phases[place] = Phase::Running { since: Instant::now(), health: None };
                self.set(|task| {
                    task.parts[place].status = PartStatus::Running;
                    task.parts[place].runtime_id = Some(id);
                });
                if let Some(site) = &self.site {
                    let ended = self.ecs.machine.clone().ended(site.container(&self.containers[place].name));
                    self.running.spawn(async move { (place, ended.await) });
                }
                Ok(())
            }
            Err(why) if self.containers[place].essential => Err(self.failed(place, why)),
            Err(why) => {
                self.failed(place, why);
                Ok(())
            }
        }
    }

    /// A container that can't start has ended, without an exit code.
    fn failed(&mut self, place: usize, why: String) -> Stop {
        self.phases[place] = Phase::Ended(None);
        self.set(|task| {
            task.parts[place].status = PartStatus::Stopped;
            task.parts[place].reason = Some(why.clone());
        });
        Stop::new("TaskFailedToStart", why)
    }
}
