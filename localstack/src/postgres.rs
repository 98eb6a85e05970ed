//! A Postgres server of the stack's own: the system's binaries over a data directory of ours, on a free loopback port.
//!
//! Postgres refuses to run as root, so as root it runs as `postgres` or `nobody`. Other users of the host can reach the
//! port; they need the password, which is in a file that only we can read.

mod binaries;
mod pid_file;
pub(crate) mod user;
mod watch;

// For the download, which ends with a look at what came.
#[cfg(feature = "download-postgres")]
pub(crate) use binaries::is_whole;

use crate::keep::{self, Care, Keeper};
use crate::leftovers;
use anyhow::{Context as _, bail};
use nix::sys::signal::{Signal, kill};
use nix::unistd::{Gid, Pid, Uid, User, chown};
use std::fs;
use std::os::unix::fs::{DirBuilderExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::process::{Output, Stdio};
use std::time::{Duration, Instant};
use tokio::process::{Child, Command};
use watch::Watch;

/// How long a server may take until it takes connections: after a crash it reads its journal first.
const START_MAX: Duration = Duration::from_secs(300);
/// How it is asked to end: without waiting for its clients, then without a last checkpoint.
const ENDING: [(Signal, Duration); 2] =
    [(Signal::SIGINT, Duration::from_secs(20)), (Signal::SIGQUIT, Duration::from_secs(5))];
/// After how many deaths in a row it is given up.
const DEATHS_MAX: u32 = 5;
const LOOK_EVERY: Duration = Duration::from_millis(20);

/// A running server, which is started again on its port if it dies.
pub struct Postgres {
    data: PathBuf,
    url: String,
    keeper: Keeper,
    watch: Watch,
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
        let data = dir.join("postgres");
        user::check(&data).await?;
        let tools = Tools { bin: binaries::for_data(dir, &data).await?, run_as: run_as()? };
        tools.check_reach(dir)?;
        let password = password(dir)?;
        if !data.join("PG_VERSION").exists() {
            tools.make(&data, &password).await?;
        }
        // A server that outlived a killed stack would hold the directory.
        end_outlived(&data).await?;
        let (port, log) = (free_port()?, dir.join("postgres.log"));
        let url = format!("postgres://callboard:{password}@127.0.0.1:{port}/postgres");
        let (place, output) = (data.clone(), log.clone());
        let watch = Watch::default();
        let watching = watch.clone();
        let spawn = move || tools.serve(&place, port, &output, &watching);
        let child = spawn()?;
        let pid = child.id().and_then(|pid| i32::try_from(pid).ok()).unwrap_or(0);
        let care = Care { name: "Postgres", log: log.clone(), deaths_max: Some(DEATHS_MAX), ending: ENDING.into() };
        let server = Self { keeper: Keeper::of(child, care, spawn), watch, data, url };
        server.ready(pid, &log).await?;
        Ok(server)
    }

    async fn ready(&self, pid: i32, log: &Path) -> anyhow::Result<()> {
        let begun = Instant::now();
        while !pid_file::is_ready(&self.data, pid) {
            if self.keeper.pid() != Some(pid) || begun.elapsed() > START_MAX {
                bail!("Postgres did not start; its last words were:\n{}", keep::end_of(log, 6));
            }
            tokio::time::sleep(LOOK_EVERY).await;
        }
        Ok(())
    }

    /// Its address, with the password: not to be printed.
    #[must_use]
    pub fn url(&self) -> &str {
        &self.url
    }

    /// Its process, if one runs now.
    #[must_use]
    pub fn pid(&self) -> Option<i32> {
        self.keeper.pid()
    }

    /// Waits until it has died too often to be started again; returns how it died last.
    pub async fn given_up(&self) -> String {
        self.keeper.given_up().await
    }

    /// Stops it, and waits until it is gone. The data stay.
    pub async fn stop(mut self) {
        self.keeper.end().await;
        self.watch.end().await;
        until_all_notice(&self.data).await;
    }
}

/// The processes of one that was killed end by themselves, when they notice. Until then no other starts on its data.
async fn until_all_notice(data: &Path) {
    let begun = Instant::now();
    while leftovers::runs("postgres", data) && begun.elapsed() < ENDING[1].1 {
        tokio::time::sleep(LOOK_EVERY).await;
    }
}

