//! Builds in tasks of ECS: a task for each, in which a runner of ours takes the build through its course, a container for the clone and
//! one for each step (docs/decisions/0018). The worker holds the claim, renews the lease, has the task stopped, and reports the end.
//!
//! ```text
//! definition  what a task is made of, the same for all builds of one shape     definitions  which of those ECS has
//! launch      what RunTask is told of one build                                takes        what a task can't do for a build
//! errand      one build, from RunTask to the task's end                        lookout      looks at all tasks
//! ending      how a build ended, put together                                  pace         how often ECS is asked
//! plain       what of ECS's words a tenant may read
//! calls       ECS, in words of our own                                         sdk          the same by AWS's SDK, which nothing else names
//! ```

pub mod calls;
pub mod definition;
pub mod definitions;
pub mod ending;
pub mod errand;
pub mod guarantees;
pub mod launch;
pub mod lookout;
pub mod pace;
pub mod plain;
#[cfg(feature = "ecs")]
mod sdk;
mod settings;
#[cfg(test)]
pub(in crate::isolation) mod stub;
pub mod takes;

use super::guarantees::Trying;
use super::{Isolation, Running, StartError, Task};
use crate::config::Config;
use calls::{Calls, Trouble};
use definitions::Definitions;
use futures::FutureExt as _;
use futures::future::BoxFuture;
use launch::Home;
use lookout::Lookout;
use pace::{FullJitter, Pace};
pub use settings::{Fit, LaunchType, Settings};
use std::sync::Arc;
use takes::refuses_image;
use tokio::time::sleep;

/// RunTask's limit, of an account in a region.
const RUN_PER_SECOND: u32 = 20;
/// How often ECS is asked whether it lets this worker in.
const TRIES: u32 = 4;

/// The back end.
#[derive(Debug)]
pub struct Ecs {
    calls: Arc<dyn Calls>,
    fit: Fit,
    home: Home,
    definitions: Definitions,
    pace: Pace,
    lookout: Lookout,
}

impl Ecs {
    /// What `config` says, by AWS's SDK. Nothing is asked of ECS.
    ///
    /// # Errors
    ///
    /// What is missing, for a person.
    pub async fn of(config: &Config) -> Result<Self, String> {
        let (fit, home) = (config.ecs.fit()?, Home::of(config)?);
        let calls = calls(&fit).await?;
        let lookout = Lookout::start(Arc::clone(&calls));
        Ok(Self::over(calls, fit, home, lookout))
    }

    fn over(calls: Arc<dyn Calls>, fit: Fit, home: Home, lookout: Lookout) -> Self {
        let (definitions, pace) = (Definitions::default(), Pace::per_second(RUN_PER_SECOND));
        Self { calls, fit, home, definitions, pace, lookout }
    }

    /// Whether ECS lets this worker in, and knows the cluster.
    ///
    /// # Errors
    ///
    /// What it says.
    pub async fn answers(&self) -> Result<(), String> {
        let (nobody, mut waits) = (uuid::Uuid::nil().to_string(), FullJitter::default());
        for _ in 1..TRIES {
            match self.calls.list(Some(&nobody)).await {
                Ok(_) => return Ok(()),
                Err(Trouble::Refused(why)) => return Err(why),
                Err(Trouble::Throttled(_) | Trouble::Unanswered(_)) => sleep(waits.next_wait()).await,
            }
        }
        self.calls.list(Some(&nobody)).await.map(drop).map_err(|trouble| trouble.to_string())
    }
}

#[cfg(feature = "ecs")]
async fn calls(fit: &Fit) -> Result<Arc<dyn Calls>, String> {
    Ok(Arc::new(sdk::Sdk::new(&fit.cluster).await))
}

#[cfg(not(feature = "ecs"))]
async fn calls(_fit: &Fit) -> Result<Arc<dyn Calls>, String> {
    Err("this worker was built without ECS: build it with `--features ecs`".into())
}

impl Isolation for Ecs {
    fn name(&self) -> &'static str {
        "ecs"
    }

    fn takes(&self, image: &str) -> Result<(), StartError> {
        refuses_image(image).map_or(Ok(()), |why| Err(StartError::Image(why)))
    }

    fn guarantees(&self) -> Trying<'_> {
        std::future::ready(guarantees::guarantees(self.fit.settings.launch_type)).boxed()
    }

    fn has_sandboxes(&self) -> bool {
        false
    }

    fn away(&self) -> Option<&Ecs> {
        Some(self)
    }

    fn start(&self, _task: Task) -> BoxFuture<'_, Result<Running, StartError>> {
        let why = "on ECS a build's steps are started by its runner, in a task of their own";
        std::future::ready(Err(StartError::Trouble(why.into()))).boxed()
    }
}

#[cfg(test)]
mod tests {
    use super::stub::{Stub, ecs};
    use super::*;

    #[tokio::test]
    async fn a_worker_that_ecs_does_not_let_in_hears_why() {
        let stub = Arc::<Stub>::default();
        assert_eq!(ecs(&stub).answers().await, Ok(()));
        stub.fail("ListTasks", Trouble::Refused("Cluster not found.".into()));
        assert_eq!(ecs(&stub).answers().await, Err("Cluster not found.".into()));
    }

    #[tokio::test]
    async fn it_takes_images_of_registries_and_holds_no_previews() {
        let ecs = ecs(&Arc::default());
        assert!(ecs.takes("rust:1").is_ok() && ecs.takes("host").is_err());
        assert!(!ecs.holds_previews("rust:1"));
        assert_eq!(ecs.names(), ["ecs"]);
    }
}
