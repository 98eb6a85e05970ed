//! One way to read a stream: as it is, or decoded. What is read is looked through for secrets.
//!
//! A secret that a program encoded is found by decoding what may be an encoding, not by encoding the secret: so neither where
//! lines are wrapped matters, nor what stands before it in the same encoded text.

use super::alphabets::{ENTITY_MAX, digit, entity, hex, quintet, sextet};
use super::automaton::{Automaton, State};
use super::dump::{Dump, Format, Read};
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
    /// With the escapes of JSON, of C and of a shell that puts a backslash before what is special.
    Backslash,
    /// With the escapes of HTML and XML.
    Markup,
    /// As digits of so many bits each (hexadecimal, base32, base64), of which the first `skip` are passed over.
    Digits { bits: u32, skip: u8 },
    /// As a dump's columns.
    Dump(Format),
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
    dump: Dump,
    /// Whether the line of a dump that is being read holds a secret, so that the text beside it does.
    is_marked: bool,
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

impl Partial {
    /// Whether no digit is begun nor passed over.
    fn is_none(&self) -> bool {
        self.length == 0 && self.skipped == 0
    }
}

impl Track {
    pub(super) fn new(reading: Reading) -> Self {
        let (state, places, partial) = (State::default(), [0; PLACES], Partial::default());
        let dump = Dump::new(if let Reading::Dump(format) = reading { format } else { Format::HexPairs });
        Self { reading, state, places, count: 0, last: 0, unbroken: 0, partial, dump, is_marked: false }
    }

    /// Reads `bytes`, of which the first is at `first`; adds what is a secret to `found`.
    pub(super) fn read_all(&mut self, automaton: &Automaton, first: u64, bytes: &[u8], found: &mut Vec<Range<u64>>) {
        let (mut at, mut rest) = (first, bytes);
        while !rest.is_empty() {
            let idle = self.idle(automaton, rest);
            (at, rest) = (at + u64::try_from(idle).unwrap_or(0), &rest[idle..]);
            if let Some((byte, after)) = rest.split_first() {
                found.extend(self.read(automaton, at, *byte));
                (at, rest) = (at + 1, after);
            }
        }
    }

    /// How many of the first bytes mean nothing to it, in the middle of nothing as it is. Most of a log does, and this is what it
    /// takes for most readings.
    fn idle(&mut self, automaton: &Automaton, bytes: &[u8]) -> usize {
        if self.state != State::default() || self.partial.escape.is_some() {
            return 0;
        }
        let escapes = |one, other| until(bytes, |byte| byte == one || byte == other || !automaton.begins_none(byte));
        let idle = match self.reading {
            Reading::Plain => until(bytes, |byte| !automaton.begins_none(byte)),
            Reading::Percent { blanks } => escapes(b'%', if blanks { b'+' } else { b'%' }),
            Reading::Backslash => escapes(b'\\', b'\\'),
            Reading::Markup => escapes(b'&', b'&'),
            Reading::Dump(_) if self.dump.is_elsewhere() => until(bytes, |byte| byte == b'\n'),
            Reading::Digits { bits: 4, .. } if self.partial.is_none() => until(bytes, |byte| hex(byte).is_some()),
            Reading::Digits { bits: 5, .. } if self.partial.is_none() => until(bytes, |byte| quintet(byte).is_some()),
            Reading::Digits { .. } if self.partial.is_none() => until(bytes, |byte| sextet(byte).is_some()),
            Reading::Dump(_) | Reading::Digits { .. } => 0,
        };
        self.unbroken = self.unbroken.saturating_add(idle);
        if idle > 0 {
            self.partial.after_backslash = bytes[idle - 1] == b'\\';
        }
        idle
    }

    /// Reads the raw byte at `at`; returns what is a secret, if one ends there.
    pub(super) fn read(&mut self, automaton: &Automaton, at: u64, byte: u8) -> Option<Range<u64>> {
        match self.reading {
            Reading::Plain => self.take(automaton, at, at + 1, byte),
            Reading::Percent { blanks } => self.percent(automaton, at, byte, blanks),
            Reading::Backslash => self.backslash(automaton, at, byte),
            Reading::Markup => self.markup(automaton, at, byte),
            Reading::Dump(_) => self.dump(automaton, at, byte),
            Reading::Digits { bits, skip } => self.digit(automaton, at, byte, bits, skip),
        }
    }

