//! The Rust that a newcomer has, which rustup keeps in a home directory: steps see it if they could not see any otherwise.

use crate::clean::plain;
use nix::unistd::geteuid;
use std::fmt;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use tokio::process::Command;

/// What the worker reads for the same, as its README says. Whoever set it has said what steps see.
const TOOLS: &str = "CALLBOARD_TOOLS";
/// Where a sandbox finds programs anyway.
const SEEN: [&str; 3] = ["/usr/local/bin/cargo", "/usr/bin/cargo", "/bin/cargo"];

/// Where a toolchain may be that steps are shown. Elsewhere a sandbox has something of its own, and the worker would refuse to start.
const SHOWN: [&str; 3] = ["/home", "/root", "/opt"];

/// Whether the worker may be told of it.
fn is_shown(directory: &Path) -> bool {
    let is_plain = !directory.to_string_lossy().contains([':', ',']);
    is_plain && SHOWN.iter().any(|at| directory.starts_with(at)) && !directory.starts_with("/home/build")
}

/// A toolchain that steps could not see without being shown it.
pub(super) enum Toolchain {
    /// They can be shown it.
    Open(PathBuf),
    /// They can't: we are root, steps run as other users, and this directory lets none of those in.
    Closed(PathBuf),
}

impl Toolchain {
    /// This machine's, if it is needed and there is one.
    pub(super) async fn find() -> Option<Self> {
        #[expect(clippy::disallowed_methods, reason = "it is the worker's setting, which the worker itself reads")]
        let is_said = std::env::var(TOOLS).is_ok_and(|tools| !tools.is_empty());
        if is_said || SEEN.iter().any(|cargo| Path::new(cargo).exists()) {
            return None;
        }
        let told = Command::new("rustc").args(["--print", "sysroot"]).kill_on_drop(true).output().await.ok()?;
        let directory = PathBuf::from(String::from_utf8(told.stdout).ok()?.trim()).canonicalize().ok()?;
        (is_shown(&directory) && directory.join("bin/cargo").exists()).then_some(())?;
        let closed = directory.ancestors().filter(|path| geteuid().is_root() && keeps_others_out(path)).last();
        Some(closed.map_or_else(|| Self::Open(directory.clone()), |closed| Self::Closed(closed.to_owned())))
    }

    /// What the worker is told of it.
    pub(super) fn arguments(&self) -> Vec<String> {
        match self {
            Self::Open(directory) => vec!["--tools".into(), directory.to_string_lossy().into_owned()],
            Self::Closed(_) => Vec::new(),
        }
    }
}

/// For people.
impl fmt::Display for Toolchain {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Open(directory) => write!(f, "{}, which steps see, read-only", plain(&directory.to_string_lossy())),
            Self::Closed(by) => {
                let by = plain(&by.to_string_lossy());
                write!(
                    f,
                    "steps see no cargo: {by} keeps other users out, and root's builds run as others (chmod o+x {by})"
                )
            }
        }
    }
}

fn keeps_others_out(path: &Path) -> bool {
    path.metadata().is_ok_and(|meta| meta.permissions().mode() & 0o001 == 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_a_worker_takes_is_shown() {
        for (directory, shown) in [
            ("/home/me/.rustup/toolchains/stable", true),
            ("/root/.rustup/toolchains/stable", true),
            ("/opt/rust", true),
            ("/usr/local/rustup/toolchains/1.95.0", false),
            ("/var/lib/ci/.rustup/toolchains/stable", false),
            ("/home/build/.rustup/toolchains/stable", false),
            ("/home/me,you/.rustup/toolchains/stable", false),
        ] {
            assert_eq!(is_shown(Path::new(directory)), shown, "{directory}");
        }
    }
}
