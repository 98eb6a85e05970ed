//! A Postgres that a test may kill as often as it likes, and that is then there again on its port.

use localstack::postgres::Postgres;
use std::fs::{self, File};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use tokio::process::{Child, Command};

pub(super) struct Server {
    program: PathBuf,
    data: PathBuf,
    log: PathBuf,
    port: String,
    pub(super) url: String,
    pub(super) process: Child,
}

impl Server {
    pub(super) async fn start(dir: &Path) -> Self {
        let first = Postgres::start(dir).await.expect("a server");
        let program = fs::read_link(format!("/proc/{}/exe", first.pid().expect("it runs"))).expect("its program");
        let url = first.url().to_owned();
        first.stop().await;
        let port = url.rsplit(':').next().and_then(|rest| rest.split('/').next()).expect("a port").to_owned();
        let (data, log) = (dir.join("postgres"), dir.join("postgres-2.log"));
        let process = serve(&program, &data, &port, &log);
        Self { program, data, log, port, url, process }
    }

    /// Starts it, or again where it could not start: what a killed one leaves holds its data until it has noticed.
    pub(super) fn start_again(&mut self) {
        if self.process.try_wait().expect("asked").is_some() {
            self.process = serve(&self.program, &self.data, &self.port, &self.log);
        }
    }
}

fn serve(program: &Path, data: &Path, port: &str, log: &Path) -> Child {
    let (owner, log) = (fs::metadata(data).expect("its data"), File::options().create(true).append(true).open(log));
    let mut command = Command::new(program);
    command.arg("-D").arg(data).args([
        "-p",
        port,
        "-c",
        "listen_addresses=127.0.0.1",
        "-c",
        "unix_socket_directories=",
    ]);
    command.uid(owner.uid()).gid(owner.gid()).current_dir("/").env("LC_ALL", "C");
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log.expect("a log")).kill_on_drop(true);
    command.spawn().expect("it runs")
}
