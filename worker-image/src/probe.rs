//! Whether a sandbox works here: a worker that can't run any build must not claim one.

use crate::config::Config;
use crate::isolation::attempt::{Attempt, Outcome};
use crate::isolation::bubblewrap::names;
use crate::isolation::guarantees::{Given, Guarantee, refused};
use crate::isolation::{Isolation, Limits};
use crate::network::{Network, WayOut};
use crate::site::Site;
use std::collections::BTreeSet;
use tracing::warn;
use uuid::Uuid;

/// Runs what does nothing in a sandbox just as a step would be run, in the first slot.
///
/// # Errors
///
/// What is wrong, for a person.
pub async fn sandbox(config: &Config, isolation: &dyn Isolation) -> Result<(), String> {
    let id = Uuid::new_v4();
    let site = Site::make(&config.place, id, 0, None).map_err(|error| format!("no directory for a build: {error}"))?;
    let works = in_a_network(config, isolation, &site).await;
    isolation.clear(&id.to_string()).await.map_err(|error| format!("what a build had can't be removed: {error}"))?;
    site.remove().await.map_err(|error| format!("the directory of a build can't be removed: {error}"))?;
    works
}

/// Tries what the back end gives, and refuses what is missing unless `accepted` has it.
///
/// # Errors
///
/// What is missing and how to mend it, for a person.
pub async fn guarantees(isolation: &dyn Isolation, accepted: &BTreeSet<Guarantee>) -> Result<(), String> {
    let given = isolation.guarantees().await;
    for Given { guarantee, found, .. } in
        given.iter().filter(|given| !given.held && accepted.contains(&given.guarantee))
    {
        warn!(isolation = isolation.name(), %guarantee, found, "not enforced on this host, as the operator accepts");
    }
    let refused = refused(&given, accepted);
    if refused.is_empty() { Ok(()) } else { Err(refusal(isolation.name(), &refused)) }
}

fn refusal(isolation: &str, refused: &[&Given]) -> String {
    let line = |given: &&Given| {
        let fix = given.fix.as_ref().map(|fix| format!("\n    fix: {fix}")).unwrap_or_default();
        format!("\n  {}: {}{fix}", given.guarantee, given.found)
    };
    let lines: String = refused.iter().map(line).collect();
    let names: Vec<&str> = refused.iter().map(|given| given.guarantee.as_str()).collect();
    format!(
        "{isolation} can't hold builds to all it should:{lines}\nmend it, or accept it: --accept {}",
        names.join(",")
    )
}

/// With the network that sandboxes have, but for a proxy behind it. That of containers is tried with what they guarantee.
async fn in_a_network(config: &Config, isolation: &dyn Isolation, site: &Site) -> Result<(), String> {
    if !isolation.has_sandboxes() {
        return try_it(isolation, site, None, config.limits).await;
    }
    let (place, socket) = (&config.place, site.path(names::EGRESS));
    let network = Network::start(&place.installed(), "probe", &socket, place.run_as(0), None).await;
    let network = network.map_err(|error| format!("no network for a build: {error}"))?;
    if let Some(why) = &network.weak {
        warn!(why, "only programs that heed HTTP_PROXY and the like get out of builds");
    }
    let works =
        try_it(isolation, site, Some(WayOut { sandboxes: Some(network.inside), containers: None }), config.limits)
            .await;
    network.end().await;
    works
}

async fn try_it(isolation: &dyn Isolation, site: &Site, way_out: Option<WayOut>, limits: Limits) -> Result<(), String> {
    let program = isolation.probe();
    match (Attempt { isolation, site, program, way_out, limits }).run().await? {
        Outcome { code: 0, .. } => Ok(()),
        Outcome { code, complaint, .. } => Err(format!("what does nothing ended with exit code {code}: {complaint}")),
    }
}
