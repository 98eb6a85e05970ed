//! A container per step, by Docker's daemon (`docs/decisions/0009-docker.md`). Podman's
//! speaks nearly the same; builds run there, but not all come through.
//!
//! A container's first process is the worker's own binary, as in a sandbox of bubblewrap's, with the same plan; so what a step
//! gets, how it is asked to end and which way out it has are the same in both.

mod daemon;
mod guarantees;
mod kit;
mod labels;
mod leftovers;
mod life;
mod network;
mod ours;
mod out;
mod pull;
mod reach;
mod reference;
mod settings;
mod spec;
mod start;
mod volumes;

pub use daemon::{Address, Daemon, socket};
pub use labels::{Scope, build};
pub use leftovers::{Ended, end, end_but_for};
pub use life::{Life, Ran};
pub(in crate::isolation) use reference::{is_reference, registry};
pub use settings::{PullWhen, Settings};
pub use start::{Docker, remove_soon};
pub use volumes::Reach;
