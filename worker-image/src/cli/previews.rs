//! How a host holds previews.

use crate::previews::settings::{Settings, Url, range};
use clap::Args;
use protocol::preview::PortRange;
use std::net::IpAddr;
use std::time::Duration;

/// Of `run` and `recover`.
#[derive(Debug, Args)]
pub(super) struct PreviewArgs {
    /// Hold no live previews: those of its builds fail as unsupported.
    #[arg(long, env = "CALLBOARD_NO_PREVIEWS")]
    no_previews: bool,
    /// The ports that live previews get, both ends included.
    #[arg(long, env = "CALLBOARD_PREVIEW_PORTS", value_name = "FIRST-LAST", default_value = "20000-20999", value_parser = range)]
    preview_ports: PortRange,
    /// The address of this host at which those are bound.
    #[arg(long, env = "CALLBOARD_PREVIEW_ADDRESS", default_value = "127.0.0.1")]
    preview_address: IpAddr,
    /// Where people find a preview, PORT standing for its port, such as `https://previews.example.com:PORT/`; without it, where
    /// the port is bound.
    #[arg(long, env = "CALLBOARD_PREVIEW_URL")]
    preview_url: Option<Url>,
    /// How long a preview's service may take to answer first, in seconds.
    #[arg(long, env = "CALLBOARD_PREVIEW_START_TIMEOUT", default_value_t = 120, value_parser = clap::value_parser!(u64).range(1..))]
    preview_start_timeout: u64,
    /// How often a preview's service is asked whether it is well, in milliseconds.
    #[arg(long, env = "CALLBOARD_PREVIEW_HEALTH_EVERY_MS", default_value_t = 10_000, value_parser = clap::value_parser!(u64).range(1..))]
    preview_health_every_ms: u64,
}

impl PreviewArgs {
    pub(super) fn settings(&self) -> Settings {
        Settings {
            enabled: !self.no_previews,
            ports: self.preview_ports,
            address: self.preview_address,
            url: self.preview_url.clone(),
            start: Duration::from_secs(self.preview_start_timeout),
            health_every: Duration::from_millis(self.preview_health_every_ms),
        }
    }
}
