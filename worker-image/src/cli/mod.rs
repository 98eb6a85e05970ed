//! The command line. Every option can be set by the environment as well; the token only there or in a file.

mod ecs;
mod inner;
mod previews;
mod protection;
mod run;
mod sandbox;

pub use inner::{EgressArgs, EnterArgs, KeepArgs, NetworkArgs};
pub use run::RunArgs;
pub use sandbox::PlaceArgs;

use crate::config::Place;
use crate::exposed;
use crate::isolation::Choice;
use crate::isolation::docker::Settings as Containers;
use crate::isolation::ecs::Settings as Tasks;
use crate::isolation::guarantees::Guarantee;
use crate::isolation::trial::Trial;
use crate::previews::settings::Settings as Previews;
use crate::settings::{self, Bad, Settings};
use clap::{Args, CommandFactory as _, FromArgMatches as _, Parser, Subcommand, ValueEnum};
use previews::PreviewArgs;
use sandbox::{AcceptArgs, IsolationArgs};
use std::collections::BTreeSet;
use std::ffi::OsString;
use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

/// How long a worker that is well may take to say so.
const HEALTH_PATIENCE: Duration = Duration::from_secs(4);

const HELP: &str = "Examples:
  callboard-worker doctor
  callboard-worker run --api-url https://board.example.com --token-file worker.token --slots 4

Exit codes:
  0    it was told to stop, and the board knows all ends
  2    an option that can't be
  69   no sandbox works here, or not all of its limits
  70   three failures of the host in a row; it says which
  71   too few open files for its slots
  73   the builds root can't be used
  75   another worker has it
  76   not all ends of builds could be reported: the next start, or `recover`, does it
  77   the board refuses the token
  78   settings are missing or wrong
  1    anything else";

/// Takes builds from a Callboard and runs their steps, each sealed off.
#[derive(Debug, Parser)]
#[command(name = "callboard-worker", version, args_override_self = true, after_help = HELP)]
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
    Doctor(Box<DoctorArgs>),
    /// Ask the worker that runs here whether it is well: for a container's health check.
    #[command(hide = true)]
    Health(HealthArgs),
    /// Say whether `run` would take what it is told of the place where builds run. Asked by whoever proposes tools of a host.
    #[command(hide = true)]
    Place(PlaceArgs),
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
    /// Keep one live preview. Started by `run`, and outlives it.
    #[command(hide = true)]
    Keep(KeepArgs),
    /// Give directories to a user. Started by `run`, in a container.
    #[command(hide = true)]
    HandOver {
        /// The user and group.
        #[arg(long)]
        user: u32,
        /// The directories.
        directories: Vec<PathBuf>,
    },
    /// Run one build's steps in the other containers of this ECS task. Started by `run`, by way of ECS; told what it needs by variables.
    #[command(hide = true)]
    Runner,
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
    #[command(flatten)]
    previews: PreviewArgs,
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
            Self::Run(_) | Self::Recover(_) | Self::Doctor(_) | Self::Health(_) | Self::Place(_) => true,
            Self::Guard { .. }
            | Self::Enter(_)
            | Self::Egress(_)
            | Self::Network(_)
            | Self::Keep(_)
            | Self::HandOver { .. }
            | Self::Runner
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
    pub fn isolation(&self) -> (Choice, Containers, Tasks) {
        (self.isolation.isolation, self.isolation.containers(), self.isolation.tasks())
    }

    /// How previews would be held.
    #[must_use]
    pub fn previews(&self) -> Previews {
        self.previews.settings()
    }

    /// What the operator puts up with.
    #[must_use]
    pub fn accepted(&self) -> BTreeSet<Guarantee> {
        self.accept.accepted()
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
}
