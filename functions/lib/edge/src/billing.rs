//! Where plans live: the port and its two adapters (SPEC.md, Budget; docs/billing.md).
//!
//! What stands on a workspace's row is all that admission and claim decide on, whoever put it there. A service is asked
//! between statements: no connection of the pool, no transaction and no lock is held meanwhile.

mod service;

pub use service::Service;

use crate::config::{BadSetting, Config};
use rules::Timing;
use rules::billing::{Turn, Unreadable, back_off, turn};
use store::billing::{self, Subject};
use store::{Error, Store};
use uuid::Uuid;

/// Where plans come from; cheap to clone.
#[derive(Clone)]
pub enum Billing {
    /// The plan tables, which operators set.
    PlanTables,
    /// A service over HTTP.
    Service(Service),
}

/// What became of a workspace's plan.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refreshed {
    /// Nobody was asked: what is stored is young enough, it failed a moment ago, or somebody else is asking.
    NotDue,
    /// The service's answer is stored, or that of a later question.
    Stored,
    /// The service gave no plan. What was stored stays, until it is stale.
    Failed(Unreadable),
}

impl Billing {
    /// The adapter that `config` names.
    ///
    /// # Errors
    ///
    /// [`BadSetting`] if there can be no such service.
    pub fn new(config: &Config) -> Result<Self, BadSetting> {
        config.billing.as_ref().map_or(Ok(Self::PlanTables), |settings| Service::new(settings).map(Self::Service))
    }

    /// Brings a workspace's stored plan up to date if it is due, by one attempt.
    ///
    /// # Errors
    ///
    /// [`Error`] if the database fails. What the service does is never an error.
    pub async fn refresh(&self, store: &Store, workspace: Uuid, timing: &Timing) -> Result<Refreshed, Error> {
        let Self::Service(service) = self else { return Ok(Refreshed::NotDue) };
        let Some(subject) = billing::subject(store, workspace).await? else { return Ok(Refreshed::NotDue) };
        let goes_on = match turn(subject.stored, timing, subject.now) {
            Turn::NotDue => false,
            Turn::Ask => true,
            Turn::AskForAll => billing::take_attempt(store, &subject, service.timeout() * 2).await?,
        };
        if goes_on { ask(service, store, &subject).await } else { Ok(Refreshed::NotDue) }
    }
}

async fn ask(service: &Service, store: &Store, subject: &Subject) -> Result<Refreshed, Error> {
    match service.plan(&subject.slug).await {
        Ok(plan) => {
            let newest = billing::keep(store, subject, &plan).await?;
            tracing::debug!(workspace.slug = %subject.slug, newest, "plan fetched");
            Ok(Refreshed::Stored)
        }
        Err(why) => {
            note(store, subject, why).await?;
            Ok(Refreshed::Failed(why))
        }
    }
}

/// One line for each failure that counts: of many calls that failed together, one does.
async fn note(store: &Store, subject: &Subject, why: Unreadable) -> Result<(), Error> {
    let failures = subject.stored.failures.saturating_add(1);
    let wait = back_off(failures, rand::random());
    if subject.stored.has_plan && subject.stored.fetched_at.is_none() {
        billing::date_plan(store, subject).await?;
    }
    if billing::note_failure(store, subject, why, wait).await? {
        let back_off_ms = u64::try_from(wait.as_millis()).unwrap_or(u64::MAX);
        tracing::warn!(
            workspace.slug = %subject.slug, billing.error = why.as_str(), billing.failures = failures, back_off_ms,
            "plan can't be fetched"
        );
    }
    Ok(())
}
