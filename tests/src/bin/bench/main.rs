//! What the board does in a second, beside what Postgres does: `./tests/run bench` (docs/performance.md).
//!
//! Never asserts a time: it fails where an answer is not the one it should be, or where what is stored does not hold
//! together afterwards.

#![allow(clippy::disallowed_methods, reason = "the benchmark states its own SQL, to see what is really stored")]
#![allow(unreachable_pub, reason = "a binary")]

mod board;
mod chart;
mod cpu;
mod crowd;
mod docs;
mod figures;
mod http;
mod load;
mod measure;
mod options;
mod pgbench;
mod postgres;
mod report;
mod seed;
mod server;
mod statements;

use clap::Parser as _;
use options::Options;
use std::process::ExitCode;
use tokio::signal::unix::{SignalKind, signal};

#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    let options = Options::parse();
    tokio::select! {
        done = measure::all(&options) => match done.and_then(|figures| report::write(&figures, &options)) {
            Ok(()) => ExitCode::SUCCESS,
            Err(why) => {
                eprintln!("bench: {why:#}");
                ExitCode::FAILURE
            }
        },
        code = stopped() => code,
    }
}

/// Ends with what was started taken down, since everything that runs stops when it is dropped.
async fn stopped() -> ExitCode {
    let (interrupt, terminate) = (signal(SignalKind::interrupt()), signal(SignalKind::terminate()));
    let (Ok(mut interrupt), Ok(mut terminate)) = (interrupt, terminate) else { return std::future::pending().await };
    tokio::select! {
        _ = interrupt.recv() => ExitCode::from(130),
        _ = terminate.recv() => ExitCode::from(143),
    }
}
