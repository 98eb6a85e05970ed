//! Where a task's containers are: their network and their volumes.

use super::reach::Reach;
use crate::definition::Container;
use crate::machine::Machine;
use crate::settings::{Network, Settings};
use bollard::models::{ContainerCreateBody, HostConfig};

pub(crate) struct Site {
    machine: Machine,
    task: String,
    volumes: Vec<String>,
    /// Docker's name of the network that the containers share.
    pub(super) network: String,
    /// Ends with the site.
    _reach: Option<Reach>,
}

impl Site {
    /// Makes the volumes, and the network: that of a container which does nothing, as "awsvpc" has one too.
    pub(super) async fn make(
        machine: &Machine,
        task: &str,
        settings: &Settings,
        volumes: Vec<String>,
    ) -> Result<Self, String> {
        let network = "host".to_owned();
        let mut site = Self { machine: machine.clone(), task: task.to_owned(), volumes, network, _reach: None };
        match site.furnish(settings).await {
            Ok(()) => Ok(site),
            Err(why) => {
                site.remove(&[]).await;
                Err(why)
            }
        }
    }

    async fn furnish(&mut self, settings: &Settings) -> Result<(), String> {
        for volume in &self.volumes {
            self.machine.make_volume(&self.volume(volume)).await?;
        }
        let Network::Ports(ports) = &settings.network else { return Ok(()) };
        let pause = self.pause();
        let words = ["/bin/busybox", "sleep", "2147483647"].map(str::to_owned);
        let apart = HostConfig { network_mode: Some("none".into()), ..HostConfig::default() };
        let body = ContainerCreateBody {
            image: Some(settings.pause_image.clone()),
            entrypoint: Some(words.into()),
            host_config: Some(apart),
            ..ContainerCreateBody::default()
        };
        let id = self.machine.create(&pause, body).await?;
        self.machine.start(&pause).await?;
        self.network = format!("container:{id}");
        if !ports.is_empty() {
            let pid = self.machine.pid(&pause).await.ok_or("the container of the network has ended")?;
            self._reach = Some(Reach::open(pid, ports.clone()).await.map_err(|error| error.to_string())?);
        }
        Ok(())
    }

    /// No container of a definition is called so.
    fn pause(&self) -> String {
        self.container(".pause")
    }

    /// Docker's name of a container.
    pub(super) fn container(&self, name: &str) -> String {
        Self::named(&self.task, name)
    }

    /// The same, of a task that one has but the id of.
    pub(crate) fn named(task: &str, name: &str) -> String {
        format!("callboard-fake-ecs-{task}-{name}")
    }

    /// Docker's name of a volume.
    pub(super) fn volume(&self, name: &str) -> String {
        Self::named(&self.task, name)
    }

    pub(super) async fn remove_containers(&self, containers: &[Container]) {
        for container in containers {
            self.machine.remove(&self.container(&container.name)).await;
        }
    }

    /// Removes all: data of a task's volumes goes with it ("Use bind mounts with Amazon ECS").
    pub(super) async fn remove(mut self, containers: &[Container]) {
        self.remove_containers(containers).await;
        drop(self._reach.take());
        self.machine.remove(&self.pause()).await;
        for volume in &self.volumes {
            self.machine.remove_volume(&self.volume(volume)).await;
        }
    }
}
