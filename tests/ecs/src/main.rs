//! The fake by itself, for programs that are no test of this workspace, such as the `aws` command.

use clap::Parser;
use fake_ecs::{Network, Settings, serve_on};
use std::path::PathBuf;
use std::process::ExitCode;
use tokio::signal::unix::{SignalKind, signal};

/// Serves a fake Amazon ECS on 127.0.0.1 until it hears SIGTERM or Ctrl-C; it prints its URL, for AWS_ENDPOINT_URL_ECS
#[derive(Parser)]
struct Args {
    /// The Unix socket of Docker's daemon
    #[arg(long, env = "CALLBOARD_TEST_DOCKER")]
    docker: PathBuf,
    /// The port; 0 takes a free one
    #[arg(long, default_value_t = 0)]
    port: u16,
    /// Ports of the host's 127.0.0.1 that tasks reach by theirs
    #[arg(long, value_delimiter = ',')]
    reach: Vec<u16>,
}

#[tokio::main]
async fn main() -> ExitCode {
    let args = Args::parse();
    match run(args).await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

async fn run(args: Args) -> Result<(), fake_ecs::Error> {
    let settings = Settings { network: Network::Ports(args.reach), ..Settings::default() };
    let fake = serve_on(&args.docker, settings, args.port).await?;
    println!("{}", fake.url());
    let mut terminated = signal(SignalKind::terminate())?;
    tokio::select! {
        _ = terminated.recv() => {}
        _ = tokio::signal::ctrl_c() => {}
    }
    fake.close().await
}
