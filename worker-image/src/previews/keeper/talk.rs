//! How a keeper is spoken to: whoever connects to its socket says a line, and hears how the preview is, a line at once and one for
//! every change, until the keeper is over.

use crate::egress::Address;
use crate::previews::folder::Folder;
use protocol::preview::PreviewReport;
use serde::{Deserialize, Serialize};
use std::io;
use std::time::Duration;
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::{UnixListener, UnixStream};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::mpsc::{Receiver, Sender, channel};
use tokio::sync::watch;
use tokio::time::{sleep, timeout};

/// The longest line that is said.
const ASK_MAX_BYTES: u64 = 1024;
/// How long somebody who connected may take to say it.
const PATIENCE: Duration = Duration::from_secs(5);

/// What is asked of a keeper.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Ask {
    /// How it is.
    Watch,
    /// To end the service, and itself.
    Stop,
    /// To let go of this port and to bind another one.
    Rebind(u16),
}

/// What is heard.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Told {
    /// The keeper's process.
    pub pid: i32,
    /// How the preview is.
    pub report: PreviewReport,
}

/// Listens; what is asked comes out, and SIGTERM as a wish to stop. Needs the keeper's place in `folder`.
pub(super) fn listen(folder: &Folder, shown: watch::Receiver<PreviewReport>) -> io::Result<Receiver<Ask>> {
    let path = folder.socket();
    match std::fs::remove_file(&path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        Ok(()) | Err(_) => {}
    }
    let address = Address::of(&path)?;
    let listener = UnixListener::bind(address.path())?;
    let (asking, asked) = channel(8);
    let (mut term, signalled) = (signal(SignalKind::terminate())?, asking.clone());
    tokio::spawn(async move {
        while term.recv().await.is_some() {
            signalled.send(Ask::Stop).await.ok();
        }
    });
    tokio::spawn(async move {
        let _address = address;
        loop {
            match listener.accept().await {
                Ok((caller, _)) => drop(tokio::spawn(answer(caller, asking.clone(), shown.clone()))),
                Err(_) => sleep(Duration::from_millis(100)).await,
            }
        }
    });
    Ok(asked)
}

async fn answer(caller: UnixStream, asking: Sender<Ask>, mut shown: watch::Receiver<PreviewReport>) -> io::Result<()> {
    let (from, mut to) = caller.into_split();
    let (mut from, mut line) = (BufReader::new(from.take(ASK_MAX_BYTES)), String::new());
    timeout(PATIENCE, from.read_line(&mut line)).await??;
    match serde_json::from_str(&line)? {
        Ask::Watch => {}
        ask @ (Ask::Stop | Ask::Rebind(_)) => asking.send(ask).await.map_err(io::Error::other)?,
    }
    let pid = i32::try_from(std::process::id()).map_err(io::Error::other)?;
    loop {
        let report = shown.borrow_and_update().clone();
        let mut line = serde_json::to_vec(&Told { pid, report })?;
        line.push(b'\n');
        to.write_all(&line).await?;
        shown.changed().await.map_err(io::Error::other)?;
    }
}
