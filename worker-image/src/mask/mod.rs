//! Keeps secret values out of the log, also where they come in pieces, line by line, wrapped or encoded.
//!
//! A [`Masker`] belongs to one stream. It reads it in several ways at once (`track`: as it is, and decoded), looks for the
//! same strings in each (`automaton`), and holds back the few bytes that may be the beginning of a secret until more come
//! or the stream ends. What it holds is bounded, whatever the secrets and the stream.
//!
//! What it can't find: a value of less than [`SECRET_MIN_BYTES`], which would blacken half the log and is named instead; part
//! of a value; a value that was changed otherwise than as `track` reads it back. README.md has the list.

mod alphabets;
mod automaton;
mod dump;
mod track;

use automaton::Automaton;
use dump::FORMATS;
use std::collections::BTreeSet;
use std::ops::Range;
use std::sync::Arc;
use track::{Reading, Track};

const MASK: &[u8] = b"***";
/// A value shorter than this can't be masked.
pub const SECRET_MIN_BYTES: usize = 3;
/// A longer value is looked for in pieces of this length, so that little is held back.
const PIECE_BYTES: usize = 64;

/// What is to be masked.
pub struct Masks {
    automaton: Automaton,
    has_blanks: bool,
}

impl std::fmt::Debug for Masks {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Masks(***)")
    }
}

impl Masks {
    /// Masks for these values, whole, and each of their lines.
    #[must_use]
    pub fn new<'a>(values: impl IntoIterator<Item = &'a str>) -> Self {
        let strings: BTreeSet<Vec<u8>> = values.into_iter().flat_map(forms).collect();
        let has_blanks = strings.iter().any(|string| string.contains(&b' '));
        Self { automaton: Automaton::new(strings.iter().flat_map(|string| pieces(string))), has_blanks }
    }

    /// `text` with all secrets masked.
    #[must_use]
    pub fn text(self: &Arc<Self>, text: &str) -> String {
        let mut masker = Masker::new(Arc::clone(self));
        let mut masked = masker.push(text.as_bytes());
        masked.extend(masker.finish());
        String::from_utf8_lossy(&masked).into_owned()
    }

    fn readings(&self) -> Vec<Reading> {
        let mut readings =
            vec![Reading::Plain, Reading::Percent { blanks: false }, Reading::Backslash, Reading::Markup];
        if self.has_blanks {
            readings.push(Reading::Percent { blanks: true });
        }
        readings.extend((0..2).map(|skip| Reading::Digits { bits: 4, skip }));
        readings.extend((0..8).map(|skip| Reading::Digits { bits: 5, skip }));
        readings.extend((0..4).map(|skip| Reading::Digits { bits: 6, skip }));
        readings.extend(FORMATS.map(Reading::Dump));
        readings
    }
}

/// What of a secret is not masked, if anything, for a person and without the value.
#[must_use]
pub fn unmasked(name: &str, value: &str) -> Option<String> {
    let is_short = |text: &str| (1..SECRET_MIN_BYTES).contains(&text.trim().len());
    if is_short(value) {
        return Some(format!("The secret {name} is shorter than {SECRET_MIN_BYTES} bytes and is not masked"));
    }
    let has_short_lines = value.trim().lines().any(is_short);
    let line = format!(
        "Lines of the secret {name} that are shorter than {SECRET_MIN_BYTES} bytes are not masked by themselves"
    );
    has_short_lines.then_some(line)
}

/// A value as it is, without the blanks around it, each of its lines, and with the line ends of other systems.
fn forms(value: &str) -> Vec<Vec<u8>> {
    let whole = value.trim();
    let mut forms: Vec<Vec<u8>> = vec![value.into(), whole.into()];
    if whole.contains('\n') {
        forms.extend(whole.lines().map(|line| line.trim().into()));
        forms.push(whole.replace("\r\n", "\n").replace('\n', "\r\n").into_bytes());
    }
    forms.retain(|form| form.len() >= SECRET_MIN_BYTES);
    forms
}

/// Consecutive pieces; the last overlaps the one before rather than be short.
fn pieces(string: &[u8]) -> impl Iterator<Item = &[u8]> {
    let last = string.len().saturating_sub(PIECE_BYTES);
    let starts = (0..last).step_by(PIECE_BYTES).chain([last]);
    starts.map(|start| &string[start..string.len().min(start + PIECE_BYTES)])
}

/// Masks one stream of bytes.
#[derive(Debug)]
pub struct Masker {
    masks: Arc<Masks>,
    tracks: Vec<Track>,
    /// What is not shown yet, and the number of its first byte.
    held: Vec<u8>,
    from: u64,
    /// What is secret and not masked yet.
    secret: Vec<Range<u64>>,
    /// Up to where the last mask goes.
    masked_to: Option<u64>,
    /// Whether the line in which it ends shows a mask.
    is_told: bool,
}

