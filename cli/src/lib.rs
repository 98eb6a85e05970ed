//! The command line of Callboard: what a person types.
//!
//! Everything but `up`, `demo` and `migrate` goes through the HTTP API, like a web-app of one's own would.

// `println!` panics where nobody reads; `say` does not.
#![deny(clippy::print_stdout, clippy::print_stderr)]

pub mod answer;
pub mod args;
pub mod asked;
pub mod build;
pub mod exit;
pub mod ids;
pub mod operator;
pub mod output;
pub mod pipeline;
pub mod plan;
pub mod preview;
pub mod secret;
pub mod settings;
pub mod stack;
pub mod workspace;

use args::{Cli, Command};
use asked::Asked;
use output::Output;
use settings::Settings;
use std::process::ExitCode;

/// Does what was typed; returns the exit code.
pub async fn run(cli: Cli) -> ExitCode {
    let output = Output::new(cli.json, cli.color);
    let asked = Asked::of(&cli.command);
    match command(cli, output).await {
        Ok(code) => code.into(),
        Err(error) => {
            let error = asked.told(error);
            let code = exit::of(&error);
            if code != exit::UNREAD {
                localstack::say::err(format_args!("callboard: {}", told(&error)));
            }
            code.into()
        }
    }
}

/// An error and its causes, which may repeat what a stranger wrote. A cause that was told with what it caused is not told
/// again.
fn told(error: &anyhow::Error) -> String {
    let text = error
        .chain()
        .map(ToString::to_string)
        .reduce(|told, cause| if told.contains(&cause) { told } else { format!("{told}: {cause}") });
    text.unwrap_or_default().lines().map(localstack::clean::plain).collect::<Vec<_>>().join("\n")
}

async fn command(cli: Cli, output: Output) -> anyhow::Result<u8> {
    let settings = Settings::new(cli.env_file);
    match cli.command {
        Command::Up(args) => stack::up(args).await,
        Command::Demo(args) => stack::demo(args, output).await,
        Command::Migrate(args) => stack::migrate(args).await,
        Command::Pipeline(command) => pipeline::run(command, &settings.api()?, output).await,
        Command::Build(command) => build::run(command, &settings.api()?, output).await,
        Command::Preview(command) => preview::run(command, &settings, output).await,
        Command::Secret(command) => secret::run(command, &settings.api()?, output).await,
        Command::Workspace(command) => workspace::run(command, &settings, output).await,
        Command::Plan(command) => plan::run(command, &settings.operator()?, output).await,
        Command::Token(command) => operator::token(command, &settings.operator()?, output).await,
        Command::Worker(command) => operator::worker(command, &settings.operator()?, output).await,
        Command::Reap => operator::reap(&settings.operator()?, output).await,
        Command::Completions { shell } => {
            args::complete(shell)?;
            Ok(0)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use anyhow::anyhow;

    #[test]
    fn a_cause_is_told_once_however_often_it_was_repeated() {
        let error =
            anyhow!("pool timed out").context("no answer: pool timed out").context("the database can't be used");
        assert_eq!(told(&error), "the database can't be used: no answer: pool timed out");
    }
}
