//! A build's network: a namespace that holds nothing but loopback, in which every address is answered by a relay.
//!
//! A process per build makes the namespace (a user namespace with it, so it needs no root) and stays in it; the sandboxes of
//! the build are made inside. In there all addresses are local: a TCP connection, whatever it is for, reaches the relay,
//! which asks the build's proxy ([`crate::egress`]) for the address that was meant. Names are asked of a resolver on
//! 127.0.0.1, which passes the question on through the proxy. So the proxy decides on everything that leaves, whether a program
//! heeds the proxy's variables or not; what is neither TCP nor a question for a name finds nobody.
//!
//! Without nftables in the kernel, programs must heed the proxy's variables to get out; that is weaker for them, not for others.
//!
//! The other way, nothing gets in, but for a preview's service, to which a door leads: a Unix socket outside.

mod inward;
mod namespace;
mod netlink;
mod process;
mod relay;
mod resolver;
mod rule;

pub use inward::Door;
pub use process::{Inside, Network, Service, WayOut, serve};
