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
}

impl Masker {
    /// A masker at the beginning of a stream.
    #[must_use]
    pub fn new(masks: Arc<Masks>) -> Self {
        let tracks = if masks.automaton.is_empty() { Vec::new() } else { masks.readings() };
        let tracks = tracks.into_iter().map(Track::new).collect();
        Self { masks, tracks, held: Vec::new(), from: 0, secret: Vec::new(), masked_to: None }
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

    /// The stream has ended: returns the rest.
    pub fn finish(&mut self) -> Vec<u8> {
        self.shown(None)
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
            let masked_to = self.masked_to.filter(|masked_to| range.start <= *masked_to);
            if masked_to.is_none() {
                let plain = at.max(self.masked_to.unwrap_or(0))..range.start;
                shown.extend_from_slice(part(&self.held, self.from, plain));
                shown.extend_from_slice(MASK);
            }
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

/// The bytes of a range of numbers, of which `held` begins with `from`.
fn part(held: &[u8], from: u64, range: Range<u64>) -> &[u8] {
    let index = |number: u64| usize::try_from(number.saturating_sub(from)).unwrap_or(usize::MAX).min(held.len());
    held.get(index(range.start)..index(range.end)).unwrap_or(&[])
}

#[cfg(test)]
mod tests {
    use super::dump::Format;
    use super::*;
    use base64::Engine as _;
    use base64::engine::general_purpose::STANDARD;
    use proptest::prelude::*;

    fn masked(secrets: &[&str], pieces: &[&str]) -> String {
        let mut masker = Masker::new(Arc::new(Masks::new(secrets.iter().copied())));
        let mut shown: Vec<u8> = pieces.iter().flat_map(|piece| masker.push(piece.as_bytes())).collect();
        shown.extend(masker.finish());
        String::from_utf8(shown).unwrap()
    }

    #[test]
    fn a_value_is_masked_wherever_it_stands() {
        assert_eq!(masked(&["hunter2"], &["x hunter2 hunter2y"]), "x *** ***y");
    }

    #[test]
    fn a_value_that_comes_in_pieces_is_masked() {
        assert_eq!(masked(&["hunter2"], &["a hun", "te", "r2 b hunt"]), "a *** b hunt");
    }

    #[test]
    fn the_longer_of_two_values_wins_also_across_reads() {
        assert_eq!(masked(&["abc", "abcdef"], &["abc", "def abcx"]), "*** ***x");
    }

    #[test]
    fn values_that_overlap_are_masked_as_one() {
        assert_eq!(masked(&["abcd", "cdef"], &["-abcdef-"]), "-***-");
    }

    #[test]
    fn a_value_of_several_lines_is_masked_line_by_line() {
        assert_eq!(masked(&["first line\nsecond\nx\n"], &["> second\n> first line\nx\n"]), "> ***\n> ***\nx\n");
    }

    #[test]
    fn a_value_of_two_bytes_can_not_be_masked() {
        assert_eq!(masked(&["ab", ""], &["cab"]), "cab");
    }

    #[test]
    fn what_can_not_be_masked_is_named_and_its_value_is_not() {
        assert_eq!(unmasked("PIN", "x\n").unwrap(), "The secret PIN is shorter than 3 bytes and is not masked");
        assert_eq!(
            unmasked("KEY", "first\nxy\nlast").unwrap(),
            "Lines of the secret KEY that are shorter than 3 bytes are not masked by themselves"
        );
        for fine in ["abc", "", "abc\n\ndef"] {
            assert_eq!(unmasked("FINE", fine), None);
        }
    }

    #[test]
    fn common_encodings_are_masked() {
        let secret = "s3cret/pass word+1\"";
        for form in [
            STANDARD.encode(secret).trim_end_matches('=').to_owned(),
            "s3cret%2Fpass%20word%2B1%22".into(),
            "s3cret%2Fpass+word%2B1%22".into(),
            "s3cret%2fpass%20word%2b1%22".into(),
            "s3cret/pass%20word+1%22".into(),
            "s3cret/pass word+1\\\"".into(),
            "s3cret\\/pass\\u0020word+1\\u0022".into(),
            hex::encode(secret),
            hex::encode_upper(secret),
            secret.bytes().map(|byte| format!("\\x{byte:02x}")).collect::<String>()[2..].into(),
            secret.bytes().map(|byte| format!(":{byte:02X}")).collect::<String>()[1..].into(),
            "s3cret/pass word+1&quot;".into(),
            "s3cret&#47;pass&#x20;word&#x2B;1&#34;".into(),
            "s3cret/pass\\ word+1\\\"".into(),
            "s3cret\\x2fpass\\x20word+1\\x22".into(),
            base32(secret),
        ] {
            assert_eq!(masked(&[secret], &[&form]), "***", "{form}");
            for before in ["%", "%%", "%2", "\\", "\\u00", "&", "&#x2", "\\x"] {
                let shown = masked(&[secret], &[before, &form]);
                assert!(shown == format!("{before}***") || shown == "***", "{before}{form}: {shown}");
            }
        }
    }

    /// Without the signs at the end that fill it up.
    fn base32(text: &str) -> String {
        let bits: Vec<u8> = text.bytes().flat_map(|byte| (0..8).rev().map(move |bit| byte >> bit & 1)).collect();
        let digit = |bits: &[u8]| {
            let number = (0..5).fold(0, |number, at| number * 2 + bits.get(at).copied().unwrap_or(0));
            char::from(b"ABCDEFGHIJKLMNOPQRSTUVWXYZ234567"[usize::from(number)])
        };
        bits.chunks(5).map(digit).collect()
    }

    /// A dump of `bytes` as the programs write it.
    fn dump(format: Format, is_xxd: bool, bytes: &[u8]) -> String {
        let text = |line: &[u8]| line.iter().map(|byte| char::from(*byte)).collect::<String>();
        let column = |pair: &[u8]| match (format, pair) {
            (Format::HexPairs, [one, two]) if is_xxd => format!("{one:02x}{two:02x}"),
            (Format::HexPairs, [one, two]) => format!("{one:02x} {two:02x}"),
            (Format::HexPairs, rest) => rest.iter().map(|byte| format!("{byte:02x}")).collect(),
            (Format::HexWords, pair) => format!("{:04x}", word(pair)),
            (Format::Octal, pair) => format!("{:06o}", word(pair)),
            (Format::Characters, pair) => pair.iter().map(|byte| format!("{:>4}", char::from(*byte))).collect(),
        };
        let line = |(number, line): (usize, &[u8])| {
            let columns: Vec<String> = line.chunks(2).map(column).collect();
            match format {
                Format::HexPairs if is_xxd => {
                    format!("{:08x}: {:<39}  {}\n", number * 16, columns.join(" "), text(line))
                }
                Format::HexPairs => format!("{:08x}  {:<48}  |{}|\n", number * 16, columns.join(" "), text(line)),
                Format::Characters => format!("{:07o}{}\n", number * 16, columns.concat()),
                Format::HexWords | Format::Octal => format!("{:07o} {}\n", number * 16, columns.join(" ")),
            }
        };
        bytes.chunks(16).enumerate().map(line).collect()
    }

    fn word(pair: &[u8]) -> u16 {
        u16::from_le_bytes([pair[0], pair.get(1).copied().unwrap_or(0)])
    }

    #[test]
    fn a_dump_without_secrets_is_shown_as_it_is() {
        for format in FORMATS {
            let dump = dump(format, true, b"nothing that nobody may see, in a few lines of it");
            assert_eq!(masked(&["another-value"], &[&dump]), dump);
        }
    }

    #[test]
    fn a_short_value_is_not_looked_for_over_line_breaks() {
        assert_eq!(masked(&["abc"], &["a\nbc abc"]), "a\nbc ***");
        assert_eq!(masked(&["abcdefgh"], &["abcd\nefgh"]), "***");
    }

    #[test]
    fn a_long_value_is_masked_as_one() {
        let secret: String =
            (0..300).map(|number: u32| char::from(b'a' + u8::try_from(number % 23).unwrap())).collect();
        assert_eq!(masked(&[&secret], &[&format!("<{secret}>")]), "<***>");
    }

    #[test]
    fn a_line_that_ends_like_a_beginning_is_shown_after_a_while() {
        let mut masker = Masker::new(Arc::new(Masks::new(["dangerous"])));
        let mut shown = masker.push(b"waiting, 50% done, and\n");
        shown.extend(masker.settle());
        assert_eq!(shown, b"waiting, 50% done, and\n");
        assert_eq!(masker.push(b"dang"), b"");
        assert_eq!(masker.settle(), b"", "what is likely is held");
        let mut shown = masker.push(b"er ");
        shown.extend(masker.settle());
        assert_eq!(shown, b"danger ");
    }

    #[test]
    fn what_is_held_is_bounded() {
        let secret = "k".repeat(5000);
        let mut masker = Masker::new(Arc::new(Masks::new([secret.as_str()])));
        for piece in [&"k\n \n".repeat(50_000), &hex::encode(&secret), &"\n".repeat(100_000)] {
            for part in piece.as_bytes().chunks(1000) {
                masker.push(part);
                assert!(masker.held.len() < 8192 && masker.secret.len() < 8192);
            }
        }
    }

    fn wrapped(text: &str, width: usize, end: &str) -> String {
        let lines: Vec<&str> = text.as_bytes().chunks(width).map(|line| std::str::from_utf8(line).unwrap()).collect();
        lines.join(end)
    }

    /// Cuts `text` up, and masks it. A long value has more than one mask where a line ends between its pieces.
    fn masked_in_pieces(secret: &str, text: &str, size: usize, end: &str) -> String {
        let mut masker = Masker::new(Arc::new(Masks::new([secret])));
        let mut shown: Vec<u8> = text.as_bytes().chunks(size).flat_map(|piece| masker.push(piece)).collect();
        shown.extend(masker.finish());
        let (mut shown, two) = (String::from_utf8(shown).unwrap(), format!("***{end}***"));
        while shown.contains(&two) {
            shown = shown.replace(&two, "***");
        }
        shown
    }

    proptest! {
        #[test]
        fn a_wrapped_encoding_is_masked_wherever_it_is_wrapped_and_whatever_is_around_it(
            secret in "[a-z!\u{e4}]{6,150}(\n[A-Z]{3,70}){0,3}",
            (before, after) in ("[0-9]{0,9}", "[0-9]{0,9}"),
            (width, size) in (20usize..100, 1usize..90),
            crlf in any::<bool>(),
        ) {
            let end = if crlf { "\r\n  " } else { "\n" };
            let text = format!("{before}{secret}{after}");
            for (encoded, bits) in [(STANDARD.encode(&text), 6), (hex::encode(&text), 4)] {
                // What holds a bit of the secret, in digits; then with the line ends between.
                let (first, last) = (before.len() * 8 / bits, (before.len() + secret.len()) * 8);
                let last = last.div_ceil(bits) - 1;
                let place = |digit: usize| digit + digit / width * end.len();
                let whole = wrapped(&encoded, width, end);
                let expected = format!("{}***{}", &whole[..place(first)], &whole[place(last) + 1..]);
                prop_assert_eq!(masked_in_pieces(&secret, &whole, size, end), expected);
            }
        }

        #[test]
        fn a_wrapped_url_encoding_is_masked(secret in "[a-z/ &=\u{e4}]{8,150}", width in 20usize..100, size in 1usize..90) {
            let encode = |byte: u8| if byte.is_ascii_lowercase() { char::from(byte).to_string() } else { format!("%{byte:02X}") };
            let encoded: String = secret.trim().bytes().map(encode).collect();
            prop_assume!(secret.trim().len() >= 8);
            let whole = format!("<{}>", wrapped(&encoded, width, "\n"));
            prop_assert_eq!(masked_in_pieces(&secret, &whole, size, "\n"), "<***>");
        }
    }

    proptest! {
        #[test]
        fn a_dump_shows_no_part_of_a_secret_neither_in_columns_nor_beside_them(
            secret in "[a-z]{8,150}",
            (before, after) in ("[0-9]{0,40}", "[0-9]{0,40}"),
            (format, is_xxd) in (0..FORMATS.len(), any::<bool>()),
            size in 1usize..90,
        ) {
            let (format, bytes) = (FORMATS[format], format!("{before}{secret}{after}"));
            let whole = dump(format, is_xxd, bytes.as_bytes());
            let mut masker = Masker::new(Arc::new(Masks::new([secret.as_str()])));
            let mut shown: Vec<u8> = whole.as_bytes().chunks(size).flat_map(|piece| masker.push(piece)).collect();
            shown.extend(masker.finish());
            let shown = String::from_utf8(shown).unwrap();
            let rendered = |part: &[u8]| {
                let line = dump(format, is_xxd, part);
                line[8..].trim_start_matches([':', ' ']).split("  ").next().unwrap().trim().to_owned()
            };
            for part in secret.as_bytes().windows(4) {
                prop_assert!(!shown.contains(std::str::from_utf8(part).unwrap()), "{shown}");
                prop_assert!(format == Format::Characters || !shown.contains(&rendered(part)), "{shown}");
            }
            prop_assert!(shown.contains("***"));
            prop_assert!(format != Format::Characters || !shown.chars().any(|shown| shown.is_ascii_lowercase()), "{shown}");
        }

        #[test]
        fn no_secret_is_shown_however_the_stream_is_cut(
            secret in "[ab]{3,6}",
            text in "[abc]{0,40}",
            cuts in proptest::collection::vec(1usize..8, 0..20),
        ) {
            let mut masker = Masker::new(Arc::new(Masks::new([secret.as_str()])));
            let mut rest = text.as_bytes();
            let mut shown = Vec::new();
            for cut in cuts {
                let (piece, after) = rest.split_at(cut.min(rest.len()));
                shown.extend(masker.push(piece));
                rest = after;
            }
            shown.extend(masker.push(rest));
            shown.extend(masker.finish());
            let shown = String::from_utf8(shown).unwrap();
            prop_assert!(!shown.contains(&secret));
            prop_assert_eq!(shown, masked(&[&secret], &[&text]));
        }

        #[test]
        fn text_without_secrets_is_shown_as_it_is(text in "\\PC{0,60}") {
            prop_assert_eq!(masked(&["\u{1}never\u{1}"], &[&text]), text);
        }
    }
}
