//! What can be typed.

use clap::{Args, CommandFactory as _, Parser, Subcommand, ValueEnum};
use std::path::PathBuf;
use uuid::Uuid;

const EXIT_CODES: &str = "Exit codes:
  0  done; with --follow: the build succeeded
  1  with --follow: the build failed
  2  what was asked can't be
  3  with --follow: the build was cancelled
  4  with --follow: the build timed out
  5  the board refused, or does not answer
  69 demo: no sandbox works on this machine
  130 ended by Ctrl-C

Where the board is and its tokens come from CALLBOARD_URL, CALLBOARD_API_TOKEN and CALLBOARD_OPERATOR_TOKEN, else from the
file of --env-file, ./callboard.env, or the one of `callboard up`.";

/// A build queue and a worker fleet.
#[derive(Debug, Parser)]
#[command(name = "callboard", version, after_help = EXIT_CODES)]
pub struct Cli {
    /// Print JSON, as the API has it.
    #[arg(long, global = true)]
    pub json: bool,
    /// Colours: on a terminal (auto), always or never. NO_COLOR is heeded.
    #[arg(long, global = true, value_enum, default_value = "auto")]
    pub color: Color,
    /// A file with CALLBOARD_URL and tokens, as `callboard up` writes it.
    #[arg(long, global = true, env = "CALLBOARD_ENV_FILE")]
    pub env_file: Option<PathBuf>,
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// When to paint.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Color {
    /// On a terminal.
    Auto,
    /// Always.
    Always,
    /// Never.
    Never,
}

/// What to do.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Run a board on this machine until Ctrl-C.
    Up(UpArgs),
    /// Run one build on a board of its own, and leave nothing behind.
    Demo(DemoArgs),
    /// Bring a database to this release.
    Migrate(MigrateArgs),
    /// Set up what is built.
    #[command(subcommand)]
    Pipeline(PipelineCommand),
    /// Submit, follow, list and end builds.
    #[command(subcommand)]
    Build(BuildCommand),
    /// Set and delete secrets; values are never shown.
    #[command(subcommand)]
    Secret(SecretCommand),
    /// Show the workspace; for operators: make and list them.
    #[command(subcommand)]
    Workspace(WorkspaceCommand),
    /// For operators: what workspaces may use.
    #[command(subcommand)]
    Plan(PlanCommand),
    /// For operators: make and revoke tokens.
    #[command(subcommand)]
    Token(TokenCommand),
    /// For operators: see the workers.
    #[command(subcommand)]
    Worker(WorkerCommand),
    /// For operators: sweep now, instead of in half a minute.
    Reap,
    /// Print completions for a shell: callboard completions bash > /etc/bash_completion.d/callboard
    Completions {
        /// The shell.
        shell: clap_complete::Shell,
    },
}

/// `up`.
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  callboard up --port 7070 --dir ~/callboard")]
pub struct UpArgs {
    /// The loopback port; 7070 if none is given.
    #[arg(long)]
    pub port: Option<u16>,
    /// Where data, keys and callboard.env are kept.
    #[arg(long)]
    pub dir: Option<PathBuf>,
    /// Start no worker.
    #[arg(long)]
    pub no_worker: bool,
    /// A Postgres that runs elsewhere, instead of one of its own.
    #[arg(long, env = "DATABASE_URL", hide_env_values = true)]
    pub database_url: Option<String>,
    /// HOST:PORT that builds may reach although it is not public; may be repeated.
    #[arg(long)]
    pub egress_allow: Vec<String>,
    /// Certificates (PEM) that clones trust besides the system's.
    #[arg(long)]
    pub ca_bundle: Option<PathBuf>,
}

/// `demo`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  callboard demo\n  callboard demo ~/src/app\n  callboard demo --kill-worker")]
pub struct DemoArgs {
    /// A git repository to build; a sample if none is given.
    pub path: Option<PathBuf>,
    /// Kill the worker in the middle of a step, and show what becomes of the build.
    #[arg(long, conflicts_with = "path")]
    pub kill_worker: bool,
}

/// `migrate`.
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  DATABASE_URL=postgres://… callboard migrate --operator-token-file operator.token")]
pub struct MigrateArgs {
    /// The database. Better in the environment than here, if it holds a password.
    #[arg(long, env = "DATABASE_URL", hide_env_values = true)]
    pub database_url: String,
    /// Make an operator token, and write it to this file.
    #[arg(long)]
    pub operator_token_file: Option<PathBuf>,
}

/// `pipeline`.
#[derive(Debug, Subcommand)]
pub enum PipelineCommand {
    /// Set up or change a pipeline from a file: callboard pipeline apply -f callboard.yaml
    Apply {
        /// The file.
        #[arg(short, long, default_value = "callboard.yaml")]
        file: PathBuf,
        /// Its name, instead of the file's.
        #[arg(long)]
        name: Option<String>,
    },
    /// All pipelines.
    List,
    /// A pipeline, as a file.
    Show {
        /// Its name.
        name: String,
    },
    /// Delete a pipeline; its builds that wait will fail.
    Delete {
        /// Its name.
        name: String,
    },
}

