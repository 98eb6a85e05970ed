//! Where rooms come in. Each is let in once, and no program is started before all are there and the door is closed: no step can come
//! as another one and be given its secrets.

use super::room::Room;
use super::waiting::Waiting;
use shim::said::{Hello, Line};
use std::collections::BTreeMap;
use std::fs::{self, Permissions};
use std::io;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;
use tokio::io::AsyncReadExt as _;
use tokio::net::{UnixListener, UnixStream};
use tokio::task::{AbortHandle, JoinSet};
use tokio::time::timeout;
use tracing::{info, warn};

/// How long a connection may take to say whose it is.
const HELLO_WITHIN: Duration = Duration::from_secs(5);
/// So many that have said nothing yet are kept; then the oldest goes. A room says it at once.
const SILENT_MAX: usize = 64;

/// A socket at which rooms come in.
#[derive(Debug)]
pub(super) struct Door {
    listener: UnixListener,
    path: PathBuf,
}

impl Door {
    /// Opens it.
    ///
    /// # Errors
    ///
    /// If there can't be a socket.
    pub(super) fn open(path: &Path) -> io::Result<Self> {
        fs::remove_file(path).ok();
        let listener = UnixListener::bind(path)?;
        fs::set_permissions(path, Permissions::from_mode(0o600))?;
        Ok(Self { listener, path: path.to_path_buf() })
    }

    /// Lets all rooms in, those of steps and the clone's, and closes.
    pub(super) async fn all(self, steps: u8) -> Vec<Room> {
        let mut guests = Guests { last: steps, controls: BTreeMap::new(), outputs: BTreeMap::new() };
        let (mut hellos, mut silent) = (JoinSet::new(), Vec::<AbortHandle>::new());
        while !guests.are_all() {
            tokio::select! {
                accepted = self.listener.accept() => {
                    let Some(stream) = accepted.ok().and_then(|(stream, _)| ours(stream)) else { continue };
                    silent.retain(|hello| !hello.is_finished());
                    if silent.len() >= SILENT_MAX {
                        silent.remove(0).abort();
                    }
                    silent.push(hellos.spawn(hello(stream)));
                }
                Some(said) = hellos.join_next() => if let Ok(Some((hello, stream))) = said {
                    guests.welcome(hello, stream);
                }
            }
        }
        fs::remove_file(&self.path).ok();
        info!(rooms = u16::from(steps) + 1, "all rooms are there");
        guests.rooms()
    }
}

/// What another user of this task's containers says is not heard.
fn ours(stream: UnixStream) -> Option<UnixStream> {
    let user = stream.peer_cred().ok()?.uid();
    let is_ours = user == nix::unistd::geteuid().as_raw();
    if !is_ours {
        warn!(user, "another user's connection refused");
    }
    is_ours.then_some(stream)
}

async fn hello(mut stream: UnixStream) -> Option<(Hello, UnixStream)> {
    let mut bytes = [0; Hello::BYTES];
    timeout(HELLO_WITHIN, stream.read_exact(&mut bytes)).await.ok()?.ok()?;
    Some((Hello::read(bytes)?, stream))
}

/// The connections of rooms.
struct Guests {
    /// The number of the last room.
    last: u8,
    controls: BTreeMap<u8, Waiting>,
    outputs: BTreeMap<Hello, UnixStream>,
}

impl Guests {
    fn welcome(&mut self, hello: Hello, stream: UnixStream) {
        if hello.room > self.last {
            return warn!(room = hello.room, "a room that this task has not got refused");
        }
        let is_taken = match hello.line {
            Line::Control => self.controls.contains_key(&hello.room),
            Line::Stdout | Line::Stderr => self.outputs.contains_key(&hello),
        };
        if is_taken {
            return warn!(room = hello.room, "a second room of the same number refused");
        }
        match hello.line {
            Line::Control => drop(self.controls.insert(hello.room, Waiting::hear(stream))),
            Line::Stdout | Line::Stderr => drop(self.outputs.insert(hello, stream)),
        }
    }

    fn are_all(&self) -> bool {
        self.controls.len() + self.outputs.len() == (usize::from(self.last) + 1) * Line::ALL.len()
    }

    fn rooms(mut self) -> Vec<Room> {
        let room = |room: u8| {
            let mut output = |line| self.outputs.remove(&Hello { room, line });
            let (stdout, stderr) = (output(Line::Stdout)?, output(Line::Stderr)?);
            Some(Room { control: self.controls.remove(&room)?, stdout, stderr })
        };
        (0..=self.last).filter_map(room).collect()
    }
}
