//! The way out of builds whose daemon does not see this worker's file system: the proxy in a container of our own image, with the
//! daemon's host's network, as the build's user, who may do nothing there but connect.

use super::daemon::words;
use super::ours::Ours;
use super::spec::Spec;
use super::volumes::{self, KEPT, OUT, Reach};
use crate::egress::{Proxy, Refusals, Way};
use crate::guard::client;
use crate::isolation::bubblewrap::names;
use crate::isolation::plan::Errand;
use crate::mark::Mark;
use bollard::models::Mount;
use std::io;
use std::path::Path;

/// The mark that the proxy's guard sets; nobody reads it.
const ENDED: &str = "out-ended-at";

/// Makes a build's volumes, gives them to `user`, and starts its proxy.
///
/// # Errors
///
/// If the daemon can't, or the proxy can't listen.
pub(super) async fn contained(ours: &Ours, way: Way<'_>, user: u32, refusals: Refusals) -> io::Result<Proxy> {
    let directory = way.socket.parent().ok_or(io::ErrorKind::InvalidInput)?;
    let labels = ours.scope.of_build(&way.build);
    let out = volumes::way(Reach::Apart, directory, &way.build, &labels);
    furnish(ours, &way.build, directory, user).await?;
    let args = way.args(&Path::new(OUT.1).join(names::EGRESS));
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    let spec = Spec { network: "host", ..ours.spec(&args, &way.build, user, vec![out.mount, kit(ours)]) };
    let ended_mark = directory.join(ENDED);
    Mark::make(&ended_mark)?;
    let orders = ours.orders(spec.body(), ended_mark, None);
    let running = client::start(way.binary, &way.build, &Errand::Container(Box::new(orders))).await?;
    Proxy::contained(running, refusals).await
}

/// Makes a build's volumes and gives them to `user`.
///
/// # Errors
///
/// If the daemon can't.
pub(super) async fn furnish(ours: &Ours, build: &str, directory: &Path, user: u32) -> io::Result<()> {
    let labels = ours.scope.of_build(build);
    let mut mounts = volumes::kept(Reach::Apart, directory, build, &labels);
    mounts.extend([volumes::way(Reach::Apart, directory, build, &labels).mount, kit(ours)]);
    let targets = [KEPT[0].1, KEPT[1].1, OUT.1];
    let handed = ours.hand_over(&targets, user, build, mounts).await;
    handed.map_err(|error| io::Error::other(format!("no volumes: {}", words(&error))))
}

fn kit(ours: &Ours) -> Mount {
    volumes::kit(Reach::Apart, Path::new(""), &ours.kit_volume())
}
