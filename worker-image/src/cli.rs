//! The command line. Every option can be set by the environment as well; the token only there or in a file.

use crate::config::{Config, Grace, Place, Token};
use crate::egress::Allowed;
use crate::exposed;
use crate::input;
use crate::isolation::docker::{PullWhen, Settings as Containers, socket};
use crate::isolation::guarantees::Guarantee;
use crate::isolation::trial::Trial;
use crate::isolation::{Choice, Limits};
use crate::settings::{self, Bad, Settings};
use anyhow::{Context as _, bail};
use clap::{Args, CommandFactory as _, FromArgMatches as _, Parser, Subcommand, ValueEnum};
use std::collections::BTreeSet;
use std::ffi::OsString;
use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// How long a worker that is well may take to say so.
const HEALTH_PATIENCE: Duration = Duration::from_secs(4);
/// The variable that holds the token.
const TOKEN: &str = "CALLBOARD_WORKER_TOKEN";

/// Takes builds from a Callboard and runs their steps, each sealed off.
#[derive(Debug, Parser)]
#[command(name = "callboard-worker", version, args_override_self = true)]
pub struct Cli {
    /// How the worker writes its own log, to standard error.
    #[arg(long, env = "CALLBOARD_LOG_FORMAT", value_enum, default_value = "text", global = true)]
    pub log_format: LogFormat,
    /// A file of settings; without it, /etc/callboard/worker.toml if that is there.
    #[arg(long, env = "CALLBOARD_WORKER_CONFIG", value_name = "FILE", global = true)]
    pub config: Option<PathBuf>,
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// How log lines look.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum LogFormat {
    /// For people.
    Text,
    /// For programs.
    Json,
}

/// What to do.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Claim builds and run them until told to stop.
    Run(Box<RunArgs>),
    /// End what an earlier worker of this host left behind, and nothing else.
    Recover(Box<RunArgs>),
    /// Say whether builds can run here, and what to do if not.
    Doctor(DoctorArgs),
    /// Ask the worker that runs here whether it is well: for a container's health check.
    #[command(hide = true)]
    Health(HealthArgs),
    /// Watch over one sandbox. Started by `run`.
    #[command(hide = true)]
    Guard {
        /// The build, for people who look at the process list.
        #[arg(long)]
        build: String,
    },
    /// Become a sandbox. Started by `guard`.
    #[command(hide = true)]
    Enter(EnterArgs),
    /// Be the way out of one build's sandboxes. Started by `run`.
    #[command(hide = true)]
    Egress(EgressArgs),
    /// Be the network of one build's sandboxes. Started by `run`.
    #[command(hide = true)]
    Network(NetworkArgs),
    /// Give directories to a user. Started by `run`, in a container.
    #[command(hide = true)]
    HandOver {
        /// The user and group.
        #[arg(long)]
        user: u32,
        /// The directories.
        directories: Vec<PathBuf>,
    },
    /// Be the first process of a sandbox. Started by `guard`.
    #[command(hide = true)]
    SandboxInit,
    /// Try a sandbox from inside. Started by `doctor` and `run`.
    #[command(hide = true)]
    Try {
        /// What to try.
        what: Trial,
    },
}

/// Where builds run.
#[derive(Debug, Args)]
pub struct PlaceArgs {
    /// The directory that holds a directory per build.
    #[arg(long, env = "CALLBOARD_BUILDS_ROOT", default_value = "/var/lib/callboard/builds")]
    builds_root: PathBuf,
    /// As root, slot N's processes run as this user id + N.
    #[arg(long, env = "CALLBOARD_FIRST_UID", default_value_t = 300_000)]
    first_uid: u32,
}

/// `health`.
#[derive(Debug, Args)]
pub struct HealthArgs {
    #[command(flatten)]
    exposed: ExposedArgs,
}

/// Where a worker tells of itself.
#[derive(Debug, Args)]
struct ExposedArgs {
    /// Serve /metrics and /healthz here, such as on 127.0.0.1:9477.
    #[arg(long, env = "CALLBOARD_METRICS_ADDR", value_name = "ADDRESS:PORT")]
    metrics_addr: Option<SocketAddr>,
}

