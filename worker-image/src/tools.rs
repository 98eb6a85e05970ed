//! Directories of programs that an operator has sandboxes find: rustup's toolchains, nvm's.

use anyhow::{bail, ensure};
use nix::unistd::geteuid;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

/// Where a sandbox has something of its own, or what nobody means to show.
const TAKEN: [&str; 11] =
    ["/proc", "/sys", "/dev", "/run", "/workspace", "/home/build", "/bin", "/sbin", "/lib", "/etc", "/var"];

/// What a sandbox sees anyway, all of it: below it only `PATH` has something to gain.
const SEEN: &str = "/usr";

/// Whether sandboxes may see `directory`, and can.
///
/// # Errors
///
/// Why not, and what would mend it.
pub fn check(directory: &Path, builds_root: &Path) -> anyhow::Result<()> {
    let name = directory.to_string_lossy();
    ensure!(directory.is_absolute(), "must be absolute: it has the same name in a sandbox");
    ensure!(!name.contains([':', ',']), "can't be in PATH, since its name has a colon or a comma");
    let real = directory.canonicalize()?;
    ensure!(real == directory, "is a link to {}: name that", real.display());
    ensure!(real.is_dir(), "is no directory");
    let hides = |own: &str| Path::new(own).starts_with(&real) || real.starts_with(own);
    let is_all_of_it = Path::new(SEEN).starts_with(&real).then_some(&SEEN);
    if let Some(own) = TAKEN.iter().find(|own| hides(own)).or(is_all_of_it) {
        bail!("is {own} of a sandbox, or in it, or holds it: name the one directory whose bin has the programs");
    }
    let is_apart = !builds_root.starts_with(&real) && !real.starts_with(builds_root);
    ensure!(is_apart, "holds the builds root or is in it");
    ensure!(real.join("bin").is_dir(), "has no bin with programs");
    match closed(&real) {
        Some(closed) if geteuid().is_root() => bail!(
            "{0} lets no other user in, and root's builds run as others: open it (chmod o+x {0}), or copy the tools elsewhere",
            closed.display()
        ),
        _ => Ok(()),
    }
}

/// The outermost directory on the way that keeps others out.
fn closed(directory: &Path) -> Option<&Path> {
    let mut way: Vec<&Path> = directory.ancestors().collect();
    way.reverse();
    let keeps_out = |path: &&Path| path.metadata().is_ok_and(|meta| meta.permissions().mode() & 0o001 == 0);
    way.into_iter().find(keeps_out)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::{self, Permissions};
    use std::path::PathBuf;

    fn made() -> (tempfile::TempDir, PathBuf) {
        let directory = tempfile::tempdir().unwrap();
        fs::set_permissions(directory.path(), Permissions::from_mode(0o755)).unwrap();
        let tools = directory.path().canonicalize().unwrap().join("tools");
        fs::create_dir_all(tools.join("bin")).unwrap();
        (directory, tools)
    }

    fn refused(directory: &Path, builds_root: &str) -> String {
        check(directory, Path::new(builds_root)).unwrap_err().to_string()
    }

    #[test]
    fn a_directory_with_programs_is_shown() {
        let (_kept, tools) = made();
        check(&tools, Path::new("/b")).unwrap();
    }

    #[test]
    fn below_usr_they_are_found_where_rusts_images_have_them() {
        let why = refused(Path::new("/usr/share"), "/b");
        assert!(why.contains("has no bin"), "{why}");
        check(Path::new("/usr/local"), Path::new("/b")).unwrap();
    }

    #[test]
    fn what_would_hide_or_show_something_else_is_refused() {
        let (_kept, tools) = made();
        for path in ["/", "/usr", "/home", "/etc/alternatives", "/var/lib", "/proc/1"] {
            let why = refused(Path::new(path), "/b");
            assert!(why.contains("of a sandbox") || why.contains("is a link"), "{path}: {why}");
        }
        assert!(refused(&tools, tools.join("bin/b").to_str().unwrap()).contains("builds root"));
        assert!(refused(&tools.join("bin"), "/b").contains("has no bin"));
        assert!(refused(Path::new("tools"), "/b").contains("absolute"));
        let link = tools.with_file_name("link");
        std::os::unix::fs::symlink(&tools, &link).unwrap();
        assert!(refused(&link, "/b").contains("is a link to"));
        assert!(check(&tools.with_file_name("gone"), Path::new("/b")).is_err());
        let colon = tools.with_file_name("a:b");
        fs::create_dir_all(colon.join("bin")).unwrap();
        assert!(refused(&colon, "/b").contains("PATH"));
    }

    #[test]
    fn the_directory_that_keeps_others_out_is_named() {
        let (kept, tools) = made();
        assert_eq!(closed(&tools), None);
        fs::set_permissions(kept.path(), Permissions::from_mode(0o700)).unwrap();
        assert_eq!(closed(&tools), tools.parent());
        assert_eq!(check(&tools, Path::new("/b")).is_err(), geteuid().is_root(), "a plain user's builds are his own");
    }
}
