//! What the worker calls itself with.

use crate::egress::Allowed;
use clap::Args;
use std::net::SocketAddr;
use std::path::PathBuf;

/// `egress`.
#[derive(Debug, Args)]
pub struct EgressArgs {
    /// The build, for people who look at the process list.
    #[arg(long)]
    pub build: String,
    /// Where to listen.
    #[arg(long)]
    pub socket: PathBuf,
    /// HOST:PORT that may be reached although it is not public; may be repeated.
    #[arg(long)]
    pub allow: Vec<Allowed>,
    /// ADDRESS:PORT of the resolver; without it, the host's first.
    #[arg(long)]
    pub resolver: Option<SocketAddr>,
}

/// `network`.
#[derive(Debug, Args)]
pub struct NetworkArgs {
    /// The build, for people who look at the process list.
    #[arg(long)]
    pub build: String,
    /// Where the build's proxy listens.
    #[arg(long)]
    pub socket: PathBuf,
    /// Whom to become, in a container whose network this is to be.
    #[arg(long)]
    pub user: Option<u32>,
    /// The port inside that is to be reached from outside.
    #[arg(long, requires = "door")]
    pub service: Option<u16>,
    /// Where connections to it are taken.
    #[arg(long, requires = "service")]
    pub door: Option<PathBuf>,
}

/// `keep`.
#[derive(Debug, Args)]
pub struct KeepArgs {
    /// The preview's build, for people who look at the process list.
    #[arg(long)]
    pub build: String,
}

/// `enter`.
#[derive(Debug, Args)]
pub struct EnterArgs {
    /// The files of control groups that take processes; may be repeated.
    #[arg(long = "group")]
    pub groups: Vec<PathBuf>,
    /// The user and group to become.
    #[arg(long)]
    pub user: Option<u32>,
    /// The process whose user and network namespaces to enter.
    #[arg(long)]
    pub inside: Option<u32>,
    /// The program to become, and its arguments.
    #[arg(last = true)]
    pub command: Vec<String>,
}
