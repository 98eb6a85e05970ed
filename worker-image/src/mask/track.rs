//! One way to read a stream: as it is, or decoded. What is read is looked through for secrets.
//!
//! A secret that a program encoded is found by decoding what may be an encoding, not by encoding the secret: so neither where
//! lines are wrapped matters, nor what stands before it in the same encoded text.

use super::automaton::{Automaton, State};
use std::ops::Range;

/// The most bytes between two that belong together: a line's end and some indentation.
const GAP_MAX_BYTES: u64 = 64;
/// A string is never longer than this, so an older byte's place says nothing.
const PLACES: usize = 64;
/// A value that is wrapped is looked for only if it is at least so long: less may turn up by chance.
const WRAPPED_MIN_BYTES: usize = 8;

/// How a stream is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Reading {
    /// As it is.
    Plain,
    /// Over line breaks, and with `%2F` for `/`; with `blanks` also `+` for a blank.
    Percent { blanks: bool },
    /// With the escapes of JSON.
    Json,
    /// As digits of so many bits each, of which the first `skip` are passed over.
    Digits { bits: u32, skip: u8 },
}

/// One reading of one stream.
#[derive(Clone, Debug)]
pub(super) struct Track {
    reading: Reading,
    state: State,
    /// Where the last bytes that were read begin, by their number.
    places: [u64; PLACES],
    count: usize,
    /// The raw byte after the last one that mattered.
    last: u64,
    /// How many bytes were read since a line break was passed over.
    unbroken: usize,
    partial: Partial,
}

/// What is begun and not whole.
#[derive(Clone, Debug, Default)]
struct Partial {
    /// An escape, without its first byte.
    escape: Option<Vec<u8>>,
    /// Bits of digits, and how many.
    bits: u32,
    length: u32,
    skipped: u8,
    /// Where it begins.
    from: u64,
    after_backslash: bool,
}

impl Track {
    pub(super) fn new(reading: Reading) -> Self {
        let (state, places, partial) = (State::default(), [0; PLACES], Partial::default());
        Self { reading, state, places, count: 0, last: 0, unbroken: 0, partial }
    }

    /// Reads the raw byte at `at`; returns what is a secret, if one ends there.
    pub(super) fn read(&mut self, automaton: &Automaton, at: u64, byte: u8) -> Option<Range<u64>> {
        match self.reading {
            Reading::Plain => self.take(automaton, at, at + 1, byte),
            Reading::Percent { blanks } => self.percent(automaton, at, byte, blanks),
            Reading::Json => self.json(automaton, at, byte),
            Reading::Digits { bits, skip } => self.digit(automaton, at, byte, bits, skip),
        }
    }

    /// From where on the stream may be the beginning of a secret.
    pub(super) fn begun(&self, automaton: &Automaton) -> Option<u64> {
        match automaton.depth(self.state) {
            0 => (self.partial.escape.is_some() || self.partial.length > 0).then_some(self.partial.from),
            depth => Some(self.place(depth)),
        }
    }

    /// Whether what it takes for a beginning of a secret is most likely none: part of an escape, a byte that was decoded from
    /// what may be any text, a few bytes at the end of a line.
    pub(super) fn is_faint(&self, automaton: &Automaton) -> bool {
        match (self.reading, automaton.depth(self.state)) {
            (_, 0) | (Reading::Digits { .. }, 1) => true,
            (Reading::Percent { .. }, depth) => self.unbroken == 0 && depth < WRAPPED_MIN_BYTES / 2,
            (Reading::Plain | Reading::Json | Reading::Digits { .. }, _) => false,
        }
    }

    fn percent(&mut self, automaton: &Automaton, at: u64, byte: u8, blanks: bool) -> Option<Range<u64>> {
        let is_break = byte == b'\r' || byte == b'\n';
        if is_break && self.is_within_gap(automaton, at) {
            self.unbroken = 0;
            return None;
        }
        if let Some(mut escape) = self.partial.escape.take() {
            escape.push(byte);
            match escape.as_slice() {
                [high, low] => {
                    let (high, low) = (hex(*high), hex(*low));
                    let byte = high.zip(low).and_then(|(high, low)| u8::try_from(high * 16 + low).ok());
                    return match byte {
                        Some(byte) => self.take_wrapped(automaton, self.partial.from, at + 1, byte),
                        None => self.no_escape(automaton, at, b'%', &escape),
                    };
                }
                _ => self.partial.escape = Some(escape),
            }
            return None;
        }
        match byte {
            b'%' => {
                self.begin_escape(at);
                None
            }
            b'+' if blanks => self.take_wrapped(automaton, at, at + 1, b' '),
            byte => self.take_wrapped(automaton, at, at + 1, byte),
        }
    }

