//! Chunks of a build's log, as a worker sends and a reader receives them (SPEC.md, Logs).

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// Which of a step's outputs a chunk comes from; `system` is the worker speaking.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum Stream {
    /// Standard output.
    Stdout,
    /// Standard error.
    Stderr,
    /// The worker's own lines: what it does, and markers.
    System,
}

impl Stream {
    /// The word on the wire.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Stdout => "stdout",
            Self::Stderr => "stderr",
            Self::System => "system",
        }
    }

    /// The stream that `word` names.
    #[must_use]
    pub fn parse(word: &str) -> Option<Self> {
        match word {
            "stdout" => Some(Self::Stdout),
            "stderr" => Some(Self::Stderr),
            "system" => Some(Self::System),
            _ => None,
        }
    }
}

/// One chunk. Its bytes stand in `text`, or in `base64` where they are not UTF-8.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Chunk {
    /// Its number in the build, from 1.
    pub seq: u64,
    /// The step it comes from; `clone` for the clone.
    #[serde(default)]
    pub step: String,
    /// Which output.
    #[schema(inline)]
    pub stream: Stream,
    /// When its last byte was read, in milliseconds after the worker took the build.
    #[serde(default)]
    pub at_ms: u64,
    /// Its bytes, where they are UTF-8.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub text: Option<String>,
    /// Its bytes, where they are not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub base64: Option<String>,
}

/// Why a chunk has no bytes to read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BadContent {
    /// Neither `text` nor `base64`, or both.
    NotOne,
    /// `base64` is not base64.
    NotBase64,
}

impl Chunk {
    /// A chunk of `bytes`, as text where they are UTF-8.
    #[must_use]
    pub fn new(seq: u64, step: &str, stream: Stream, at_ms: u64, bytes: &[u8]) -> Self {
        let (text, base64) = match std::str::from_utf8(bytes) {
            Ok(text) => (Some(text.to_owned()), None),
            Err(_) => (None, Some(STANDARD.encode(bytes))),
        };
        Self { seq, step: step.to_owned(), stream, at_ms, text, base64 }
    }

    /// Its bytes.
    ///
    /// # Errors
    ///
    /// Where it has none, two, or some that are not base64.
    pub fn bytes(&self) -> Result<Vec<u8>, BadContent> {
        match (&self.text, &self.base64) {
            (Some(text), None) => Ok(text.clone().into_bytes()),
            (None, Some(base64)) => STANDARD.decode(base64).map_err(|_| BadContent::NotBase64),
            (None, None) | (Some(_), Some(_)) => Err(BadContent::NotOne),
        }
    }

    /// How many encoded bytes its content takes: what the limits count.
    #[must_use]
    pub fn encoded_bytes(&self) -> usize {
        self.text.as_ref().or(self.base64.as_ref()).map_or(0, String::len)
    }
}

/// A page of a build's log.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct LogPage {
    /// The chunks, in order, without a hole.
    pub chunks: Vec<Chunk>,
    /// The `seq` of the last chunk of this page; what `after` of the next request is. Of a page without chunks it is `after`, but no
    /// more than the last that is stored.
    pub last_seq: u64,
    /// Whether the build is final and this page reaches the end of its log.
    pub complete: bool,
    /// Whether output past the cap was discarded.
    pub capped: bool,
}
