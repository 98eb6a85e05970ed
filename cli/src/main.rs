//! `callboard`: see `callboard --help`.

use clap::Parser as _;
use std::process::ExitCode;
use std::time::Duration;

/// How long what is still being done may hold the process. A file that can't be read for ever (a dead network drive) may not.
const PATIENCE: Duration = Duration::from_secs(1);

fn main() -> ExitCode {
    let cli = callboard_cli::args::Cli::parse();
    match tokio::runtime::Builder::new_multi_thread().enable_all().build() {
        Ok(runtime) => {
            let code = runtime.block_on(callboard_cli::run(cli));
            runtime.shutdown_timeout(PATIENCE);
            code
        }
        Err(_) => ExitCode::FAILURE,
    }
}
