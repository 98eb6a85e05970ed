//! A Postgres server of the stack's own: the system's binaries over a data directory of ours, on a free loopback port.
//!
//! Postgres refuses to run as root, so as root it runs as `postgres` or `nobody`. Other users of the host can reach the
//! port; they need the password, which is in a file that only we can read.

mod binaries;
mod pid_file;

// For the download, which ends with a look at what came.
#[cfg(feature = "download-postgres")]
pub(crate) use binaries::is_whole;

use anyhow::{Context as _, bail};
use nix::unistd::{Gid, Uid, User, chown};
use std::ffi::OsStr;
use std::fs;
use std::os::unix::fs::{DirBuilderExt as _, PermissionsExt as _};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

/// A running server.
pub struct Postgres {
    tools: Tools,
    data: PathBuf,
    url: String,
}

/// Its address holds the password, so it is not shown.
impl std::fmt::Debug for Postgres {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Postgres").field("data", &self.data).finish_non_exhaustive()
    }
}

#[derive(Clone, Debug)]
struct Tools {
    bin: PathBuf,
    run_as: Option<(Uid, Gid)>,
}

impl Postgres {
    /// Starts a server on the data directory `<dir>/postgres`, which is made if it is not there. The binaries are the
    /// system's, else a download of our own, kept in `<dir>/postgres-binaries`.
    ///
    /// # Errors
    ///
    /// What is missing, and how to mend it; or what the server says.
    pub async fn start(dir: &Path) -> anyhow::Result<Self> {
        let (data, password) = (dir.join("postgres"), password(dir)?);
        let tools = Tools { bin: binaries::for_data(dir, &data).await?, run_as: run_as()? };
        tools.check_reach(dir)?;
        if !data.join("PG_VERSION").exists() {
            tools.make(&data, &password)?;
        }
        pid_file::forget_another_process(&data)?;
        // A server that outlived a killed stack would hold the directory.
        if tools.ctl(&data, ["status"]).is_ok() {
            tools.ctl(&data, ["-m", "fast", "-w", "stop"])?;
        }
        let port = free_port()?;
        let options = format!("-p {port} -c listen_addresses=127.0.0.1 -c unix_socket_directories=''");
        let log = data.join("server.log");
        let started = tools.ctl(
            &data,
            [OsStr::new("-w"), "-o".as_ref(), options.as_ref(), "-l".as_ref(), log.as_ref(), "start".as_ref()],
        );
        started.with_context(|| format!("Postgres did not start; its last words were:\n{}", end_of(&log)))?;
        let url = format!("postgres://callboard:{password}@127.0.0.1:{port}/postgres");
        Ok(Self { tools, data, url })
    }

    /// Its address, with the password: not to be printed.
    #[must_use]
    pub fn url(&self) -> &str {
        &self.url
    }

    /// Stops it. The data stay.
    ///
    /// # Errors
    ///
    /// If it does not stop.
    pub fn stop(&self) -> anyhow::Result<()> {
        self.tools.ctl(&self.data, ["-m", "fast", "-w", "stop"])
    }
}

/// A stack that is dropped without having been stopped takes its server along.
impl Drop for Postgres {
    fn drop(&mut self) {
        if self.data.join("postmaster.pid").exists() {
            let _ = self.tools.ctl(&self.data, ["-m", "immediate", "-w", "stop"]);
        }
    }
}

impl Tools {
    fn command(&self, tool: &str) -> Command {
        let mut command = Command::new(self.bin.join(tool));
        command.current_dir("/").env_remove("PGDATA").env("LC_ALL", "C").stdin(Stdio::null()).process_group(0);
        if let Some((uid, gid)) = self.run_as {
            command.uid(uid.as_raw()).gid(gid.as_raw());
        }
        command
    }

    /// The server's output goes to its log: a daemon that kept our pipe would keep us waiting.
    fn ctl<I: AsRef<OsStr>>(&self, data: &Path, args: impl IntoIterator<Item = I>) -> anyhow::Result<()> {
        let mut command = self.command("pg_ctl");
        command.arg("-D").arg(data).args(args).stdout(Stdio::null()).stderr(Stdio::null());
        let status = command.status().context("pg_ctl can't be run")?;
        if status.success() { Ok(()) } else { bail!("pg_ctl ended with {status}") }
    }

    /// Makes the data beside their place and then moves them there: whatever interrupts this, there are whole data or none.
    fn make(&self, data: &Path, password: &str) -> anyhow::Result<()> {
        let new = data.with_extension("unfinished");
        if new.exists() {
            fs::remove_dir_all(&new).with_context(|| format!("{} can't be removed", new.display()))?;
        }
        fs::DirBuilder::new().mode(0o700).create(&new).with_context(|| format!("{} can't be made", new.display()))?;
        let given = data.with_extension("initial-password");
        crate::keys::write(&given, password)?;
        if let Some((uid, gid)) = self.run_as {
            chown(&new, Some(uid), Some(gid))?;
            chown(&given, Some(uid), Some(gid))?;
        }
        let made = self.initdb(&new, &given);
        fs::remove_file(&given)?;
        made?;
        fs::rename(&new, data).with_context(|| format!("the new data can't be moved to {}", data.display()))
    }

    fn initdb(&self, new: &Path, given: &Path) -> anyhow::Result<()> {
        let mut command = self.command("initdb");
        command.arg("-D").arg(new).args(["-U", "callboard", "-A", "scram-sha-256", "-E", "UTF8", "--locale=C"]);
        let made = command.arg(format!("--pwfile={}", given.display())).output();
        let Output { status, stderr, .. } = made.context("initdb can't be run")?;
        if status.success() {
            return Ok(());
        }
        let _ = fs::remove_dir_all(new);
        bail!("initdb ended with {status}: {}", String::from_utf8_lossy(&stderr).trim())
    }

    /// The server's user must be able to come to the directory.
    fn check_reach(&self, dir: &Path) -> anyhow::Result<()> {
        if self.run_as.is_none() {
            return Ok(());
        }
        for folder in dir.ancestors().filter(|folder| !folder.as_os_str().is_empty()) {
            let mode = fs::metadata(folder).with_context(|| format!("{}", folder.display()))?.permissions().mode();
            if mode & 0o001 == 0 {
                bail!(
                    "{} is closed to other users, and Postgres does not run as root: choose another directory with --dir, \
                     or `chmod o+x {}`",
                    folder.display(),
                    folder.display()
                );
            }
        }
        Ok(())
    }
}

/// The end of what the server wrote.
fn end_of(log: &Path) -> String {
    let text = fs::read_to_string(log).unwrap_or_default();
    let lines: Vec<&str> = text.lines().collect();
    lines[lines.len().saturating_sub(6)..].join("\n")
}

fn run_as() -> anyhow::Result<Option<(Uid, Gid)>> {
    if !Uid::effective().is_root() {
        return Ok(None);
    }
    for name in ["postgres", "nobody"] {
        if let Some(user) = User::from_name(name)? {
            return Ok(Some((user.uid, user.gid)));
        }
    }
    bail!("Postgres does not run as root, and there is neither a user `postgres` nor `nobody`: add one")
}

/// The server's password, made once.
fn password(dir: &Path) -> anyhow::Result<String> {
    crate::keys::kept(&dir.join("postgres.password"), || crate::keys::random_hex(24))
}

fn free_port() -> anyhow::Result<u16> {
    Ok(std::net::TcpListener::bind("127.0.0.1:0")?.local_addr()?.port())
}