    fn json(&mut self, automaton: &Automaton, at: u64, byte: u8) -> Option<Range<u64>> {
        let Some(mut escape) = self.partial.escape.take() else {
            if byte == b'\\' {
                self.begin_escape(at);
                return None;
            }
            return self.take_wrapped(automaton, at, at + 1, byte);
        };
        escape.push(byte);
        match escape.as_slice() {
            [b'n'] => self.take_wrapped(automaton, self.partial.from, at + 1, b'\n'),
            [b'r'] => self.take_wrapped(automaton, self.partial.from, at + 1, b'\r'),
            [b't'] => self.take_wrapped(automaton, self.partial.from, at + 1, b'\t'),
            [b'b'] => self.take_wrapped(automaton, self.partial.from, at + 1, 8),
            [b'f'] => self.take_wrapped(automaton, self.partial.from, at + 1, 12),
            [b'"' | b'\\' | b'/' | b'\''] => self.take_wrapped(automaton, self.partial.from, at + 1, byte),
            [b'u', digits @ ..] if digits.iter().all(|digit| hex(*digit).is_some()) => {
                if digits.len() < 4 {
                    self.partial.escape = Some(escape);
                    return None;
                }
                let code = digits.iter().fold(0, |code, digit| code * 16 + hex(*digit).unwrap_or(0));
                let mut bytes = [0; 4];
                let text = char::from_u32(code).unwrap_or('\u{fffd}').encode_utf8(&mut bytes);
                let from = self.partial.from;
                text.bytes().filter_map(|byte| self.take_wrapped(automaton, from, at + 1, byte)).last()
            }
            _ => self.no_escape(automaton, at, b'\\', &escape),
        }
    }

    /// Base64 in both its alphabets, or hexadecimal.
    fn digit(&mut self, automaton: &Automaton, at: u64, byte: u8, bits: u32, skip: u8) -> Option<Range<u64>> {
        let after_backslash = std::mem::replace(&mut self.partial.after_backslash, byte == b'\\');
        let is_gap = match byte {
            b' ' | b'\t' | b'\r' | b'\n' | b'\\' => true,
            b'n' | b'r' => after_backslash,
            b':' | b'-' | b'x' => bits == 4,
            _ => false,
        };
        if is_gap && at.saturating_sub(self.last) < GAP_MAX_BYTES {
            return None;
        }
        let Some(digit) = (if bits == 4 { hex(byte) } else { sextet(byte) }) else {
            self.partial = Partial { after_backslash: byte == b'\\', ..Partial::default() };
            self.state = State::default();
            self.last = at + 1;
            return None;
        };
        self.last = at + 1;
        if self.partial.skipped < skip {
            self.partial.skipped += 1;
            return None;
        }
        let from = if self.partial.length > 0 { self.partial.from } else { at };
        self.partial.bits = ((self.partial.bits << bits) | digit) & 0xffff;
        self.partial.length += bits;
        self.partial.from = at;
        if self.partial.length < 8 {
            return None;
        }
        self.partial.length -= 8;
        let byte = u8::try_from((self.partial.bits >> self.partial.length) & 0xff).unwrap_or(0);
        self.take(automaton, from, at + 1, byte)
    }

    fn begin_escape(&mut self, at: u64) {
        self.partial.escape = Some(Vec::new());
        self.partial.from = at;
    }

    /// Takes the bytes of what looked like an escape and is none, the last of them at `at`, for what they are.
    fn no_escape(&mut self, automaton: &Automaton, at: u64, first: u8, rest: &[u8]) -> Option<Range<u64>> {
        let from = self.partial.from;
        let found = self.take_wrapped(automaton, from, from + 1, first);
        let places = (0..=at).rev().zip(rest.iter().rev()).collect::<Vec<_>>();
        let later = places.into_iter().rev().filter_map(|(at, byte)| self.read(automaton, at, *byte)).last();
        later.or(found)
    }

    /// As `take`, but of something short that is wrapped nothing is said.
    fn take_wrapped(&mut self, automaton: &Automaton, from: u64, to: u64, byte: u8) -> Option<Range<u64>> {
        self.unbroken = self.unbroken.saturating_add(1);
        let found = self.take(automaton, from, to, byte);
        let length = automaton.found(self.state);
        found.filter(|_| length >= WRAPPED_MIN_BYTES || length <= self.unbroken)
    }

    fn take(&mut self, automaton: &Automaton, from: u64, to: u64, byte: u8) -> Option<Range<u64>> {
        self.places[self.count % PLACES] = from;
        self.count += 1;
        self.last = to;
        self.state = automaton.next(self.state, byte);
        match automaton.found(self.state) {
            0 => None,
            length => Some(self.place(length)..to),
        }
    }

    /// Where the last `length` bytes that were read begin.
    fn place(&self, length: usize) -> u64 {
        self.places[(self.count - length) % PLACES]
    }

    fn is_within_gap(&self, automaton: &Automaton, at: u64) -> bool {
        (automaton.depth(self.state) > 0 || self.partial.escape.is_some())
            && at.saturating_sub(self.last) < GAP_MAX_BYTES
    }
}

fn hex(byte: u8) -> Option<u32> {
    char::from(byte).to_digit(16)
}

fn sextet(byte: u8) -> Option<u32> {
    let digit = match byte {
        b'A'..=b'Z' => byte - b'A',
        b'a'..=b'z' => byte - b'a' + 26,
        b'0'..=b'9' => byte - b'0' + 52,
        b'+' | b'-' => 62,
        b'/' | b'_' => 63,
        _ => return None,
    };
    Some(digit.into())
}
