//! How a task's containers end, and what is left of it: nothing.

use super::order::may_stop;
use super::{Life, Phase, told};
use crate::ecs::now;
use crate::settings::ms;
use crate::task::{PartStatus, Status, Stop};
use std::time::Duration;
use tokio::time::{Instant, sleep, sleep_until};

/// How long a container may take to end if its definition does not say, in seconds ("ContainerDefinition", stopTimeout).
const STOP_TIMEOUT: u32 = 30;

impl Life {
    /// From STOPPING to STOPPED.
    pub(super) async fn end(&mut self, stop: Stop) {
        let has_run = self.phases.iter().any(|phase| *phase != Phase::Waiting);
        if has_run {
            self.set(|task| task.states.push(Status::Stopping));
        }
        if stop.is_lost || self.stop_containers().await.is_err() {
            self.lose().await;
        }
        self.set(|task| {
            task.times.execution_stopped = has_run.then(now);
            task.states.push(Status::Deprovisioning);
            // Also those that never started.
            task.parts.iter_mut().for_each(|part| part.status = PartStatus::Stopped);
        });
        if let Some(site) = self.site.take() {
            site.remove(&self.containers).await;
        }
        sleep(ms(self.settings.deprovisioning_ms)).await;
        let age = self.ecs.age();
        self.set(|task| {
            task.states.push(Status::Stopped);
            task.times.stopped = Some(now());
            task.ended_at = Some(age);
        });
    }

    /// Asks each that runs to end, by its image's signal, and kills it after its stopTimeout ("StopTask").
    ///
    /// # Errors
    ///
    /// If their machine is lost meanwhile.
    async fn stop_containers(&mut self) -> Result<(), Stop> {
        let mut kill_at = vec![None; self.containers.len()];
        loop {
            for (place, kill_at) in kill_at.iter_mut().enumerate() {
                let may = may_stop(place, &self.containers, &self.phases, self.settings.stopping);
                if may && kill_at.is_none() && self.runs(place) {
                    self.signal(place, None).await;
                    let seconds = self.containers[place].stop_timeout.unwrap_or(STOP_TIMEOUT);
                    *kill_at = Some(Instant::now() + Duration::from_secs(seconds.into()));
                }
            }
            let due = (0..kill_at.len()).filter(|place| self.runs(*place)).filter_map(|place| kill_at[place]).min();
            let Some(due) = due else { return Ok(()) };
            tokio::select! {
                stop = told(&mut self.orders, |stop| stop.is_lost) => return Err(stop),
                Some(Ok((place, ended))) = self.running.join_next() => self.note(place, ended),
                () = sleep_until(due) => {
                    for place in (0..kill_at.len()).filter(|place| kill_at[*place] == Some(due)) {
                        self.signal(place, Some("SIGKILL")).await;
                    }
                    // Its end comes soon; a kill that was not heard is said again.
                    for at in kill_at.iter_mut().filter(|at| **at == Some(due)) {
                        *at = Some(due + Duration::from_secs(1));
                    }
                }
            }
        }
    }

    fn runs(&self, place: usize) -> bool {
        matches!(self.phases[place], Phase::Running { .. })
    }

    async fn signal(&self, place: usize, signal: Option<&str>) {
        if let Some(site) = &self.site {
            let signal = signal.unwrap_or(&self.images[place].stop_signal);
            self.ecs.machine.signal(&site.container(&self.containers[place].name), signal).await;
        }
    }

    /// The machine is gone: nobody has heard a signal, and nobody tells an exit code.
    async fn lose(&mut self) {
        if let Some(site) = &self.site {
            site.remove_containers(&self.containers).await;
        }
        for phase in &mut self.phases {
            *phase = Phase::Ended(None);
        }
    }
}
