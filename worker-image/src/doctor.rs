//! What a worker needs of its host: found, or the fix in one line.

use crate::config::Place;
use crate::descriptors;
use crate::isolation::bubblewrap::{Abilities, find};
use crate::workplace;
use serde::Serialize;
use std::fs;
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::Command;

/// One thing that was looked at.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// What.
    pub name: &'static str,
    /// Whether it is as it must be.
    pub ok: bool,
    /// Whether no build can run without it.
    pub needed: bool,
    /// What was found.
    pub found: String,
    /// What to do, if it is not as it must be.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fix: Option<String>,
}

impl Finding {
    fn good(name: &'static str, found: impl Into<String>) -> Self {
        Self { name, ok: true, needed: true, found: found.into(), fix: None }
    }

    fn bad(name: &'static str, found: impl Into<String>, fix: impl Into<String>) -> Self {
        Self { name, ok: false, needed: true, found: found.into(), fix: Some(fix.into()) }
    }

    fn weak(name: &'static str, found: impl Into<String>, fix: impl Into<String>) -> Self {
        Self { needed: false, ..Self::bad(name, found, fix) }
    }
}

/// Looks at everything. Changes nothing.
#[must_use]
pub fn examine(place: &Place, slots: u32, descriptors: u64) -> Vec<Finding> {
    let (bubblewrap, root) = (bubblewrap(), builds_root(&place.builds_root));
    vec![bubblewrap, nesting(), user_namespaces(place), git(), certificates(), root, files(slots, descriptors)]
}

/// Whether a worker of so many slots has the descriptors for it.
fn files(slots: u32, descriptors: u64) -> Finding {
    let name = "open files";
    match descriptors::too_few(slots, descriptors) {
        None => Finding::good(name, format!("at most {descriptors}, enough for {slots} slots")),
        Some(few) => Finding::bad(name, few, descriptors::fix(slots)),
    }
}

fn version(program: &Path) -> Option<String> {
    let output = Command::new(program).arg("--version").output().ok()?;
    Some(String::from_utf8_lossy(&output.stdout).trim().to_owned())
}

fn bubblewrap() -> Finding {
    match find("bwrap") {
        Some(path) => Finding::good("bubblewrap", version(&path).unwrap_or_default()),
        None => Finding::bad("bubblewrap", "not found", "install it: apt-get install bubblewrap"),
    }
}

fn nesting() -> Finding {
    let able =
        find("bwrap").is_some_and(|path| Abilities::of(&path) == Abilities { no_nesting: true, tmpfs_size: true });
    if able {
        return Finding::good("nested namespaces", "closed to steps");
    }
    Finding::weak("nested namespaces", "open to steps, and /tmp is not bounded", "install bubblewrap 0.8 or later")
}

/// Makes the namespaces that a sandbox has, as the user that a build would have.
fn user_namespaces(place: &Place) -> Finding {
    let name = "user namespaces";
    let Some(bwrap) = find("bwrap") else {
        return Finding::bad(name, "can't be tried without bubblewrap", "install bubblewrap first");
    };
    let mut command = Command::new(bwrap);
    command.args(["--unshare-user", "--unshare-all", "--ro-bind", "/", "/", "--proc", "/proc", "--dev", "/dev"]);
    command.arg("true").current_dir("/");
    if let Some(id) = place.run_as(0) {
        command.uid(id).gid(id);
    }
    match command.output() {
        Ok(output) if output.status.success() => Finding::good(name, "a sandbox starts"),
        Ok(output) => Finding::bad(name, String::from_utf8_lossy(&output.stderr).trim(), namespaces_fix()),
        Err(error) => Finding::bad(name, error.to_string(), namespaces_fix()),
    }
}

fn namespaces_fix() -> String {
    let says = |path: &str, value: &str| fs::read_to_string(path).is_ok_and(|text| text.trim() == value);
    if says("/proc/sys/kernel/apparmor_restrict_unprivileged_userns", "1") {
        return "sysctl -w kernel.apparmor_restrict_unprivileged_userns=0".into();
    }
    if says("/proc/sys/kernel/unprivileged_userns_clone", "0") {
        return "sysctl -w kernel.unprivileged_userns_clone=1".into();
    }
    if says("/proc/sys/user/max_user_namespaces", "0") {
        return "sysctl -w user.max_user_namespaces=15000".into();
    }
    "in a container, start it with `--security-opt seccomp=unconfined --security-opt systempaths=unconfined`".into()
}

fn git() -> Finding {
    match find("git") {
        Some(path) => Finding::good("git", version(&path).unwrap_or_default()),
        None => Finding::bad("git", "not found", "install it: apt-get install git"),
    }
}

fn certificates() -> Finding {
    if workplace::has(Path::new("/etc/ssl/certs")) || workplace::has(Path::new("/etc/pki/tls/certs")) {
        return Finding::good("certificates", "found");
    }
    Finding::weak("certificates", "not found: no clone can trust its server", "apt-get install ca-certificates")
}

fn builds_root(root: &Path) -> Finding {
    let name = "builds root";
    let Some(nearest) = root.ancestors().find(|path| workplace::has(path)) else {
        return Finding::bad(name, "not found", "use an absolute --builds-root");
    };
    let shown = root.display();
    let writable = nix::unistd::access(nearest, nix::unistd::AccessFlags::W_OK).is_ok();
    if !writable {
        return Finding::bad(name, format!("{shown} can't be written"), "use a --builds-root that this user can write");
    }
    let closed = nix::unistd::geteuid().is_root().then(|| workplace::closed(nearest)).flatten();
    match closed {
        Some(closed) => {
            let closed = closed.display();
            Finding::bad(name, format!("{shown}: other users may not enter {closed}"), format!("chmod o+x {closed}"))
        }
        None => Finding::good(name, shown.to_string()),
    }
}

/// The findings as lines for a person.
#[must_use]
pub fn table(findings: &[Finding]) -> String {
    let line = |finding: &Finding| {
        let word = match (finding.ok, finding.needed) {
            (true, _) => "ok",
            (false, true) => "MISSING",
            (false, false) => "weak",
        };
        let fix = finding.fix.as_ref().map(|fix| format!("\n{:27}fix: {fix}", "")).unwrap_or_default();
        format!("{:<18} {word:<7} {}{fix}\n", finding.name, finding.found)
    };
    findings.iter().map(line).collect()
}

/// Whether a build could run here.
#[must_use]
pub fn is_fit(findings: &[Finding]) -> bool {
    findings.iter().all(|finding| finding.ok || !finding.needed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_weakness_is_told_but_does_not_keep_builds_from_running() {
        let weak = Finding::weak("nesting", "open", "upgrade");
        assert!(is_fit(std::slice::from_ref(&weak)));
        assert!(table(&[weak]).contains("fix: upgrade"));
    }

    #[test]
    fn what_is_needed_and_missing_keeps_builds_from_running() {
        assert!(!is_fit(&[Finding::good("git", "2"), Finding::bad("bubblewrap", "not found", "install")]));
    }
}
