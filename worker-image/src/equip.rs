//! What a build's directory holds besides the workspace: its way out, and the certificates that its clone trusts.

use crate::clone;
use crate::config::Config;
use crate::egress::{Proxy, Refusals, Way};
use crate::input;
use crate::isolation::bubblewrap::names;
use crate::isolation::plan::ContainerOrders;
use crate::isolation::{Ended, Isolation, NetworkOf};
use crate::logs::Sink;
use crate::network::{Coming, Contained, Network, News, WayOut};
use crate::site::Site;
use crate::stop::{Stop, Why};
use protocol::pipeline::{self, Step};
use protocol::worker::Job;
use std::collections::BTreeSet;
use std::io;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

/// How many refusals a build's log names.
const REFUSALS_MAX: usize = 20;

/// What a build's tasks share.
#[derive(Debug)]
pub struct Equipped {
    proxy: Proxy,
    sandboxes: Option<Network>,
    containers: Option<Coming>,
}

impl Equipped {
    /// The build's way out.
    #[must_use]
    pub fn way_out(&self) -> WayOut {
        WayOut {
            sandboxes: self.sandboxes.as_ref().map(|network| network.inside),
            containers: self.containers.as_ref().map(Coming::awaited),
        }
    }

    /// Ends all, and waits until it is gone.
    pub async fn end(self) {
        let sandboxes = async {
            if let Some(network) = self.sandboxes {
                network.end().await;
            }
        };
        let containers = async {
            if let Some(network) = self.containers {
                network.end().await;
            }
        };
        tokio::join!(sandboxes, containers);
        self.proxy.end().await;
    }
}

/// Writes the certificates, and starts the networks that there are to be, and their proxy, which end with what is returned. That of
/// containers is not awaited: the clone may need none. If that breaks, the build is asked to stop.
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
    (sink, stop): (&Sink, &Stop),
) -> io::Result<Equipped> {
    if let Some(operators) = &config.ca_bundle {
        let path = site.path(names::CERTIFICATES);
        clone::write_certificates(&path, &input::bytes(operators)?)?;
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
    let sandboxes = async {
        if !isolation.has_sandboxes() {
            return Ok(None);
        }
        Network::start(binary, &build, &socket, run_as, None).await.map(Some)
    };
    let (proxy, sandboxes) = tokio::try_join!(isolation.way_out(way, refusals(sink.clone())), sandboxes)?;
    if let Some(why) = sandboxes.as_ref().and_then(|network| network.weak.as_ref()) {
        say_weak(sink, why);
    }
    let steps = job.steps.iter().chain(&job.on_cancel);
    let images: Vec<&str> = reaching_out(steps).chain([isolation.clone_image()]).collect();
    let of =
        NetworkOf { build: &build, directory: &site.directory, slot, images: &images, fence_at: sink.lease.over_at() };
    let containers = isolation.network(of).map(|orders| beside(binary, &build, orders, sink, stop));
    Ok(Equipped { proxy, sandboxes, containers })
}

/// The images of steps that have a way out.
fn reaching_out<'a>(steps: impl Iterator<Item = &'a Step>) -> impl Iterator<Item = &'a str> {
    steps.filter(|step| step.network == pipeline::Network::Isolated).map(|step| step.image.as_str())
}

/// The network of a build's containers: without it nothing that a step asks for is found, so the build ends with it.
fn beside(binary: &Path, build: &str, orders: ContainerOrders, sink: &Sink, stop: &Stop) -> Coming {
    let (binary, build, lease) = (binary.to_path_buf(), build.to_owned(), Arc::clone(&sink.lease));
    let (sink, stop) = (sink.clone(), stop.clone());
    let start = |ends| async move { Contained::start(&binary, &build, orders, Some(&lease), ends).await };
    Coming::begin(start, move |news| match news {
        News::Weak(why) => say_weak(&sink, &why),
        News::Broken(ended) => {
            let why = broken(&ended, sink.lease.fence_at().has_come());
            if why == Why::NetworkLost {
                say_broken(&sink, &ended);
            }
            stop.ask(why);
        }
    })
}

/// Why a build ends whose containers have lost their network: past its fence that has ended as all has.
fn broken(ended: &Ended, is_past_fence: bool) -> Why {
    match ended {
        Ended::Fenced => Why::Fenced,
        Ended::Exited { .. } | Ended::NeverStarted(_) | Ended::Broken(_) if is_past_fence => Why::Fenced,
        Ended::Exited { .. } | Ended::NeverStarted(_) | Ended::Broken(_) => Why::NetworkLost,
    }
}

fn say_broken(sink: &Sink, ended: &Ended) {
    let sink = Sink { step: sink.lease.phase().into(), ..sink.clone() };
    sink.mention(&format!("network: the network of this build's containers broke: {}", ended.told()));
}

fn say_weak(sink: &Sink, why: &str) {
    sink.say(&format!("network: only programs that heed HTTP_PROXY and the like get out ({why})"));
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_step_without_a_network_needs_none_made() {
        let step = |image: &str, network: &str| -> Step {
            let step = serde_json::json!({ "name": image, "image": image, "commands": ["true"], "network": network });
            serde_json::from_value(step).unwrap()
        };
        let steps = [step("sealed", "none"), step("reaches", "isolated")];
        assert_eq!(reaching_out(steps.iter()).collect::<Vec<_>>(), ["reaches"]);
    }

    #[test]
    fn a_network_that_ends_with_its_lease_is_no_other_trouble_than_that() {
        let killed = Ended::Exited { code: 137, exceeded: None };
        assert_eq!(broken(&Ended::Fenced, false), Why::Fenced, "its guard may be first to see it");
        assert_eq!(broken(&killed, true), Why::Fenced, "or nobody, if the host was asleep");
        for ended in [killed, Ended::Broken("its guard was killed".into()), Ended::NeverStarted(String::new())] {
            assert_eq!(broken(&ended, false), Why::NetworkLost);
        }
    }
}
