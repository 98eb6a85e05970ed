//! What a build's directory holds besides the workspace: its way out, and the certificates that its clone trusts.

use crate::clone;
use crate::config::Config;
use crate::egress::{Proxy, Refusals, Way};
use crate::isolation::Isolation;
use crate::isolation::bubblewrap::names;
use crate::logs::Sink;
use crate::network::{Network, WayOut};
use crate::site::Site;
use protocol::worker::Job;
use std::collections::BTreeSet;
use std::io;
use std::sync::{Arc, Mutex, PoisonError};

/// How many refusals a build's log names.
const REFUSALS_MAX: usize = 20;

/// What a build's tasks share.
#[derive(Debug)]
pub struct Equipped {
    proxy: Proxy,
    /// None if tasks reach the proxy by its socket alone.
    network: Option<Network>,
}

impl Equipped {
    /// The build's way out.
    #[must_use]
    pub fn way_out(&self) -> WayOut {
        self.network.as_ref().map_or(WayOut::Socket, |network| WayOut::Network(network.inside))
    }

    /// Ends all, and waits until it is gone.
    pub async fn end(self) {
        let network = async {
            if let Some(network) = self.network {
                network.end().await;
            }
        };
        tokio::join!(network, self.proxy.end());
    }
}

/// Writes the certificates, and starts the network, if there is to be one, and its proxy, which end with what is returned.
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
) -> io::Result<Equipped> {
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
        resolver: config.resolver,
        run_as: config.place.run_as(slot),
        slot,
    };
    let (binary, build, socket, run_as) = (way.binary, way.build.clone(), way.socket.clone(), way.run_as);
    let network = async {
        if !isolation.has_networks() {
            return Ok(None);
        }
        Network::start(binary, &build, &socket, run_as, None).await.map(Some)
    };
    let (proxy, network) = tokio::try_join!(isolation.way_out(way, refusals(sink.clone())), network)?;
    if let Some(why) = network.as_ref().and_then(|network| network.weak.as_ref()) {
        sink.say(&format!("network: only programs that heed HTTP_PROXY and the like get out ({why})"));
    }
    Ok(Equipped { proxy, network })
}

/// Tells a build's log what was refused: each thing once, and not without end.
fn refusals(sink: Sink) -> Refusals {
    let said = Mutex::new(BTreeSet::new());
    Arc::new(move |line: String| {
        let mut said = said.lock().unwrap_or_else(PoisonError::into_inner);
        let say = |line: &str| Sink { step: sink.lease.phase().into(), ..sink.clone() }.mention(line);
        if said.len() > REFUSALS_MAX || !said.insert(line.clone()) {
            return;
        }
        say(if said.len() > REFUSALS_MAX { "network: what else is refused is not said any more" } else { &line });
    })
}
