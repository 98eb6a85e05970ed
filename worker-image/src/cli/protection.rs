//! How a worker that is a task of an ECS service is protected from scale-in.

use crate::protection::Settings;
use clap::Args;
use std::time::Duration;

/// Of `run` and `recover`.
#[derive(Debug, Args)]
pub(super) struct ProtectionArgs {
    /// Where ECS's agent is. It sets this itself.
    #[arg(long, env = "ECS_AGENT_URI", hide = true)]
    ecs_agent_uri: Option<String>,
    /// In a task of an ECS service: how often its protection from scale-in is renewed, in milliseconds.
    #[arg(long, env = "CALLBOARD_PROTECTION_RENEW_MS", default_value_t = 60_000, value_parser = clap::value_parser!(u64).range(1..))]
    protection_renew_ms: u64,
    /// There: after how long without a build it stops claiming for a while, for ECS to end it if it wants to, in milliseconds; 0: only when
    /// ECS wants fewer workers.
    #[arg(long, env = "CALLBOARD_PROTECTION_IDLE_MS", default_value_t = 300_000)]
    protection_idle_ms: u64,
    /// There: for how long, in milliseconds.
    #[arg(long, env = "CALLBOARD_PROTECTION_ASIDE_MS", default_value_t = 60_000)]
    protection_aside_ms: u64,
}

impl ProtectionArgs {
    pub(super) fn settings(&self) -> Settings {
        Settings {
            agent: self.ecs_agent_uri.clone().filter(|uri| !uri.is_empty()),
            renew_every: Duration::from_millis(self.protection_renew_ms),
            idle: (self.protection_idle_ms > 0).then(|| Duration::from_millis(self.protection_idle_ms)),
            aside: Duration::from_millis(self.protection_aside_ms),
        }
    }
}