/// `build`.
#[derive(Debug, Subcommand)]
pub enum BuildCommand {
    /// Submit a build: callboard build submit app --ref main --env LEVEL=full --follow
    Submit {
        /// The pipeline's name.
        pipeline: String,
        /// The branch, tag or commit.
        #[arg(long = "ref")]
        git_ref: Option<String>,
        /// NAME=VALUE; may be repeated. Not for secrets: those are set with `callboard secret set`.
        #[arg(long = "env", value_parser = variable)]
        env: Vec<(String, String)>,
        /// Follow it to its end.
        #[arg(long)]
        follow: bool,
        /// Makes a repeat return the first build, for a day.
        #[arg(long)]
        idempotency_key: Option<String>,
    },
    /// Builds, newest first.
    List {
        /// Those in this state.
        #[arg(long)]
        status: Option<String>,
        /// Those of this pipeline.
        #[arg(long)]
        pipeline: Option<String>,
        /// How many at most.
        #[arg(long, default_value_t = 20)]
        limit: u32,
    },
    /// A build.
    Show {
        /// Its id.
        id: Uuid,
    },
    /// A build's log.
    Logs {
        /// Its id.
        id: Uuid,
        /// Until its end.
        #[arg(short, long)]
        follow: bool,
    },
    /// End a build.
    Cancel {
        /// Its id.
        id: Uuid,
    },
    /// Try an ended build again, at the same commit.
    Retry {
        /// Its id.
        id: Uuid,
        /// Follow it to its end.
        #[arg(long)]
        follow: bool,
    },
}

fn variable(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((name, value)) if !name.is_empty() => Ok((name.to_owned(), value.to_owned())),
        Some(_) | None => Err("must be NAME=VALUE".into()),
    }
}

/// `secret`.
#[derive(Debug, Subcommand)]
pub enum SecretCommand {
    /// Set a secret; its value is read from standard input or a file: callboard secret set TOKEN < token.txt
    Set {
        /// Its name, also that of the variable.
        name: String,
        /// Where its value is.
        #[arg(long)]
        file: Option<PathBuf>,
    },
    /// All secrets, without their values.
    List,
    /// Delete a secret.
    Delete {
        /// Its name.
        name: String,
    },
}

/// `workspace`.
#[derive(Debug, Subcommand)]
pub enum WorkspaceCommand {
    /// The token's workspace: used, reserved and left.
    Show,
    /// For operators: make a workspace: callboard workspace create acme --minutes 1000
    Create {
        /// Its name.
        name: String,
        /// What it may use.
        #[command(flatten)]
        plan: PlanArgs,
    },
    /// For operators: all workspaces.
    List,
}

/// What a plan allows.
#[derive(Clone, Copy, Debug, Args)]
pub struct PlanArgs {
    /// Build minutes a month.
    #[arg(long)]
    pub minutes: u32,
    /// The longest that one build may run, in seconds.
    #[arg(long, default_value_t = 1800)]
    pub build_seconds_max: u32,
    /// Builds that may run at once.
    #[arg(long, default_value_t = 4)]
    pub running_max: u32,
    /// Builds that may wait at once.
    #[arg(long, default_value_t = 1000)]
    pub pending_max: u32,
}

/// `plan`.
#[derive(Debug, Subcommand)]
pub enum PlanCommand {
    /// Set a workspace's plan; it binds new builds only.
    Set {
        /// The workspace.
        workspace: String,
        /// What it may use.
        #[command(flatten)]
        plan: PlanArgs,
    },
    /// A workspace's plan.
    Show {
        /// The workspace.
        workspace: String,
    },
}

/// `token`.
#[derive(Debug, Subcommand)]
pub enum TokenCommand {
    /// Make a token; it is shown this once: callboard token create --kind api --workspace acme
    Create {
        /// Whom it lets in.
        #[arg(long, value_enum)]
        kind: Kind,
        /// For an api token: its workspace.
        #[arg(long)]
        workspace: Option<String>,
        /// What it is for.
        #[arg(long, default_value = "")]
        name: String,
    },
    /// All tokens, without the tokens themselves.
    List,
    /// Revoke a token, at once and for good.
    Revoke {
        /// Its id, as `token list` has it.
        id: String,
    },
}

/// Whom a token lets in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Kind {
    /// A worker.
    Worker,
    /// A web-app or a person, in one workspace.
    Api,
    /// An operator.
    Operator,
}

/// `worker`.
#[derive(Debug, Subcommand)]
pub enum WorkerCommand {
    /// The workers as they were last seen.
    List,
}

/// Prints a shell's completions.
pub fn complete(shell: clap_complete::Shell) {
    clap_complete::generate(shell, &mut Cli::command(), "callboard", &mut std::io::stdout());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn a_variable_is_split_at_its_first_equals_sign() {
        assert_eq!(variable("A=b=c"), Ok(("A".into(), "b=c".into())));
        assert_eq!(variable("A="), Ok(("A".into(), String::new())));
        assert!(variable("A").is_err() && variable("=b").is_err());
    }
}
