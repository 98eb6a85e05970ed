//! The way out of a sandbox: a proxy behind a Unix socket, a process per build and gone with it.
//!
//! A sandbox has a network of its own with nothing but loopback in it. Its first process listens there and carries what
//! it is given to this socket; HTTP(S)_PROXY and ALL_PROXY name that listener. The proxy resolves names itself and
//! checks the *addresses*, so neither a name that points inwards nor one that changes between check and use gets
//! through. None of this needs root.
//!
//! What it can't give: UDP, ICMP and TCP of programs that don't heed the proxy variables (`git://`, `ssh`, most
//! database clients). DNS inside the sandbox answers nothing; the proxy resolves.

mod addresses;
mod head;
mod process;
mod proxy;

pub use addresses::{Allowed, BadAllowed, is_public, may_connect};
pub use process::{Proxy, Way, serve};
pub use proxy::Refusals;