/// `egress`.
#[derive(Debug, Args)]
pub struct EgressArgs {
    /// The build, for people who look at the process list.
    #[arg(long)]
    pub build: String,
    /// Where to listen.
    #[arg(long)]
    pub socket: PathBuf,
    /// HOST:PORT that may be reached although it is not public; may be repeated.
    #[arg(long)]
    pub allow: Vec<Allowed>,
    /// ADDRESS:PORT of the resolver; without it, the host's first.
    #[arg(long)]
    pub resolver: Option<SocketAddr>,
}

/// `network`.
#[derive(Debug, Args)]
pub struct NetworkArgs {
    /// The build, for people who look at the process list.
    #[arg(long)]
    pub build: String,
    /// Where the build's proxy listens.
    #[arg(long)]
    pub socket: PathBuf,
}

/// `enter`.
#[derive(Debug, Args)]
pub struct EnterArgs {
    /// The files of control groups that take processes; may be repeated.
    #[arg(long = "group")]
    pub groups: Vec<PathBuf>,
    /// The user and group to become.
    #[arg(long)]
    pub user: Option<u32>,
    /// The process whose user and network namespaces to enter.
    #[arg(long)]
    pub inside: Option<u32>,
    /// The program to become, and its arguments.
    #[arg(last = true)]
    pub command: Vec<String>,
}

/// `doctor`.
#[derive(Debug, Args)]
pub struct DoctorArgs {
    /// Print JSON.
    #[arg(long)]
    pub json: bool,
    /// How many builds a worker is to hold at once.
    #[arg(long, env = "CALLBOARD_WORKER_SLOTS", default_value_t = 2, value_parser = clap::value_parser!(u32).range(1..=256))]
    pub slots: u32,
    #[command(flatten)]
    place: PlaceArgs,
    #[command(flatten)]
    isolation: IsolationArgs,
    #[command(flatten)]
    accept: AcceptArgs,
}

/// What the operator puts up with.
#[derive(Debug, Args)]
pub struct AcceptArgs {
    /// A guarantee that builds may do without where this host can't give it, such as `memory`; may be repeated.
    #[arg(long = "accept", env = "CALLBOARD_ACCEPT", value_delimiter = ',')]
    accept: Vec<Guarantee>,
}

/// What a build may take of its host.
#[derive(Debug, Args)]
pub struct LimitArgs {
    /// Memory of a build's running step, in MiB.
    #[arg(long, env = "CALLBOARD_MEMORY_MIB", default_value_t = 4096, value_parser = clap::value_parser!(u32).range(16..))]
    memory_mib: u32,
    /// Processes and threads of a build at once.
    #[arg(long, env = "CALLBOARD_PROCESSES", default_value_t = 1024, value_parser = clap::value_parser!(u32).range(8..=4_000_000))]
    processes: u32,
    /// CPUs of a build, in thousandths: 1500 is one and a half.
    #[arg(long, env = "CALLBOARD_CPU_MILLIS", default_value_t = 2000, value_parser = clap::value_parser!(u32).range(10..=1_000_000))]
    cpu_millis: u32,
    /// What a build's directory may hold, in MiB.
    #[arg(long, env = "CALLBOARD_DISK_MIB", default_value_t = 20 * 1024, value_parser = clap::value_parser!(u32).range(16..))]
    disk_mib: u32,
}

/// What steps run in.
#[derive(Debug, Args)]
pub struct IsolationArgs {
    /// What steps run in; auto: bubblewrap for `image: host`, containers for images, whichever works here.
    #[arg(long, env = "CALLBOARD_ISOLATION", value_enum, default_value = "auto")]
    isolation: Choice,
    /// The container daemon's socket.
    #[arg(long, env = "DOCKER_HOST", default_value = "unix:///var/run/docker.sock", value_parser = socket)]
    docker_host: PathBuf,
    /// When an image is asked for at its registry.
    #[arg(long, env = "CALLBOARD_PULL", value_enum, default_value = "missing")]
    pull: PullWhen,
    /// The image that clones where bubblewrap does not; it needs /bin/sh and git.
    #[arg(long, env = "CALLBOARD_CLONE_IMAGE", default_value = "docker.io/alpine/git:latest")]
    clone_image: String,
}

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
}

