//! What a build's directory holds besides the workspace: its way out, and the certificates that its clone trusts.

use crate::clone;
use crate::config::Config;
use crate::egress::{Proxy, Refusals, Way};
use crate::isolation::Isolation;
use crate::isolation::bubblewrap::names;
use crate::logs::Sink;
use crate::site::Site;
use protocol::worker::Job;
use std::collections::BTreeSet;
use std::io;
use std::sync::{Arc, Mutex, PoisonError};

/// How many refusals a build's log names.
const REFUSALS_MAX: usize = 20;

/// Writes the certificates and starts the proxy, which ends with what is returned.
///
/// # Errors
///
/// If the operator's certificates can't be read, or the directory not be written.
pub async fn equip(
    config: &Config,
    isolation: &dyn Isolation,
    job: &Job,
    slot: u32,
    site: &Site,
    sink: &Sink,
) -> io::Result<Proxy> {
    if let Some(operators) = &config.ca_bundle {
        let path = site.path(names::CERTIFICATES);
        clone::write_certificates(&path, operators)?;
        site.hand_over(&path, 0o644)?;
    }
    let way = Way {
        binary: &config.place.installed(),
        build: job.build_id.to_string(),
        socket: site.path(names::EGRESS),
        allowed: &config.egress_allow,
        run_as: config.place.run_as(slot),
        slot,
    };
    isolation.way_out(way, refusals(sink.clone())).await
}

/// Tells a build's log what was refused: each thing once, and not without end.
fn refusals(sink: Sink) -> Refusals {
    let said = Mutex::new(BTreeSet::new());
    Arc::new(move |line: String| {
        let mut said = said.lock().unwrap_or_else(PoisonError::into_inner);
        let say = |line: &str| Sink { step: sink.lease.phase().into(), ..sink.clone() }.say(line);
        if said.len() > REFUSALS_MAX || !said.insert(line.clone()) {
            return;
        }
        say(if said.len() > REFUSALS_MAX { "network: what else is refused is not said any more" } else { &line });
    })
}
