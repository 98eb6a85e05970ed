//! What is masked, and what is left as it was.

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
    assert_eq!(masked(&["abcdefgh"], &["abcd\nefgh"]), "***\n***");
}

#[test]
fn each_line_that_lost_something_shows_a_mask_and_keeps_its_end() {
    for (text, shown) in [
        ("<abcde\nfghij\nkl>\n", "<***\n***\n***>\n"),
        ("abcde\r\nfghij\r\nkl\r\n", "***\r\n***\r\n***\r\n"),
        ("abcde\n\nfghijkl\nabcde\nfghijkl", "***\n\n***\n***\n***"),
    ] {
        assert_eq!(masked(&["abcdefghijkl"], &[text]), shown, "{text:?}");
        assert_eq!(
            masked(&["abcdefghijkl"], &text.split_inclusive(|_| true).collect::<Vec<_>>()),
            shown,
            "{text:?} byte by byte"
        );
    }
}

#[test]
fn a_value_with_a_line_break_at_its_end_does_not_take_it_along() {
    assert_eq!(masked(&["hunter2\n"], &["hunter2\nhunter2\n."]), "***\n***\n.");
    assert_eq!(masked(&["\n\n\n"], &["<\n\n\n>"]), "<***>");
}

#[test]
fn a_value_that_ends_where_a_command_does_is_masked_anew_behind_it() {
    let mut masker = Masker::new(Arc::new(Masks::new(["hunter2"])));
    for _ in 0..2 {
        masker.push(b"hunter2");
        assert_eq!(masker.finish(), b"***");
    }
}

#[test]
fn a_long_value_is_masked_as_one() {
    let secret: String = (0..300).map(|number: u32| char::from(b'a' + u8::try_from(number % 23).unwrap())).collect();
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

/// Cuts `text` up, and masks it. A value has more than one mask where a line ends within it.
fn masked_in_pieces(secret: &str, text: &str, size: usize, end: &str) -> String {
    let mut masker = Masker::new(Arc::new(Masks::new([secret])));
    let mut shown: Vec<u8> = text.as_bytes().chunks(size).flat_map(|piece| masker.push(piece)).collect();
    shown.extend(masker.finish());
    let mut shown = String::from_utf8(shown).unwrap();
    for two in [format!("***{end}***"), format!("***{}***", end.trim_end_matches(' '))] {
        while shown.contains(&two) {
            shown = shown.replace(&two, "***");
        }
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
