//! What a room and the runner say to each other.
//!
//! A room has three connections: one to be told by, and one for each output of its program, which so have their own flow and their
//! own end. On each it says first which one of which room it is ([`Hello`]); on the first, frames follow: a length of four bytes, then JSON.

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::io::{self, ErrorKind, Read, Write};
use std::path::PathBuf;

/// The largest frame that a runner takes: what a room says is short, and is a stranger's container's word.
pub const TO_RUNNER_MAX_BYTES: usize = 4096;
/// The largest that a room takes: a job's variables and commands.
pub const TO_ROOM_MAX_BYTES: usize = 64 * 1024 * 1024;
/// How many bytes a frame's length takes.
pub const LENGTH_BYTES: usize = 4;

const MAGIC: [u8; 4] = *b"CBR1";

/// What a connection is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Line {
    /// Frames.
    Control,
    /// The program's standard output, as it is.
    Stdout,
    /// The same of its standard error.
    Stderr,
}

impl Line {
    /// All of a room's.
    pub const ALL: [Self; 3] = [Self::Control, Self::Stdout, Self::Stderr];
}

/// The first that is said on a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Hello {
    /// The room's number: 0 for the clone's, then those of the steps in their order, and of what tidies up.
    pub room: u8,
    /// What the connection is for.
    pub line: Line,
}

impl Hello {
    /// How many bytes it takes.
    pub const BYTES: usize = 6;

    /// As bytes.
    #[must_use]
    pub fn bytes(self) -> [u8; Self::BYTES] {
        let [a, b, c, d] = MAGIC;
        let line = match self.line {
            Line::Control => 0,
            Line::Stdout => 1,
            Line::Stderr => 2,
        };
        [a, b, c, d, line, self.room]
    }

    /// What `bytes` say; none if they are not a room's.
    #[must_use]
    pub fn read(bytes: [u8; Self::BYTES]) -> Option<Self> {
        let [a, b, c, d, line, room] = bytes;
        let line = Line::ALL.into_iter().nth(line.into()).filter(|_| [a, b, c, d] == MAGIC)?;
        Some(Self { room, line })
    }
}

/// What the runner says.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ToRoom {
    /// Start this.
    Run(Box<Orders>),
    /// Nothing is to run here: end.
    Unneeded,
    /// Whatever runs may go on for so long from now on.
    Left {
        /// How long, in milliseconds: a room's clock may be another one.
        ms: u64,
    },
    /// Ask all processes to end.
    Terminate,
    /// End all processes.
    Kill,
}

/// What a room says.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ToRunner {
    /// The room was asked to end from outside, which is for the runner to do: ECS stops the task.
    AskedToEnd,
    /// The program runs.
    Started,
    /// It does not, and why: the room's own trouble.
    NotStarted {
        /// What went wrong.
        why: String,
    },
    /// The program has ended, and all other processes of the room with it.
    Ended {
        /// The program's exit code; 128 + N for a signal N.
        code: i32,
        /// Whether the kernel ended a process of the room for want of memory.
        out_of_memory: bool,
    },
}

/// What a room runs, and in what.
#[derive(Serialize, Deserialize)]
pub struct Orders {
    /// The program and its arguments.
    pub argv: Vec<String>,
    /// Its environment, over the image's own.
    pub env: BTreeMap<String, String>,
    /// The PATH that `env` has if nobody chose one: the image's stands then.
    pub usual_path: String,
    /// Files that only this program sees.
    pub files: Vec<File>,
    /// The directory that they are in, which the room makes and removes.
    pub inside: PathBuf,
    /// Where the program begins.
    pub directory: PathBuf,
    /// How many processes and threads its user may have.
    pub processes_max: u32,
    /// How long the others may take to end once the program was asked to and did.
    pub linger_ms: u64,
    /// How long all may go on unless the runner gives more.
    pub left_ms: u64,
}

/// A file of a program's own.
#[derive(Serialize, Deserialize)]
pub struct File {
    /// Its name.
    pub name: String,
    /// Its permissions.
    pub mode: u32,
    /// What is in it.
    pub content: String,
}

/// `said` as a frame.
///
/// # Errors
///
/// If it is too large to be one.
pub fn frame(said: &impl Serialize) -> io::Result<Vec<u8>> {
    let json = serde_json::to_vec(said)?;
    let length = u32::try_from(json.len()).map_err(|_| ErrorKind::FileTooLarge)?;
    Ok([length.to_le_bytes().as_slice(), &json].concat())
}

/// The length of the frame that begins so.
///
/// # Errors
///
/// If it is larger than `max`.
pub fn length(begin: [u8; LENGTH_BYTES], max: usize) -> io::Result<usize> {
    let length = usize::try_from(u32::from_le_bytes(begin)).unwrap_or(usize::MAX);
    if length > max {
        return Err(io::Error::new(ErrorKind::FileTooLarge, "a frame that is too large"));
    }
    Ok(length)
}

/// Writes `said`.
///
/// # Errors
///
/// If nobody takes it.
pub fn say(to: &mut impl Write, said: &impl Serialize) -> io::Result<()> {
    to.write_all(&frame(said)?)
}

/// Reads what is said next.
///
/// # Errors
///
/// If nothing is any more, or it is not of this protocol.
pub fn hear<T: DeserializeOwned>(from: &mut impl Read, max: usize) -> io::Result<T> {
    let mut begin = [0; LENGTH_BYTES];
    from.read_exact(&mut begin)?;
    let mut json = vec![0; length(begin, max)?];
    from.read_exact(&mut json)?;
    Ok(serde_json::from_slice(&json)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hello_is_heard_as_it_was_said_and_nothing_else_is_one() {
        for line in Line::ALL {
            let hello = Hello { room: 7, line };
            assert_eq!(Hello::read(hello.bytes()), Some(hello));
        }
        for bytes in [*b"CBR1\x03\x00", *b"CBR2\x00\x00", *b"GET / "] {
            assert_eq!(Hello::read(bytes), None);
        }
    }

    #[test]
    fn a_frame_is_heard_as_it_was_said() {
        let said = ToRunner::Ended { code: 3, out_of_memory: true };
        let mut bytes = Vec::new();
        say(&mut bytes, &said).unwrap();
        say(&mut bytes, &ToRunner::Started).unwrap();
        let mut from = bytes.as_slice();
        assert_eq!(hear::<ToRunner>(&mut from, 99).unwrap(), said);
        assert_eq!(hear::<ToRunner>(&mut from, 99).unwrap(), ToRunner::Started);
        assert_eq!(hear::<ToRunner>(&mut from, 99).unwrap_err().kind(), ErrorKind::UnexpectedEof);
    }

    #[test]
    fn a_frame_is_refused_by_its_length_before_any_of_it_is_read() {
        let four_gib = [0xff; LENGTH_BYTES];
        assert_eq!(hear::<ToRunner>(&mut four_gib.as_slice(), 10).unwrap_err().kind(), ErrorKind::FileTooLarge);
        assert_eq!(length([10, 0, 0, 0], 10).unwrap(), 10);
        assert!(length([11, 0, 0, 0], 10).is_err());
    }
}
