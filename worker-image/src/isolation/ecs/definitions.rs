//! Which definitions ECS has: each is looked for once, and made once if it is not there, however many builds want it at a time.

use super::calls::Calls;
use super::definition::Definition;
use super::pace::answered;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::sync::OnceCell;
use tracing::info;

/// How many are remembered: tenants choose images as they like.
const KNOWN_MAX: usize = 1000;

/// ARNs by family.
#[derive(Debug, Default)]
pub struct Definitions {
    known: Mutex<HashMap<String, Arc<OnceCell<String>>>>,
}

impl Definitions {
    /// The ARN of `definition`.
    ///
    /// # Errors
    ///
    /// What ECS says if it takes no such definition.
    pub async fn arn(&self, calls: &dyn Calls, definition: &Definition) -> Result<String, String> {
        let cell = self.cell(&definition.family);
        cell.get_or_try_init(|| found_or_made(calls, definition)).await.cloned()
    }

    /// ECS does not know it any more.
    pub fn forget(&self, family: &str) {
        self.known().remove(family);
    }

    fn cell(&self, family: &str) -> Arc<OnceCell<String>> {
        let mut known = self.known();
        if known.len() >= KNOWN_MAX && !known.contains_key(family) {
            known.clear();
        }
        Arc::clone(known.entry(family.to_owned()).or_default())
    }

    fn known(&self) -> MutexGuard<'_, HashMap<String, Arc<OnceCell<String>>>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Two workers may both make it: the second is another revision of the same.
async fn found_or_made(calls: &dyn Calls, definition: &Definition) -> Result<String, String> {
    let family = &definition.family;
    if let Some(arn) = answered("DescribeTaskDefinition", || calls.definition(family)).await? {
        return Ok(arn);
    }
    let arn = answered("RegisterTaskDefinition", || calls.register(definition)).await?;
    info!(ecs.definition = arn, "task definition registered");
    Ok(arn)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::isolation::ecs::calls::Trouble;
    use crate::isolation::ecs::settings::Fit;
    use crate::isolation::ecs::stub::Stub;
    use futures::future::join_all;

    fn definition(image: &str) -> Definition {
        Definition::of(&Fit::example(), &[image])
    }

    #[tokio::test]
    async fn many_builds_of_one_shape_register_once_and_another_shape_again() {
        let (stub, definitions) = (Stub::default(), Definitions::default());
        let (one, other) = (definition("rust:1"), definition("rust:2"));
        let arns = join_all((0..50).map(|_| definitions.arn(&stub, &one))).await;
        assert!(arns.iter().all(|arn| *arn == arns[0]) && arns[0].is_ok(), "{arns:?}");
        assert_ne!(definitions.arn(&stub, &other).await, arns[0]);
        assert_eq!(stub.count("RegisterTaskDefinition"), 2);
        assert_eq!(stub.count("DescribeTaskDefinition"), 2);
    }

    #[tokio::test]
    async fn what_an_earlier_worker_registered_is_found_again() {
        let (stub, one) = (Stub::default(), definition("rust:1"));
        let arn = Definitions::default().arn(&stub, &one).await;
        assert_eq!(Definitions::default().arn(&stub, &one).await, arn);
        assert_eq!(stub.count("RegisterTaskDefinition"), 1);
    }

    #[tokio::test]
    async fn a_refusal_is_not_remembered() {
        let (stub, definitions, one) = (Stub::default(), Definitions::default(), definition("rust:1"));
        stub.fail("RegisterTaskDefinition", Trouble::Refused("not authorized".into()));
        assert_eq!(definitions.arn(&stub, &one).await, Err("not authorized".into()));
        assert!(definitions.arn(&stub, &one).await.is_ok());
    }

    #[tokio::test]
    async fn what_ecs_forgot_is_made_again() {
        let (stub, definitions, one) = (Stub::default(), Definitions::default(), definition("rust:1"));
        definitions.arn(&stub, &one).await.unwrap();
        stub.forget_definitions();
        definitions.forget(&one.family);
        definitions.arn(&stub, &one).await.unwrap();
        assert_eq!(stub.count("RegisterTaskDefinition"), 2);
    }
}
