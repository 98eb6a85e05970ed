//! `callboard`: see `callboard --help`.

use clap::Parser as _;
use std::process::ExitCode;
use std::time::Duration;

/// How long what is still being done may hold the process. A file that can't be read for ever (a dead network drive) may not.
const PATIENCE: Duration = Duration::from_secs(1);

/// Threads for `up`'s server: half of the processors, since Postgres and builds want the others, and a server with a thread for each spends a
/// good part of its time on waking them.
fn threads() -> usize {
    std::thread::available_parallelism().map_or(1, |all| (all.get() / 2).max(1))
}

fn main() -> ExitCode {
    let cli = callboard_cli::args::Cli::parse();
    match tokio::runtime::Builder::new_multi_thread().worker_threads(threads()).enable_all().build() {
        Ok(runtime) => {
            let code = runtime.block_on(callboard_cli::run(cli));
            runtime.shutdown_timeout(PATIENCE);
            code
        }
        Err(_) => ExitCode::FAILURE,
    }
}
