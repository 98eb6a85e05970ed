//! The Rust that a newcomer has, which rustup keeps in a home directory: steps see it if they could not see any otherwise.

use crate::clean::plain;
use crate::worker;
use std::fmt;
use std::path::{Path, PathBuf};
use tokio::process::Command;

/// What the worker reads for the same, as its README says. Whoever set it has said what steps see.
const TOOLS: &str = "CALLBOARD_TOOLS";
/// Where a sandbox finds programs anyway.
const FOUND: [&str; 3] = ["/usr/local/bin/cargo", "/usr/bin/cargo", "/bin/cargo"];

/// A toolchain that steps could not see without being shown it.
pub(super) enum Toolchain {
    /// They can be shown it.
    Shown(PathBuf),
    /// They can't, and why.
    Hidden(String),
}

impl Toolchain {
    /// This machine's, if it is needed and there is one.
    ///
    /// # Errors
    ///
    /// If the worker can't be asked whether it takes it.
    pub(super) async fn find(dir: &Path) -> anyhow::Result<Option<Self>> {
        #[expect(clippy::disallowed_methods, reason = "it is the worker's setting, which the worker itself reads")]
        let is_said = std::env::var(TOOLS).is_ok_and(|tools| !tools.is_empty());
        if is_said || FOUND.iter().any(|cargo| Path::new(cargo).exists()) {
            return Ok(None);
        }
        match sysroot().await {
            Some(directory) => Self::asked(dir, directory).await.map(Some),
            None => Ok(None),
        }
    }

    async fn asked(dir: &Path, directory: PathBuf) -> anyhow::Result<Self> {
        Ok(match worker::takes(dir, &directory).await? {
            Ok(()) => Self::Shown(directory),
            Err(why) => Self::Hidden(why),
        })
    }

    /// What the worker is told of it.
    pub(super) fn arguments(&self) -> Vec<String> {
        match self {
            Self::Shown(directory) => vec!["--tools".into(), directory.to_string_lossy().into_owned()],
            Self::Hidden(_) => Vec::new(),
        }
    }
}

/// Where the Rust is that answers here, if it has a cargo.
async fn sysroot() -> Option<PathBuf> {
    let told = Command::new("rustc").args(["--print", "sysroot"]).kill_on_drop(true).output().await.ok()?;
    let directory = PathBuf::from(String::from_utf8(told.stdout).ok()?.trim()).canonicalize().ok()?;
    directory.join("bin/cargo").exists().then_some(directory)
}

/// For people.
impl fmt::Display for Toolchain {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Shown(directory) => write!(f, "{}, which steps see, read-only", plain(&directory.to_string_lossy())),
            Self::Hidden(why) => write!(f, "steps see no cargo: {}", plain(why)),
        }
    }
}