impl Masker {
    /// A masker at the beginning of a stream.
    #[must_use]
    pub fn new(masks: Arc<Masks>) -> Self {
        let tracks = if masks.automaton.is_empty() { Vec::new() } else { masks.readings() };
        let tracks = tracks.into_iter().map(Track::new).collect();
        Self { masks, tracks, held: Vec::new(), from: 0, secret: Vec::new(), masked_to: None, is_told: false }
    }

    /// Takes the next bytes; returns what may be shown by now.
    pub fn push(&mut self, bytes: &[u8]) -> Vec<u8> {
        if self.tracks.is_empty() {
            return bytes.to_vec();
        }
        let first = self.end();
        for track in &mut self.tracks {
            track.read_all(&self.masks.automaton, first, bytes, &mut self.secret);
        }
        self.held.extend_from_slice(bytes);
        let begun = self.tracks.iter().filter_map(|track| track.begun(&self.masks.automaton)).min();
        self.shown(begun)
    }

    /// No more bytes have come for a while: returns what is held for no good reason.
    pub fn settle(&mut self) -> Vec<u8> {
        let automaton = &self.masks.automaton;
        let likely = self.tracks.iter().filter(|track| !track.is_faint(automaton));
        let begun = likely.filter_map(|track| track.begun(automaton)).min();
        self.shown(begun)
    }

    /// Whether anything is held back.
    #[must_use]
    pub fn holds(&self) -> bool {
        !self.held.is_empty()
    }

    /// The stream has ended, or goes on in a line of its own: returns the rest.
    pub fn finish(&mut self) -> Vec<u8> {
        let rest = self.shown(None);
        self.masked_to = None;
        rest
    }

    fn end(&self) -> u64 {
        self.from + u64::try_from(self.held.len()).unwrap_or(0)
    }

    /// What comes before `to`, or all, with its secrets masked.
    fn shown(&mut self, to: Option<u64>) -> Vec<u8> {
        let to = to.unwrap_or(u64::MAX).clamp(self.from, self.end());
        let (mut shown, mut at) = (Vec::with_capacity(self.held.len()), self.from);
        self.secret.sort_unstable_by_key(|range| range.start);
        let due = self.secret.partition_point(|range| range.start < to);
        for range in self.secret.drain(..due) {
            let goes_on = self.masked_to.filter(|masked_to| range.start <= *masked_to);
            if goes_on.is_none() {
                let plain = at.max(self.masked_to.unwrap_or(0))..range.start;
                shown.extend_from_slice(part(&self.held, self.from, plain));
            }
            let secret = part(&self.held, self.from, goes_on.unwrap_or(range.start)..range.end);
            self.is_told = match goes_on {
                Some(_) => mask(secret, self.is_told, &mut shown),
                // Line breaks are all that it is made of.
                None if is_blank(secret) => mask(b"-", false, &mut shown),
                None => mask(secret, false, &mut shown),
            };
            at = at.max(range.end);
            self.masked_to = self.masked_to.max(Some(range.end));
        }
        let plain = at.max(self.masked_to.unwrap_or(0))..to;
        shown.extend_from_slice(part(&self.held, self.from, plain));
        self.held.drain(..usize::try_from(to - self.from).unwrap_or(0));
        self.from = to;
        shown
    }
}

/// Puts into `shown` what stands for `secret`: a mask in each line that holds more of it than blanks, and the line breaks between. `is_told`
/// says whether the line shows a mask already, and, as it is returned, whether the last one does.
fn mask(secret: &[u8], mut is_told: bool, shown: &mut Vec<u8>) -> bool {
    for line in secret.split_inclusive(|byte| *byte == b'\n') {
        if !is_told && !is_blank(line) {
            shown.extend_from_slice(MASK);
            is_told = true;
        }
        if let Some(end) = [&b"\r\n"[..], b"\n"].into_iter().find(|end| line.ends_with(end)) {
            shown.extend_from_slice(end);
            is_told = false;
        }
    }
    is_told
}

fn is_blank(bytes: &[u8]) -> bool {
    bytes.iter().all(u8::is_ascii_whitespace)
}

/// The bytes of a range of numbers, of which `held` begins with `from`.
fn part(held: &[u8], from: u64, range: Range<u64>) -> &[u8] {
    let index = |number: u64| usize::try_from(number.saturating_sub(from)).unwrap_or(usize::MAX).min(held.len());
    held.get(index(range.start)..index(range.end)).unwrap_or(&[])
}

#[cfg(test)]
mod tests;
