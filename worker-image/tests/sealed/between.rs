//! A socket between a worker and its daemon, behind which the daemon can be made to hang: what was open stays open, new
//! connections are taken, and nothing comes through, neither way.

use crate::back_ends::socket;
use std::path::PathBuf;
use tempfile::TempDir;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::watch;

pub(crate) struct Between {
    directory: TempDir,
    hangs: watch::Sender<bool>,
}

impl Between {
    pub(crate) fn start() -> Self {
        let (directory, (hangs, _)) = (tempfile::tempdir().unwrap(), watch::channel(false));
        let between = Self { directory, hangs };
        let listener = UnixListener::bind(between.socket()).unwrap();
        let (daemon, hanging) = (socket().unwrap(), between.hangs.subscribe());
        tokio::spawn(async move {
            while let Ok((worker, _)) = listener.accept().await {
                tokio::spawn(join(worker, daemon.clone(), hanging.clone()));
            }
        });
        between
    }

    pub(crate) fn socket(&self) -> PathBuf {
        self.directory.path().join("docker.sock")
    }

    pub(crate) fn hangs(&self, hangs: bool) {
        self.hangs.send_replace(hangs);
    }
}

async fn join(worker: UnixStream, daemon: PathBuf, hanging: watch::Receiver<bool>) {
    let Ok(daemon) = UnixStream::connect(daemon).await else { return };
    let ((from_worker, to_worker), (from_daemon, to_daemon)) = (worker.into_split(), daemon.into_split());
    tokio::join!(carry(from_worker, to_daemon, hanging.clone()), carry(from_daemon, to_worker, hanging));
}

/// The end of a stream is held back as well.
async fn carry(mut from: impl AsyncRead + Unpin, mut to: impl AsyncWrite + Unpin, mut hanging: watch::Receiver<bool>) {
    let mut part = vec![0; 65_536];
    while let Ok(length) = from.read(&mut part).await {
        if hanging.wait_for(|hangs| !hangs).await.is_err() {
            return;
        }
        if length == 0 || to.write_all(&part[..length]).await.is_err() {
            break;
        }
    }
    to.shutdown().await.ok();
}
