//! `callboard`: see `callboard --help`.

use clap::Parser as _;
use std::process::ExitCode;

#[tokio::main]
async fn main() -> ExitCode {
    callboard_cli::run(callboard_cli::args::Cli::parse()).await
}
