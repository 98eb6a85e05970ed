//! `callboard` (interim)

use clap::{Parser, Subcommand};
use std::path::PathBuf;
use std::process::ExitCode;

#[derive(Parser)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    Demo {
        path: Option<PathBuf>,
        #[arg(long)]
        kill_worker: bool,
    },
    Up {
        #[arg(long)]
        port: Option<u16>,
        #[arg(long)]
        dir: Option<PathBuf>,
        #[arg(long)]
        no_worker: bool,
    },
    Migrate {
        #[arg(long)]
        database_url: String,
        #[arg(long)]
        operator_token_file: Option<PathBuf>,
    },
}

#[tokio::main]
async fn main() -> anyhow::Result<ExitCode> {
    match Cli::parse().command {
        Command::Demo { path, kill_worker } => {
            Ok(localstack::demo(localstack::DemoOptions { path, kill_worker }).await?.into())
        }
        Command::Up { port, dir, no_worker } => {
            localstack::up(localstack::UpOptions { port, dir, no_worker, ..Default::default() }).await?;
            Ok(ExitCode::SUCCESS)
        }
        Command::Migrate { database_url, operator_token_file } => {
            localstack::migrate(&database_url, operator_token_file.as_deref()).await?;
            Ok(ExitCode::SUCCESS)
        }
    }
}
