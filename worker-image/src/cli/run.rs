//! What a worker that runs is told.

use super::ExposedArgs;
use super::previews::PreviewArgs;
use super::protection::ProtectionArgs;
use super::sandbox::{AcceptArgs, IsolationArgs, LimitArgs, PlaceArgs};
use crate::config::{Config, Grace, Token};
use crate::egress::Allowed;
use crate::input;
use anyhow::{Context as _, bail};
use clap::Args;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// The variable that holds the token.
const TOKEN: &str = "CALLBOARD_WORKER_TOKEN";

/// `run` and `recover`.
#[derive(Debug, Args)]
pub struct RunArgs {
    /// Where the control plane is, such as `https://board.example.com`.
    #[arg(long, env = "CALLBOARD_URL")]
    api_url: Option<String>,
    /// A file that holds the worker's token; without it, the environment's CALLBOARD_WORKER_TOKEN.
    #[arg(long, env = "CALLBOARD_WORKER_TOKEN_FILE")]
    token_file: Option<PathBuf>,
    /// The worker's name, for people; without it, the host's.
    #[arg(long, env = "CALLBOARD_WORKER_NAME")]
    name: Option<String>,
    /// How many builds to hold at once.
    #[arg(long, env = "CALLBOARD_WORKER_SLOTS", default_value_t = 2, value_parser = clap::value_parser!(u32).range(1..=256))]
    slots: u32,
    #[command(flatten)]
    place: PlaceArgs,
    /// A label such as `arch=arm64`; may be repeated.
    #[arg(long = "label", env = "CALLBOARD_WORKER_LABELS", value_delimiter = ',', value_parser = label)]
    labels: Vec<String>,
    /// Certificates (PEM) to trust besides the system's, by the worker and by clones.
    #[arg(long, env = "CALLBOARD_CA_BUNDLE")]
    ca_bundle: Option<PathBuf>,
    /// HOST:PORT that builds may reach although it is not public; may be repeated.
    #[arg(long, env = "CALLBOARD_EGRESS_ALLOW", value_delimiter = ',')]
    egress_allow: Vec<Allowed>,
    /// ADDRESS:PORT of the resolver that builds ask for names, by TCP; without it, the first of /etc/resolv.conf.
    #[arg(long, env = "CALLBOARD_RESOLVER")]
    resolver: Option<SocketAddr>,
    /// How long running builds may go on after the first SIGTERM, in seconds.
    #[arg(long, env = "CALLBOARD_DRAIN_TIMEOUT", default_value_t = 1800)]
    drain_timeout: u64,
    #[command(flatten)]
    isolation: IsolationArgs,
    #[command(flatten)]
    limits: LimitArgs,
    #[command(flatten)]
    accept: AcceptArgs,
    /// Between asking a step's processes to end and ending them, in milliseconds.
    #[arg(long, env = "CALLBOARD_KILL_GRACE_MS", default_value_t = 10_000)]
    kill_grace_ms: u64,
    /// What is kept in hand between the last kill and the reaper, in milliseconds.
    #[arg(long, env = "CALLBOARD_FENCE_MARGIN_MS", default_value_t = 15_000)]
    fence_margin_ms: u64,
    /// How long logs may hold a build after its steps ended, in milliseconds.
    #[arg(long, env = "CALLBOARD_LOGS_HOLD_MS", default_value_t = 60_000)]
    logs_hold_ms: u64,
    /// End a step that writes nothing for so many seconds; 0: never.
    #[arg(long, env = "CALLBOARD_SILENT_TIMEOUT", default_value_t = 0)]
    silent_timeout: u64,
    /// Where this host's number is kept; without it, in the builds root.
    #[arg(long, env = "CALLBOARD_HOST_ID_FILE")]
    host_id_file: Option<PathBuf>,
    /// Stop when standard input ends: for whoever starts a worker that is not to outlive them.
    #[arg(long, hide = true)]
    pub until_stdin_ends: bool,
    /// Claim nothing with less than this much free space in the builds root, in MiB.
    #[arg(long, env = "CALLBOARD_FREE_MIB_MIN", default_value_t = 256)]
    free_mib_min: u64,
    #[command(flatten)]
    exposed: ExposedArgs,
    #[command(flatten)]
    previews: PreviewArgs,
    #[command(flatten)]
    protection: ProtectionArgs,
}

impl RunArgs {
    /// The same, checked.
    ///
    /// # Errors
    ///
    /// What is wrong with it.
    pub fn config(&self) -> anyhow::Result<Config> {
        let milliseconds = Duration::from_millis;
        let Some(api_url) = &self.api_url else {
            bail!("no control plane: name it with --api-url, with CALLBOARD_URL, or with api_url in a worker.toml");
        };
        let api_url = api_url.trim_end_matches('/').to_owned();
        if !api_url.starts_with("http://") && !api_url.starts_with("https://") {
            bail!("--api-url must begin with https:// or http://");
        }
        Ok(Config {
            api_url,
            token: token(self.token_file.as_deref())?,
            name: self.name.clone().unwrap_or_else(host_name),
            slots: self.slots,
            labels: self.labels.clone(),
            ca_bundle: self.ca_bundle.clone(),
            egress_allow: self.egress_allow.clone(),
            resolver: self.resolver,
            drain_timeout: Duration::from_secs(self.drain_timeout),
            isolation: self.isolation.isolation,
            docker: self.isolation.containers(),
            ecs: self.isolation.tasks(),
            limits: self.limits.limits(),
            accept: self.accept.accepted(),
            grace: Grace {
                kill: milliseconds(self.kill_grace_ms),
                fence_margin: milliseconds(self.fence_margin_ms),
                logs: milliseconds(self.logs_hold_ms),
                silent: (self.silent_timeout > 0).then(|| Duration::from_secs(self.silent_timeout)),
                ..Grace::default()
            },
            host_id_file: self.host_id_file.clone(),
            free_bytes_min: self.free_mib_min * 1024 * 1024,
            metrics_addr: self.exposed.metrics_addr,
            previews: self.previews.settings(),
            protection: self.protection.settings(),
            previews_end: self.until_stdin_ends,
            place: self.place.place()?,
        })
    }
}

/// An option would show the token to every process of the host, so there is none.
fn token(file: Option<&Path>) -> anyhow::Result<Token> {
    let text = match file {
        Some(path) => input::text(path).with_context(|| format!("the token file {}", path.display()))?,
        None => std::env::var_os(TOKEN).and_then(|token| token.into_string().ok()).unwrap_or_default(),
    };
    match text.trim() {
        "" => bail!("no token: set {TOKEN}, or name a file with --token-file"),
        token => Ok(Token(token.to_owned())),
    }
}

fn host_name() -> String {
    nix::unistd::gethostname().map(|name| name.to_string_lossy().into_owned()).unwrap_or_else(|_| "worker".into())
}

fn label(word: &str) -> Result<String, String> {
    let is_fine = |part: &str| !part.is_empty() && !part.contains([' ', ',', '=']);
    match word.split_once('=') {
        Some((key, value)) if is_fine(key) && is_fine(value) => Ok(word.to_owned()),
        Some(_) | None => Err("must be KEY=VALUE, such as arch=arm64".into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_label_has_a_key_and_a_value() {
        assert_eq!(label("arch=arm64"), Ok("arch=arm64".into()));
        for word in ["arch", "=x", "arch=", "a=b=c"] {
            assert!(label(word).is_err(), "{word}");
        }
    }
}
