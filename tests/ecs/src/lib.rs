//! A fake Amazon ECS on one machine, for tests: it speaks AWS JSON 1.1 and really runs the containers of tasks, by Docker's daemon.
//!
//! What a test sees of it is what AWS's documentation says of ECS on Fargate; comments name the page. `AWS_ENDPOINT_URL_ECS` leads
//! an SDK to it. Signatures are not checked, as nothing here is worth one.
//!
//! It is not AWS in these ways:
//!
//! * A task has no interface in a VPC. Its containers share a network of their own, as in mode `awsvpc`, with nothing in it but
//!   127.0.0.1 and the ports of the host's 127.0.0.1 that [`Network::Ports`] names. Subnets and security groups are taken and mean
//!   nothing, nor is there a metadata address.
//! * Other network modes are as `awsvpc` is, and whatever else is only for machines of one's own is refused.
//! * Images are those that the daemon has; nothing is pulled. One that it does not have can't be pulled.
//! * A task's memory bounds each of its containers, not all of them together. Ephemeral storage is not bounded.
//! * Where logs go is not heeded; tests read the end of a container's output by [`Fake::output`].
//! * A container that can't start for want of its image ends its task also if it is not essential. AWS's pages don't say; that is the harder case.
//! * `startedBy` may have 36 characters, as it was for years; the reference says 128 today.
//! * It knows what Callboard needs. A parameter that it does not know is refused, not passed over.
//!
//! Paths that are for tests: `POST /_faults` ([`Fault`]), `GET` and `PUT /_settings` ([`Settings`]), `GET /_calls` ([`Call`]),
//! `GET /_given` ([`Given`]), `GET /_left` ([`Left`]), `GET /_output/{task}/{container}`.

mod actions;
mod agent;
mod definition;
mod ecs;
mod faults;
mod http;
mod machine;
mod overrides;
mod refusal;
mod settings;
mod task;
mod throttle;

pub use ecs::{Call, Given};
pub use faults::Fault;
pub use machine::Left;
pub use settings::{Network, Settings, Stopping, Throttle};

use ecs::Ecs;
use machine::Machine;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;
use std::sync::Arc;
use tokio::net::TcpListener;
use tokio::task::AbortHandle;

/// Why there is no fake.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Docker's daemon does not answer.
    #[error("Docker's daemon: {0}")]
    Docker(#[from] bollard::errors::Error),
    /// The port can't be had.
    #[error("no port: {0}")]
    Port(#[from] std::io::Error),
}

/// A fake ECS that serves. Its tasks go on when it is dropped; [`Fake::close`] ends them.
#[derive(Debug)]
pub struct Fake {
    address: SocketAddr,
    ecs: Arc<Ecs>,
    serving: AbortHandle,
}

/// Serves a fake on a port of 127.0.0.1 that is free, by the daemon behind `docker`, a Unix socket.
///
/// # Errors
///
/// If the daemon does not answer, or no port is free.
pub async fn serve(docker: &Path, settings: Settings) -> Result<Fake, Error> {
    serve_on(docker, settings, 0).await
}

/// The same, on a port of one's choice.
///
/// # Errors
///
/// If the daemon does not answer, or the port is taken.
pub async fn serve_on(docker: &Path, settings: Settings, port: u16) -> Result<Fake, Error> {
    let ecs = Arc::new(Ecs::new(Machine::find(docker).await?, settings));
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, port)).await?;
    let address = listener.local_addr()?;
    let serving = tokio::spawn(http::serve(listener, Arc::clone(&ecs))).abort_handle();
    Ok(Fake { address, ecs, serving })
}

impl Fake {
    /// Where it is, for `AWS_ENDPOINT_URL_ECS`.
    #[must_use]
    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Makes something go wrong.
    ///
    /// # Errors
    ///
    /// If it is for a task that is not there.
    pub fn inject(&self, fault: Fault) -> Result<(), String> {
        http::inject(&self.ecs, fault)
    }

    /// Changes settings, for what happens from now on.
    pub fn change(&self, change: impl FnOnce(&mut Settings)) {
        change(&mut self.ecs.lock().settings);
    }

    /// The calls that came, in their order.
    #[must_use]
    pub fn calls(&self) -> Vec<Call> {
        self.ecs.lock().calls.clone()
    }

    /// All that was put into AWS's hands as text: no secret may be in there.
    #[must_use]
    pub fn given(&self) -> Vec<Given> {
        self.ecs.lock().given.clone()
    }

    /// The containers and volumes of tasks that are there now.
    ///
    /// # Errors
    ///
    /// If the daemon does not answer.
    pub async fn left(&self) -> Result<Left, Error> {
        Ok(self.ecs.machine.left().await?)
    }

    /// The end of what a container has written until now; `task` is an id or an ARN.
    pub async fn output(&self, task: &str, container: &str) -> String {
        self.ecs.output(task, container).await
    }

    /// The states that a task was in, one after the other, with the one that it is in; `task` is an id or an ARN.
    #[must_use]
    pub fn states(&self, task: &str) -> Vec<&'static str> {
        self.ecs.states(task)
    }

    /// Ends all tasks without asking them, and serves no more.
    ///
    /// # Errors
    ///
    /// If the daemon does not answer.
    pub async fn close(self) -> Result<(), Error> {
        self.serving.abort();
        self.ecs.end_all().await;
        let left = self.ecs.machine.left().await?;
        for container in &left.containers {
            self.ecs.machine.remove(container).await;
        }
        for volume in &left.volumes {
            self.ecs.machine.remove_volume(volume).await;
        }
        Ok(())
    }
}
