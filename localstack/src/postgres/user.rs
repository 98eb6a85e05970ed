//! The user that initdb runs as. It wants one that the system knows, which the server itself does not: where ours has no entry
//! (a container that was given a bare number), a sandbox shows initdb an `/etc/passwd` with one.

use anyhow::{Context as _, bail};
use nix::unistd::{Gid, Uid, User};
use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use tokio::process::Command;

const PASSWD: &str = "/etc/passwd";

/// Whether the system knows the user that we are.
fn is_known() -> bool {
    User::from_uid(Uid::effective()).is_ok_and(|user| user.is_some())
}

/// Makes sure that initdb can run as the user that we are, if it has to run: without data.
///
/// # Errors
///
/// Why it can't, and how to mend it.
pub(crate) async fn check(data: &Path) -> anyhow::Result<()> {
    if data.join("PG_VERSION").exists() || is_known() {
        return Ok(());
    }
    let mut probe = sandboxed(Path::new(PASSWD), OsStr::new("true"));
    let said = probe.stdin(Stdio::null()).kill_on_drop(true).output().await;
    let why = match said {
        Ok(said) if said.status.success() => return Ok(()),
        Ok(said) => String::from_utf8_lossy(&said.stderr).trim().to_owned(),
        Err(error) => error.to_string(),
    };
    let (uid, gid) = (Uid::effective(), Gid::effective());
    bail!(
        "Postgres makes no data for a user without an entry in {PASSWD}, which uid {uid} lacks; bubblewrap could show it one, but \
         does not work here (bwrap: {why})\nEither install bubblewrap, or as root\n  echo callboard:x:{uid}:{gid}::/:/bin/sh \
         >>{PASSWD}\nor let `callboard up` use a Postgres that runs elsewhere: set DATABASE_URL"
    )
}

/// A program in a sandbox that is as the system, but for its `/etc/passwd`.
fn sandboxed(passwd: &Path, program: &OsStr) -> Command {
    let mut command = Command::new("bwrap");
    command.args(["--die-with-parent", "--bind", "/", "/", "--dev-bind", "/dev", "/dev", "--ro-bind"]);
    command.arg(passwd).arg(PASSWD).arg("--").arg(program);
    command
}

/// A list of users that holds ours; gone with this.
pub(super) struct Shown(PathBuf);

impl Shown {
    /// The system's list and our user's entry, written to `file`. `None` if the system knows our user.
    pub(super) fn write(file: PathBuf) -> anyhow::Result<Option<Self>> {
        if is_known() {
            return Ok(None);
        }
        let (uid, gid) = (Uid::effective(), Gid::effective());
        let known = fs::read_to_string(PASSWD).unwrap_or_default();
        let text = format!("{}\ncallboard:x:{uid}:{gid}::/:/bin/sh\n", known.trim_end());
        fs::write(&file, text).with_context(|| format!("{} can't be written", file.display()))?;
        Ok(Some(Self(file)))
    }

    /// The command for a program that sees the list.
    pub(super) fn command(&self, program: &Path) -> Command {
        sandboxed(&self.0, program.as_os_str())
    }
}

impl Drop for Shown {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.0);
    }
}
