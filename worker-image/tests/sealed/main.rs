//! The worker as it is: a real process, real sandboxes, a real git server; only the board is a fake.

#![allow(clippy::unwrap_used, reason = "a test that can not go on fails")]
#![allow(clippy::result_large_err, reason = "an answer is an answer, whichever way")]

#[macro_use]
mod back_ends;

mod alive;
#[cfg(feature = "ecs")]
mod away;
mod between;
mod board;
mod calls;
mod containers;
mod course;
mod faithful;
mod fleet;
mod forge;
mod front;
mod hangs;
mod image;
mod inside;
mod limits;
mod network;
mod output;
mod protection;
mod pulled_previews;
mod pulls;
mod refusals;
mod registry;
mod seal;
mod settings;
#[path = "../../../tests/skipped.rs"]
mod skipped;
mod skips;
mod source;
mod stopped;
mod stops;
mod survival;
mod tools;
mod traces;

use back_ends::BackEnd;
use board::Board;
use fleet::Worker;
use forge::Forge;

/// A board, a git server and a worker that runs steps in bubblewrap, where a sandbox works.
async fn set_up(args: &[&str]) -> Option<(Board, Forge, Worker)> {
    set_up_in(BackEnd::Bubblewrap, args).await
}

/// The same for either back end.
async fn set_up_in(back_end: BackEnd, args: &[&str]) -> Option<(Board, Forge, Worker)> {
    if !back_end.is_here() {
        return None;
    }
    let (board, forge) = (Board::start_for(back_end.image()).await, Forge::start().await);
    let worker = Worker::start_for(back_end, &board, &forge, args);
    Some((board, forge, worker))
}
