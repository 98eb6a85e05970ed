//! Standard input as a leash: whoever started a process that is not to outlive them holds the other end.

use std::io;
use std::thread;
use tokio::sync::oneshot::{self, Receiver};

/// Comes when standard input ends, whatever was written to it before. A thread of its own reads, since a runtime would wait for
/// it.
///
/// # Errors
///
/// If there can't be such a thread.
pub fn end() -> io::Result<Receiver<()>> {
    let (ended, end) = oneshot::channel();
    thread::Builder::new().spawn(move || {
        io::copy(&mut io::stdin().lock(), &mut io::sink()).ok();
        ended.send(()).ok();
    })?;
    Ok(end)
}
