//! The worker's side of a keeper: finds it, hears it, asks it.

use super::folder::Folder;
use super::keeper::{Ask, Told};
use crate::egress::Address;
use std::io;
use std::time::Duration;
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::UnixStream;
use tokio::time::timeout;

/// How long a keeper that lives may take to say how it is.
const PATIENCE: Duration = Duration::from_secs(5);

/// A line to a keeper.
#[derive(Debug)]
pub(super) struct Call {
    lines: BufReader<UnixStream>,
}

impl Call {
    /// Asks the keeper of `folder`; what it says first comes with the line. `None` if there is none, or it does not answer.
    pub(super) async fn to(folder: &Folder, ask: Ask) -> Option<(Self, Told)> {
        let asking = async {
            let address = Address::of(&folder.socket())?;
            let mut socket = UnixStream::connect(address.path()).await?;
            let mut line = serde_json::to_vec(&ask)?;
            line.push(b'\n');
            socket.write_all(&line).await?;
            let mut call = Self { lines: BufReader::new(socket) };
            let told = call.heard().await?;
            Ok::<_, io::Error>((call, told))
        };
        timeout(PATIENCE, asking).await.ok()?.ok()
    }

    /// What it says next; `None` once it is over.
    pub(super) async fn next(&mut self) -> Option<Told> {
        self.heard().await.ok()
    }

    async fn heard(&mut self) -> io::Result<Told> {
        let mut line = String::new();
        if self.lines.read_line(&mut line).await? == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        Ok(serde_json::from_str(&line)?)
    }
}
