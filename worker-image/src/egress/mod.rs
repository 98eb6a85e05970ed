//! The way out of a sandbox: a proxy behind a Unix socket, a process per build and gone with it.
//!
//! A build has a network of its own with nothing but loopback in it ([`crate::network`]); what listens there carries all that it
//! is given to this socket. The proxy resolves names itself and checks the *addresses*, so neither a name that points inwards nor
//! one that changes between check and use gets through. None of this needs root.
//!
//! What it can't give: UDP, but for questions for names, and ICMP.

mod addresses;
mod head;
mod process;
mod proxy;
mod socket;

pub use addresses::{Allowed, BadAllowed, is_public, may_connect};
pub use process::{Proxy, Way, serve};
pub use proxy::{RESOLVER, Refusals};
pub use socket::Address;
