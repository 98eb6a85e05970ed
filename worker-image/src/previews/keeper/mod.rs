//! The process that keeps one preview, `callboard-worker keep`: it binds the port and holds it, runs the service in a sandbox of
//! its own, carries connections to it, asks after its health, keeps its log, and says how it is.
//!
//! The worker starts it and may then end, be killed or be started again: the keeper goes on, in a session of its own, and is found
//! by its socket. Nobody but it holds the port or the sandbox: whatever kills it ends both, and the next look of the worker says so.

mod forward;
mod health;
mod life;
mod log;
mod orders;
pub(super) mod port;
mod shown;
mod talk;

pub use orders::Orders;
pub use talk::{Ask, Told};

use super::folder;
use life::Life;
use nix::unistd::{dup2_stderr, dup2_stdin, dup2_stdout, setsid};
use rules::preview::Seen;
use shown::Shown;
use std::fs::{File, OpenOptions};
use std::io::{self, BufRead as _, Write as _};
use std::sync::Arc;

/// What a keeper says when it can be spoken to.
pub(super) const READY: &str = "ready";

/// The whole life of the process, which may have so many descriptors. Its orders are a line of its standard input.
///
/// # Errors
///
/// If it can't begin. That is said on standard output as well.
pub fn run(descriptors: u64) -> io::Result<()> {
    // Neither Ctrl-C in the worker's terminal nor the worker's end is for it.
    setsid().ok();
    let began = orders().and_then(|orders| {
        let place = orders.folder().take()?.ok_or_else(|| io::Error::other("it has a keeper already"))?;
        Ok((orders, place))
    });
    let kept = began.and_then(|(orders, place)| keep(orders, place, descriptors));
    kept.inspect_err(|error| say(&error.to_string()))
}

/// Without the line's end there may be more to it: whoever started us is gone.
fn orders() -> io::Result<Orders> {
    let mut line = String::new();
    io::stdin().lock().read_line(&mut line)?;
    dup2_stdin(File::open("/dev/null")?)?;
    if !line.ends_with('\n') {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    Ok(serde_json::from_str(&line)?)
}

fn keep(orders: Orders, place: File, descriptors: u64) -> io::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let folder = orders.folder();
        let log = log::Log::begin(folder.clone())?;
        let shown = Arc::new(Shown::new(folder.clone(), folder::of(orders.build, Seen::Starting))?);
        let asked = talk::listen(&folder, shown.watch())?;
        say(READY);
        let_go()?;
        Life::new(orders, Arc::clone(&shown), Arc::new(log), descriptors).live(asked).await;
        Ok::<(), io::Error>(())
    })?;
    drop(place);
    // A name that is still looked up is nobody's any more.
    runtime.shutdown_background();
    Ok(())
}

/// The worker's pipes are not for what comes after it.
fn let_go() -> io::Result<()> {
    let null = OpenOptions::new().write(true).open("/dev/null")?;
    dup2_stdout(&null)?;
    Ok(dup2_stderr(&null)?)
}

fn say(line: &str) {
    writeln!(io::stdout().lock(), "{}", line.replace(['\n', '\r'], " ")).ok();
}
