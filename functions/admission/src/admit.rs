//! Putting a build into the queue: under the workspace's lock, by the billing rule, once per `Idempotency-Key`.

use edge::{Rejection, Shell};
use rules::budget::{self, Admission};
use store::submissions::{self, Earlier, Key, NewBuild};
use uuid::Uuid;

/// What a submit came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Admitted {
    /// A new build.
    New(Uuid),
    /// The build of an earlier submit with the same key.
    Earlier(Uuid),
}

/// Looks for an earlier submit with the same key. It comes before billing, so that a repeat is answered like the first.
pub(crate) async fn earlier(
    shell: &Shell,
    workspace: Uuid,
    key: Option<Key<'_>>,
) -> Result<Option<Admitted>, Rejection> {
    let Some(key) = key else { return Ok(None) };
    repeated(submissions::earlier(&shell.store, workspace, key, &shell.config.timing).await?)
}

fn repeated(earlier: Option<Earlier>) -> Result<Option<Admitted>, Rejection> {
    match earlier {
        None => Ok(None),
        Some(Earlier::Same(build)) => Ok(Some(Admitted::Earlier(build))),
        Some(Earlier::Other) => Err(Rejection::IdempotencyMismatch),
    }
}

/// Puts `build` at the end of its workspace's queue, or refuses it; then nothing was written. A plan that is due is fetched
/// before the transaction begins; whatever comes of it, what is stored then decides.
pub(crate) async fn admit(
    shell: &Shell,
    workspace: Uuid,
    build: &NewBuild,
    key: Option<Key<'_>>,
) -> Result<Admitted, Rejection> {
    let timing = &shell.config.timing;
    shell.billing.refresh(&shell.store, workspace, timing).await?;
    let mut tx = shell.store.begin().await?;
    let locked = submissions::lock_workspace(&mut tx, workspace, timing).await?;
    let (plan, usage) = locked.ok_or(Rejection::NotFound)?;
    // One with the same key may have been admitted while this one waited, and may have taken the last place.
    if let Some(key) = key
        && let Some(before) = repeated(submissions::earlier_in(&mut tx, workspace, key, timing).await?)?
    {
        return Ok(before);
    }
    match budget::admit(plan, usage) {
        Admission::Admit => {}
        Admission::MinutesExhausted => return Err(Rejection::MinutesExhausted),
        Admission::QueueFull => return Err(Rejection::QueueFull),
        Admission::BillingUnavailable => return Err(Rejection::BillingUnavailable),
    }
    match submissions::insert(&mut tx, workspace, build, key, timing).await {
        Ok(id) => {
            tx.commit().await?;
            store::fail_point!("admission.committed");
            tracing::info!(build.id = %id, workspace.id = %workspace, pipeline.slug = %build.slug, "build admitted");
            Ok(Admitted::New(id))
        }
        // Another submit with this key was faster: its build is the answer.
        Err(store::Error::Conflict(_)) => {
            drop(tx);
            earlier(shell, workspace, key).await?.ok_or(Rejection::TryAgain)
        }
        Err(error) => Err(error.into()),
    }
}