/// A stack that is dropped without having been stopped takes its server along.
impl Drop for Postgres {
    fn drop(&mut self) {
        self.keeper.ask();
        if let Some(pid) = self.keeper.pid().filter(|pid| leftovers::is_alive(*pid)) {
            let _ = kill(Pid::from_raw(pid), Signal::SIGQUIT);
            let begun = Instant::now();
            while leftovers::is_alive(pid) && begun.elapsed() < ENDING[1].1 {
                std::thread::sleep(LOOK_EVERY);
            }
        }
    }
}

/// Ends a server on `data` that nobody keeps any more, and waits until it is gone.
async fn end_outlived(data: &Path) -> anyhow::Result<()> {
    pid_file::forget_another_process(data)?;
    let Some(pid) = pid_file::server(data) else {
        until_all_notice(data).await;
        return Ok(());
    };
    for (signal, patience) in ENDING.into_iter().chain([(Signal::SIGKILL, ENDING[1].1)]) {
        let _ = kill(Pid::from_raw(pid), signal);
        let begun = Instant::now();
        while begun.elapsed() < patience {
            if !leftovers::is_alive(pid) {
                return Ok(());
            }
            tokio::time::sleep(LOOK_EVERY).await;
        }
    }
    bail!("a Postgres server (process {pid}) holds {} and can't be ended", data.display())
}

impl Tools {
    /// A command with the rights and the surroundings that the server has.
    fn with_its_rights(&self, mut command: Command) -> Command {
        command.current_dir("/").env_remove("PGDATA").env("LC_ALL", "C").stdin(Stdio::null());
        // Ctrl-C in our terminal is for us: we stop the server last.
        command.process_group(0).kill_on_drop(true);
        if let Some((uid, gid)) = self.run_as {
            command.uid(uid.as_raw()).gid(gid.as_raw());
        }
        command
    }

    /// The server as a child of ours: so its end is seen, and waited for. It does not outlive us.
    fn serve(&self, data: &Path, port: u16, log: &Path, watch: &Watch) -> anyhow::Result<Child> {
        pid_file::forget_another_process(data)?;
        let output = keep::open_log(log).with_context(|| format!("{} can't be written", log.display()))?;
        let mut command = self.with_its_rights(Command::new(self.bin.join("postgres")));
        command.arg("-D").arg(data).args(["-p", &port.to_string()]);
        command.args(["-c", "listen_addresses=127.0.0.1", "-c", "unix_socket_directories="]);
        let server = command.stdout(output.try_clone()?).stderr(output).spawn().context("Postgres can't be run")?;
        let shell = |program: &str| self.with_its_rights(Command::new(program));
        watch.over(server.id().unwrap_or(0), data, shell).context("sh can't be run")?;
        Ok(server)
    }

    /// Makes the data beside their place and then moves them there: whatever interrupts this, there are whole data or none.
    async fn make(&self, data: &Path, password: &str) -> anyhow::Result<()> {
        let new = data.with_extension("unfinished");
        if new.exists() {
            fs::remove_dir_all(&new).with_context(|| format!("{} can't be removed", new.display()))?;
        }
        fs::DirBuilder::new().mode(0o700).create(&new).with_context(|| format!("{} can't be made", new.display()))?;
        let given = data.with_extension("initial-password");
        crate::keys::write(&given, password)?;
        let given = Gone(given);
        if let Some((uid, gid)) = self.run_as {
            chown(&new, Some(uid), Some(gid))?;
            chown(&given.0, Some(uid), Some(gid))?;
        }
        self.initdb(&new, &given.0).await?;
        fs::rename(&new, data).with_context(|| format!("the new data can't be moved to {}", data.display()))
    }

    async fn initdb(&self, new: &Path, given: &Path) -> anyhow::Result<()> {
        let shown = user::Shown::write(new.with_extension("passwd"))?;
        let program = self.bin.join("initdb");
        let command = shown.as_ref().map_or_else(|| Command::new(&program), |shown| shown.command(&program));
        let mut command = self.with_its_rights(command);
        command.arg("-D").arg(new).args(["-U", "callboard", "-A", "scram-sha-256", "-E", "UTF8", "--locale=C"]);
        let made = command.arg(format!("--pwfile={}", given.display())).output().await;
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

/// A file that is to be gone, however this goes on.
struct Gone(PathBuf);

impl Drop for Gone {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.0);
    }
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
