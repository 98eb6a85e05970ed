//! What can be typed.

use crate::build::BuildCommand;
use crate::operator::{TokenCommand, WorkerCommand};
use crate::pipeline::PipelineCommand;
use crate::plan::PlanCommand;
use crate::preview::PreviewCommand;
use crate::secret::SecretCommand;
use crate::workspace::WorkspaceCommand;
use clap::{Args, CommandFactory as _, Parser, Subcommand, ValueEnum};
use std::io::{self, Write as _};
use std::path::PathBuf;

const EXIT_CODES: &str = "Examples:
  callboard up                                   a board on this machine
  callboard pipeline apply -f callboard.yaml     what is to be built
  callboard build submit app --follow            build it, and watch

Exit codes:
  0    done; with --follow: the build succeeded
  1    with --follow: the build failed
  2    what was asked can't be
  3    with --follow: the build was cancelled
  4    with --follow: the build timed out
  5    the board refused, or does not answer
  69   demo: no sandbox works on this machine; up: its Postgres died too often
  70   demo: something was left behind; it says what
  130  ended by Ctrl-C; a build that was followed goes on
  141  nobody reads the output any more

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
    /// A file with CALLBOARD_URL and tokens, as `callboard up` writes it; else that of CALLBOARD_ENV_FILE.
    #[arg(long, global = true, value_name = "FILE")]
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
    /// List, open, extend and destroy live previews.
    #[command(subcommand)]
    Preview(PreviewCommand),
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
    #[command(after_help = "Example:\n  callboard reap --json")]
    Reap,
    /// Print completions for a shell.
    #[command(after_help = "Example:\n  callboard completions bash > /etc/bash_completion.d/callboard")]
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
    /// A Postgres that runs elsewhere, instead of one of its own; else that of DATABASE_URL, unless it is a board's own.
    #[arg(long)]
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
#[command(after_help = "Examples:
  callboard demo
  callboard demo ~/src/app
  callboard demo ~/src/app --secret REGISTRY_TOKEN --secret-file DEPLOY_KEY=$HOME/.ssh/deploy
  callboard demo --kill-worker")]
pub struct DemoArgs {
    /// A git repository to build; a sample if none is given.
    pub path: Option<PathBuf>,
    /// Kill the worker in the middle of a step, and show what becomes of the build.
    #[arg(long, conflicts_with = "path")]
    pub kill_worker: bool,
    /// A secret that the pipeline names; its value is that of the environment variable of this name. May be repeated.
    #[arg(long, value_name = "NAME", requires = "path")]
    pub secret: Vec<String>,
    /// The same with the value in a file, which is taken as it is. May be repeated.
    #[arg(long, value_name = "NAME=FILE", requires = "path")]
    pub secret_file: Vec<String>,
}

/// `migrate`.
#[derive(Debug, Args)]
#[command(
    after_help = "Example:\n  DATABASE_URL=postgres://db.example/builds callboard migrate --operator-token-file operator.token"
)]
pub struct MigrateArgs {
    /// The database. Better in the environment than here, if it holds a password.
    #[arg(long, env = "DATABASE_URL", hide_env_values = true)]
    pub database_url: String,
    /// Make an operator token, and write it to this file.
    #[arg(long)]
    pub operator_token_file: Option<PathBuf>,
}

/// Prints a shell's completions.
///
/// # Errors
///
/// If nobody reads them.
pub fn complete(shell: clap_complete::Shell) -> io::Result<()> {
    let mut text = Vec::new();
    clap_complete::generate(shell, &mut Cli::command(), "callboard", &mut text);
    io::stdout().write_all(&text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }

    /// What a shell makes of a line that has nothing special in it but quotes.
    fn words(line: &str) -> Vec<String> {
        let (mut words, mut quote) = (vec![String::new()], None);
        for letter in line.trim().chars() {
            match (letter, quote) {
                ('"' | '\'', None) => quote = Some(letter),
                (letter, Some(open)) if letter == open => quote = None,
                (' ', None) => words.push(String::new()),
                (letter, _) => words.last_mut().unwrap().push(letter),
            }
        }
        words
    }

    /// The commands of this program in an example; what follows two spaces is a remark.
    fn commands(example: &str) -> Vec<Vec<String>> {
        let parts = example
            .trim()
            .split(" | ")
            .filter_map(|part| Some((part.starts_with("DATABASE_URL="), part.find("callboard ")?, part)));
        let parts = parts.filter(|(sets, at, _)| *at == 0 || *sets);
        parts
            .map(|(sets, at, part)| {
                let line = part[at..].split(" > ").flat_map(|part| part.split(" < ")).next().unwrap();
                let mut words = words(line.split("  ").next().unwrap());
                words.extend(sets.then(|| "--database-url=postgres://x".to_owned()));
                words
            })
            .collect()
    }

    #[test]
    fn every_example_can_be_typed() {
        fn helps(command: &clap::Command) -> Vec<String> {
            let own = command.get_after_help().map(ToString::to_string);
            own.into_iter().chain(command.get_subcommands().flat_map(helps)).collect()
        }
        let helps = helps(&Cli::command()).join("\n");
        let examples: Vec<_> = helps.lines().filter(|line| line.starts_with("  ")).flat_map(commands).collect();
        assert!(examples.len() > 40, "{examples:?}");
        for words in examples {
            assert!(!words.iter().any(|word| word.contains('…')), "{words:?}");
            if let Err(error) = Cli::try_parse_from(&words) {
                panic!("{words:?}: {error}");
            }
        }
    }

    #[test]
    fn every_command_shows_an_example() {
        fn leaves(command: &clap::Command, path: &str) -> Vec<String> {
            let path = format!("{path} {}", command.get_name());
            let below: Vec<String> = command.get_subcommands().flat_map(|below| leaves(below, &path)).collect();
            let shows = command.get_after_help().is_some_and(|help| help.to_string().contains(path.trim()));
            if command.has_subcommands() || shows { below } else { vec![path] }
        }
        assert_eq!(leaves(&Cli::command(), ""), Vec::<String>::new());
    }
}
