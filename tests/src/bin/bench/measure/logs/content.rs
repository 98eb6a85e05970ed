//! What is written: a full batch of chunks, as JSON for the board and as COPY's rows.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use std::fmt::Write as _;
use uuid::Uuid;

/// As the board's limits are: eight chunks of 64 KiB, as they are encoded.
const CHUNKS: usize = 8;
const CHUNK_BYTES: usize = 64 * 1024;
/// Base64 makes four letters of three bytes.
const RANDOM_BYTES: usize = CHUNK_BYTES / 4 * 3;

/// Chunks without their numbers.
pub struct Batch {
    contents: Vec<Vec<u8>>,
    /// Of each, the field that holds its content.
    fields: Vec<String>,
}

impl Batch {
    /// A compiler's and a test runner's lines.
    pub fn text() -> Self {
        let mut dice = Dice(1);
        let contents = (0..CHUNKS).map(|_| lines(&mut dice)).collect::<Vec<_>>();
        let quoted = |text: &String| format!("\"text\":{}", serde_json::Value::from(text.as_str()));
        let fields = contents.iter().map(quoted).collect();
        Self { contents: contents.into_iter().map(String::into_bytes).collect(), fields }
    }

    /// Bytes that don't compress.
    pub fn random() -> Self {
        let mut dice = Dice(2);
        let chunk = |_| (0..RANDOM_BYTES / 8).flat_map(|_| dice.throw().to_le_bytes()).collect();
        let contents: Vec<Vec<u8>> = (0..CHUNKS).map(chunk).collect();
        let fields = contents.iter().map(|bytes| format!("\"base64\":\"{}\"", STANDARD.encode(bytes))).collect();
        Self { contents, fields }
    }

    /// The bytes of all chunks.
    pub fn bytes(&self) -> usize {
        self.contents.iter().map(Vec::len).sum()
    }

    /// How many chunks there are.
    pub fn chunks(&self) -> u64 {
        CHUNKS as u64
    }

    /// The batch as a worker sends it, numbered from `first`.
    pub fn write_json(&self, first: u64, body: &mut Vec<u8>) {
        body.clear();
        body.extend_from_slice(b"{\"chunks\":[");
        for (seq, field) in (first..).zip(&self.fields) {
            let comma = if seq == first { "" } else { "," };
            let head = format!("{comma}{{\"seq\":{seq},\"step\":\"test\",\"stream\":\"stdout\",\"at_ms\":5,");
            body.extend_from_slice(head.as_bytes());
            body.extend_from_slice(field.as_bytes());
            body.push(b'}');
        }
        body.extend_from_slice(b"]}");
    }

    /// The batch as rows of COPY's binary format: build, seq, step, stream, milliseconds, content.
    pub fn write_rows(&self, build: Uuid, first: u64, rows: &mut Vec<u8>) {
        rows.clear();
        rows.extend_from_slice(b"PGCOPY\n\xff\r\n\0\0\0\0\0\0\0\0\0");
        for (seq, content) in (first..).zip(&self.contents) {
            rows.extend_from_slice(&6_i16.to_be_bytes());
            let (seq, at_ms) = (seq.to_be_bytes(), 5_i64.to_be_bytes());
            for column in [build.as_bytes().as_slice(), &seq, b"test", b"stdout", &at_ms, content] {
                rows.extend_from_slice(&u32::try_from(column.len()).unwrap_or(u32::MAX).to_be_bytes());
                rows.extend_from_slice(column);
            }
        }
        rows.extend_from_slice(&(-1_i16).to_be_bytes());
    }
}

/// A chunk of lines as builds write them: much that repeats, numbers that don't. JSON escapes nothing but their ends.
fn lines(dice: &mut Dice) -> String {
    const WORDS: [&str; 8] =
        ["Compiling", "Checking", "Finished", "Running", "test", "warning:", "Downloaded", "Fresh"];
    let mut text = String::with_capacity(CHUNK_BYTES);
    while text.len() < CHUNK_BYTES - 4096 {
        let throw = dice.throw();
        let word = WORDS[usize::try_from(throw % 8).unwrap_or(0)];
        let (module, line, micros) = (throw >> 8 & 0xfff, throw >> 20 & 0x3ff, throw >> 32 & 0xf_ffff);
        let _ = writeln!(
            text,
            "{word} module_{module:03x} v0.{line}.1 (src/module_{module:03x}/mod.rs:{line}) ... ok {micros}us"
        );
    }
    text
}

/// The same throws every time (splitmix64).
struct Dice(u64);

impl Dice {
    fn throw(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }
}