impl PlaceArgs {
    fn place(&self) -> anyhow::Result<Place> {
        let binary = std::env::current_exe().context("this program's own file can't be found")?;
        let builds_root = std::path::absolute(&self.builds_root)?;
        Ok(Place { builds_root, first_uid: self.first_uid, binary })
    }
}

impl IsolationArgs {
    fn containers(&self) -> Containers {
        let Self { docker_host, pull, clone_image, .. } = self;
        Containers { socket: docker_host.clone(), pull: *pull, clone_image: clone_image.clone() }
    }
}

impl LimitArgs {
    fn limits(&self) -> Limits {
        let bytes = |mib: u32| u64::from(mib) * 1024 * 1024;
        Limits {
            memory_bytes: bytes(self.memory_mib),
            processes: self.processes,
            cpu_millis: self.cpu_millis,
            disk_bytes: bytes(self.disk_mib),
        }
    }
}

impl Cli {
    /// Reads the command line, the environment and the file of settings. Ends the process where clap does, such as for `--help`.
    ///
    /// # Errors
    ///
    /// What is wrong with the file.
    pub fn read(line: Vec<OsString>) -> Result<Self, Bad> {
        let cli = Self::parse_from(&line);
        let file = if cli.command.has_settings() { settings::file(cli.config.as_deref()) } else { None };
        let Some(file) = file else {
            return Ok(cli);
        };
        let command = Settings::read(&file)?.defaults_of(Self::command());
        Ok(Self::from_arg_matches(&command.get_matches_from(line)).unwrap_or_else(|error| error.exit()))
    }
}

impl Command {
    /// What others started is set up by them.
    fn has_settings(&self) -> bool {
        match self {
            Self::Run(_) | Self::Recover(_) | Self::Doctor(_) | Self::Health(_) => true,
            Self::Guard { .. }
            | Self::Enter(_)
            | Self::Egress(_)
            | Self::Network(_)
            | Self::HandOver { .. }
            | Self::SandboxInit
            | Self::Try { .. } => false,
        }
    }
}

impl HealthArgs {
    /// Asks; says what the worker says.
    ///
    /// # Errors
    ///
    /// If it is not well, can't be asked, or does not say where.
    pub fn ask(&self) -> io::Result<String> {
        let unset =
            || io::Error::other("the worker serves no health: set --metrics-addr or CALLBOARD_METRICS_ADDR for both");
        exposed::ask(self.exposed.metrics_addr.ok_or_else(unset)?, HEALTH_PATIENCE)
    }
}

impl DoctorArgs {
    /// Where builds would run.
    ///
    /// # Errors
    ///
    /// If this program's own file can't be found.
    pub fn place(&self) -> anyhow::Result<Place> {
        self.place.place()
    }

    /// What steps would run in.
    #[must_use]
    pub fn isolation(&self) -> (Choice, Containers) {
        (self.isolation.isolation, self.isolation.containers())
    }

    /// What the operator puts up with.
    #[must_use]
    pub fn accepted(&self) -> BTreeSet<Guarantee> {
        self.accept.accept.iter().copied().collect()
    }
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
            limits: self.limits.limits(),
            accept: self.accept.accept.iter().copied().collect(),
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
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn the_token_is_no_option() {
        let line = ["callboard-worker", "run", "--api-url", "http://x", "--token", "t"];
        assert!(Cli::try_parse_from(line).is_err());
    }

    #[test]
    fn a_label_has_a_key_and_a_value() {
        assert_eq!(label("arch=arm64"), Ok("arch=arm64".into()));
        for word in ["arch", "=x", "arch=", "a=b=c"] {
            assert!(label(word).is_err(), "{word}");
        }
    }
}
