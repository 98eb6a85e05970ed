//! What an operator says about containers.

use clap::ValueEnum;
use std::path::PathBuf;

/// When an image is asked for at its registry.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum PullWhen {
    /// Before every step.
    Always,
    /// If the daemon has not got it.
    #[default]
    Missing,
    /// Never: what the daemon has not got can't be run.
    Never,
}

/// How containers are made.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The daemon's socket.
    pub socket: PathBuf,
    /// When images are asked for.
    pub pull: PullWhen,
    /// The image that clones where bubblewrap does not: it needs /bin/sh, git and certificates.
    pub clone_image: String,
}