    /// From where on the stream may be the beginning of a secret.
    pub(super) fn begun(&self, automaton: &Automaton) -> Option<u64> {
        match automaton.depth(self.state) {
            0 if self.partial.escape.is_some() || self.partial.length > 0 => Some(self.partial.from),
            0 => self.dump.begun(),
            depth => Some(self.place(depth)),
        }
    }

    /// Whether what it takes for a beginning of a secret is most likely none: part of an escape, a byte that was decoded from
    /// what may be any text, a few bytes at the end of a line.
    pub(super) fn is_faint(&self, automaton: &Automaton) -> bool {
        match (self.reading, automaton.depth(self.state)) {
            (_, 0) | (Reading::Digits { .. } | Reading::Dump(_), 1) => true,
            (Reading::Percent { .. }, depth) => self.unbroken == 0 && depth < WRAPPED_MIN_BYTES / 2,
            (Reading::Plain | Reading::Backslash | Reading::Markup | Reading::Digits { .. } | Reading::Dump(_), _) => {
                false
            }
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

    fn backslash(&mut self, automaton: &Automaton, at: u64, byte: u8) -> Option<Range<u64>> {
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
            [b' ' | b'!'..=b'/' | b':'..=b'@' | b'['..=b'`' | b'{'..=b'~'] => {
                self.take_wrapped(automaton, self.partial.from, at + 1, byte)
            }
            [b'x'] => {
                self.partial.escape = Some(escape);
                None
            }
            [b'x', digit] if hex(*digit).is_some() => {
                self.partial.escape = Some(escape);
                None
            }
            [b'x', high, low] if hex(*low).is_some() => {
                let code = hex(*high).unwrap_or(0) * 16 + hex(*low).unwrap_or(0);
                self.take_wrapped(automaton, self.partial.from, at + 1, u8::try_from(code).unwrap_or(0))
            }
            [b'u', digits @ ..] if digits.iter().all(|digit| hex(*digit).is_some()) => {
                if digits.len() < 4 {
                    self.partial.escape = Some(escape);
                    return None;
                }
                let code = digits.iter().fold(0, |code, digit| code * 16 + hex(*digit).unwrap_or(0));
                self.take_character(automaton, at, char::from_u32(code).unwrap_or('\u{fffd}'))
            }
            _ => self.no_escape(automaton, at, b'\\', &escape),
        }
    }

    fn markup(&mut self, automaton: &Automaton, at: u64, byte: u8) -> Option<Range<u64>> {
        let Some(mut escape) = self.partial.escape.take() else {
            if byte == b'&' {
                self.begin_escape(at);
                return None;
            }
            return self.take_wrapped(automaton, at, at + 1, byte);
        };
        escape.push(byte);
        match (escape.as_slice(), entity(&escape)) {
            (_, Some(character)) => self.take_character(automaton, at, character),
            ([name @ .., last], None) if name.len() < ENTITY_MAX && (last.is_ascii_alphanumeric() || *last == b'#') => {
                self.partial.escape = Some(escape);
                None
            }
            (_, None) => self.no_escape(automaton, at, b'&', &escape),
        }
    }

    fn dump(&mut self, automaton: &Automaton, at: u64, byte: u8) -> Option<Range<u64>> {
        if byte == b'\n' {
            self.is_marked = false;
        } else if self.dump.is_elsewhere() {
            return None;
        }
        match self.dump.read(at, byte) {
            Read::Nothing => None,
            Read::Break => {
                self.state = State::default();
                None
            }
            Read::Text => self.is_marked.then_some(at..at + 1),
            Read::Bytes { bytes, count, from } => {
                let to = if byte == b' ' || byte == b'\n' { at } else { at + 1 };
                let found = bytes[..count].iter().filter_map(|byte| self.take(automaton, from, to, *byte)).last();
                self.is_marked |= found.is_some() && byte != b'\n';
                found
            }
        }
    }

    /// Hexadecimal, base32, or base64 in both its alphabets.
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
        let Some(digit) = digit(bits, byte) else {
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

    /// Takes the character whose escape ends at `at`.
    fn take_character(&mut self, automaton: &Automaton, at: u64, character: char) -> Option<Range<u64>> {
        let (mut bytes, from) = ([0; 4], self.partial.from);
        let text = character.encode_utf8(&mut bytes);
        text.bytes().filter_map(|byte| self.take_wrapped(automaton, from, at + 1, byte)).last()
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

/// How many bytes come before the first that matters.
fn until(bytes: &[u8], matters: impl Fn(u8) -> bool) -> usize {
    bytes.iter().position(|byte| matters(*byte)).unwrap_or(bytes.len())
}
