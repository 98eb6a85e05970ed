//! The network that a build's containers share: a container of our own image that has no interface but loopback, makes every
//! address local in there, and stays as the build's user to carry connections to the build's proxy.

use super::spec::Spec;
use super::start::Docker;
use super::volumes;
use crate::clock::Boot;
use crate::isolation::attempt::{Attempt, Outcome};
use crate::isolation::bubblewrap::names;
use crate::isolation::plan::ContainerOrders;
use crate::isolation::trial::Trial;
use crate::isolation::trials::AMPLE;
use crate::isolation::{Isolation as _, NetworkOf};
use crate::network::{Awaited, Contained, WayOut};
use crate::site::Site;
use bollard::models::HostConfig;
use std::collections::HashMap;
use std::fs;
use std::future::pending;
use std::path::Path;
use std::time::Duration;
use tracing::warn;

/// To set the network up, to listen on port 53, and to become the build's user, with which it has none of these any more.
const CAPABILITIES: &[&str] = &["NET_ADMIN", "NET_BIND_SERVICE", "SETGID", "SETUID"];
/// The mark that its guard sets; nobody reads it.
const ENDED: &str = "network-ended-at";
/// How long a trial of one may take.
const TRIAL_MAX: Duration = Duration::from_secs(60);
/// What turns IPv6 on, which the daemon turns off where it gives no address of it.
const V6: [&str; 2] = ["net.ipv6.conf.all.disable_ipv6", "net.ipv6.conf.lo.disable_ipv6"];

/// What makes the network of a build.
pub(super) fn orders(docker: &Docker, of: NetworkOf<'_>) -> ContainerOrders {
    let (ours, directory) = (&docker.ours, of.directory);
    let way = volumes::way(docker.reach, directory, of.build, &ours.scope.of_build(of.build));
    let (socket, user) = (way.inside.to_string_lossy().into_owned(), docker.user(of.slot).to_string());
    let args = ["network", "--build", of.build, "--socket", &socket, "--user", &user];
    let kit = volumes::kit(docker.reach, &docker.place.binaries(), &ours.kit_volume());
    let mut body = Spec { capabilities: CAPABILITIES, ..ours.spec(&args, of.build, 0, vec![way.mount, kit]) }.body();
    // Else the daemon makes no file that names a resolver.
    body.network_disabled = None;
    let host = body.host_config.take().unwrap_or_default();
    body.host_config = Some(HostConfig {
        // Containers that join have the file of this one.
        dns: Some(vec!["127.0.0.1".into()]),
        dns_search: Some(vec![".".into()]),
        // Programs that ask after their own host are not to wait for a resolver that does not know it.
        extra_hosts: Some(vec!["callboard:127.0.0.1".into()]),
        sysctls: Some(sysctls(Path::new("/proc/sys/net/ipv6").exists())),
        ..host
    });
    ours.orders(body, directory.join(ENDED), Some(of.fence_at))
}

/// Makes one, and has a container that joins it reach out. Nobody is behind it.
///
/// # Errors
///
/// Why it does not work, for a person.
pub(super) async fn tried(docker: &Docker, site: &Site, build: &str) -> Result<(), String> {
    let said = |error: &dyn std::fmt::Display| format!("no network for containers: {error}");
    // What stands for the proxy's socket.
    fs::write(site.path(names::EGRESS), []).map_err(|error| said(&error))?;
    let fence_at = Boot::now().plus(TRIAL_MAX);
    let of = NetworkOf { build, directory: &site.directory, slot: 0, images: &[], fence_at };
    let contained = Contained::start(&docker.place.installed(), build, orders(docker, of), None, pending()).await;
    let contained = contained.map_err(|error| said(&error))?;
    let way_out = Some(WayOut { sandboxes: None, containers: Some(Awaited::of(contained.joined.clone())) });
    let program = docker.own(&["try", Trial::Out.as_str()]);
    let tried = Attempt { isolation: docker, site, program, way_out, limits: AMPLE }.run().await;
    let weak = contained.weak.clone();
    contained.end().await;
    match (weak, tried.map_err(|error| said(&error))?) {
        (None, Outcome { code: 0, said: resolver, .. }) if resolver.contains("nameserver 127.0.0.1") => Ok(()),
        (None, Outcome { said: seen, complaint, .. }) => Err(said(&format!("it leads nowhere: {complaint} {seen}"))),
        (Some(why), _) => {
            warn!(why, "only programs that heed HTTP_PROXY and the like get out of builds");
            Ok(())
        }
    }
}

fn sysctls(has_v6: bool) -> HashMap<String, String> {
    V6.iter().filter(|_| has_v6).map(|name| ((*name).to_owned(), "0".to_owned())).collect()
}
