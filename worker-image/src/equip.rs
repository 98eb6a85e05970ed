//! What a build's directory holds besides the workspace: its way out, and the certificates that its clone trusts.

use crate::clone;
use crate::config::Config;
use crate::egress::{Allowed, Proxy};
use crate::isolation::bubblewrap::names;
use crate::logs::Sink;
use crate::site::Site;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

/// How many refused connections a build's log names.
const REFUSALS_MAX: u32 = 20;

/// Writes the certificates and starts the proxy, which ends with what is returned.
///
/// # Errors
///
/// If the operator's certificates can't be read, or the directory not be written.
pub fn equip(config: &Config, site: &Site, sink: &Sink) -> io::Result<Proxy> {
    if let Some(operators) = &config.ca_bundle {
        let path = site.path(names::CERTIFICATES);
        clone::write_certificates(&path, operators)?;
        site.hand_over(&path, 0o644)?;
    }
    let (sink, said) = (sink.clone(), AtomicU32::new(0));
    let refusals = Arc::new(move |line: String| {
        if said.fetch_add(1, Ordering::Relaxed) < REFUSALS_MAX {
            Sink { step: sink.lease.phase().into(), ..sink.clone() }.say(&line);
        }
    });
    let allowed: Arc<[Allowed]> = config.egress_allow.clone().into();
    let proxy = Proxy::start(&site.path(names::EGRESS), allowed, refusals)?;
    site.hand_over(&site.path(names::EGRESS), 0o600)?;
    Ok(proxy)
}
