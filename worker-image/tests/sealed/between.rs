//! A socket between a worker and its daemon, behind which the daemon can be made to hang: what was open stays open, new
//! connections are taken, and nothing comes through, neither way; or to say late that it has started a container.

use crate::back_ends::socket;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tempfile::TempDir;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::watch;

pub(crate) struct Between {
    directory: TempDir,
    hangs: watch::Sender<bool>,
    says_late: Arc<AtomicBool>,
}

/// How late. Less than a guard waits for an end.
const LATE: Duration = Duration::from_millis(1500);

impl Between {
    pub(crate) fn start() -> Self {
        let (directory, (hangs, _)) = (tempfile::tempdir().unwrap(), watch::channel(false));
        let between = Self { directory, hangs, says_late: Arc::default() };
        let listener = UnixListener::bind(between.socket()).unwrap();
        let (daemon, hanging) = (socket().unwrap(), between.hangs.subscribe());
        let says_late = Arc::clone(&between.says_late);
        tokio::spawn(async move {
            while let Ok((worker, _)) = listener.accept().await {
                tokio::spawn(join(worker, daemon.clone(), hanging.clone(), Arc::clone(&says_late)));
            }
        });
        between
    }

    pub(crate) fn socket(&self) -> PathBuf {
        self.directory.path().join("docker.sock")
    }

    pub(crate) fn says_late(&self, says_late: bool) {
        self.says_late.store(says_late, Ordering::Relaxed);
    }

    pub(crate) fn hangs(&self, hangs: bool) {
        self.hangs.send_replace(hangs);
    }
}

async fn join(worker: UnixStream, daemon: PathBuf, hanging: watch::Receiver<bool>, says_late: Arc<AtomicBool>) {
    let Ok(daemon) = UnixStream::connect(daemon).await else { return };
    let ((from_worker, to_worker), (from_daemon, to_daemon)) = (worker.into_split(), daemon.into_split());
    let is_start = AtomicBool::new(false);
    let asked = |part: &[u8]| {
        let starts = part.windows(START.len()).any(|bytes| bytes == START);
        is_start.store(starts && says_late.load(Ordering::Relaxed), Ordering::Relaxed);
        Duration::ZERO
    };
    let answered = |_: &[u8]| if is_start.swap(false, Ordering::Relaxed) { LATE } else { Duration::ZERO };
    tokio::join!(
        carry(from_worker, to_daemon, hanging.clone(), asked),
        carry(from_daemon, to_worker, hanging.clone(), answered)
    );
}

/// What is in a request to start a container, and in no other.
const START: &[u8] = b"/start HTTP";

/// Each part after the time that `late` says. The end of a stream is held back as well.
async fn carry(
    mut from: impl AsyncRead + Unpin,
    mut to: impl AsyncWrite + Unpin,
    mut hanging: watch::Receiver<bool>,
    late: impl Fn(&[u8]) -> Duration,
) {
    let mut part = vec![0; 65_536];
    while let Ok(length) = from.read(&mut part).await {
        tokio::time::sleep(late(&part[..length])).await;
        if hanging.wait_for(|hangs| !hangs).await.is_err() {
            return;
        }
        if length == 0 || to.write_all(&part[..length]).await.is_err() {
            break;
        }
    }
    to.shutdown().await.ok();
}
