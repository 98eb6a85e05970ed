//! Both local back ends behind one: bubblewrap for this host's own system, containers for images.

use super::bubblewrap::Bubblewrap;
use super::docker::Docker;
use super::guarantees::{Given, Trying};
use super::plan::ContainerOrders;
use super::{Fetch, Isolation, NetworkOf, Running, Service, ServiceOf, StartError, Task};
use futures::FutureExt as _;
use futures::future::BoxFuture;

/// Both.
#[derive(Debug)]
pub struct Auto {
    /// For `image: host`, and for clones.
    pub bubblewrap: Bubblewrap,
    /// For all others.
    pub docker: Docker,
}

impl Auto {
    fn of(&self, image: &str) -> &dyn Isolation {
        if image == self.bubblewrap.clone_image() { &self.bubblewrap } else { &self.docker }
    }
}

impl Isolation for Auto {
    fn name(&self) -> &'static str {
        "auto"
    }

    fn names(&self) -> Vec<&'static str> {
        [self.bubblewrap.names(), self.docker.names()].concat()
    }

    fn takes(&self, image: &str) -> Result<(), StartError> {
        self.of(image).takes(image)
    }

    /// What both give: each has its own column, and is tried before the two are put together.
    fn guarantees(&self) -> Trying<'_> {
        async {
            let (sealed, contained) = tokio::join!(self.bubblewrap.guarantees(), self.docker.guarantees());
            let missing = |one: &Given| contained.iter().find(|other| other.guarantee == one.guarantee && !other.held);
            sealed.into_iter().map(|one| if one.held { missing(&one).cloned().unwrap_or(one) } else { one }).collect()
        }
        .boxed()
    }

    fn fetch<'a>(&'a self, fetch: Fetch<'a>) -> BoxFuture<'a, Result<(), StartError>> {
        self.of(fetch.image).fetch(fetch)
    }

    /// One that no image asks for would cost every build.
    fn network(&self, of: NetworkOf<'_>) -> Option<ContainerOrders> {
        let is_contained = |image: &&str| **image != *self.bubblewrap.clone_image();
        if of.images.iter().any(is_contained) { self.docker.network(of) } else { None }
    }

    fn clear<'a>(&'a self, build: &'a str) -> BoxFuture<'a, Result<(), String>> {
        self.docker.clear(build)
    }

    fn start(&self, task: Task) -> BoxFuture<'_, Result<Running, StartError>> {
        self.of(&task.image).start(task)
    }

    fn holds_previews(&self, image: &str) -> bool {
        self.of(image).holds_previews(image)
    }

    fn service(&self, task: Task, of: ServiceOf) -> BoxFuture<'_, Result<Service, StartError>> {
        self.of(&task.image).service(task, of)
    }
}
