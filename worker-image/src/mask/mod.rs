//! Keeps secret values out of the log, also where they come in pieces, line by line or encoded.
//!
//! A [`Masker`] belongs to one stream: it holds back the few bytes that may be the beginning of a secret until more
//! come or the stream ends.

mod forms;

use forms::forms;
use std::collections::BTreeSet;
use std::sync::Arc;

const MASK: &[u8] = b"***";

/// What is to be masked: secret values in all forms that we know of.
pub struct Masks {
    /// By first byte; longest first.
    by_first: Vec<Vec<Vec<u8>>>,
    longest: usize,
}

impl std::fmt::Debug for Masks {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Masks(***)")
    }
}

impl Masks {
    /// Masks for these values.
    #[must_use]
    pub fn new<'a>(values: impl IntoIterator<Item = &'a str>) -> Self {
        let forms: BTreeSet<Vec<u8>> = values.into_iter().flat_map(forms).collect();
        let longest = forms.iter().map(Vec::len).max().unwrap_or(0);
        let mut by_first = vec![Vec::new(); 256];
        for form in forms {
            by_first[usize::from(form[0])].push(form);
        }
        for same_first in &mut by_first {
            same_first.sort_by_key(|form: &Vec<u8>| std::cmp::Reverse(form.len()));
        }
        Self { by_first, longest }
    }

    /// `text` with all secrets masked.
    #[must_use]
    pub fn text(self: &Arc<Self>, text: &str) -> String {
        let mut masker = Masker::new(Arc::clone(self));
        let mut masked = masker.push(text.as_bytes());
        masked.extend(masker.finish());
        String::from_utf8_lossy(&masked).into_owned()
    }

    fn at(&self, rest: &[u8]) -> At {
        let mut found = At::Nothing;
        for form in &self.by_first[usize::from(rest[0])] {
            if rest.len() < form.len() && form.starts_with(rest) {
                return At::Perhaps;
            }
            if found == At::Nothing && rest.starts_with(form) {
                found = At::Secret(form.len());
            }
        }
        found
    }

    /// As `at`, where no more bytes will come.
    fn at_end(&self, rest: &[u8]) -> At {
        let whole = self.by_first[usize::from(rest[0])].iter().find(|form| rest.starts_with(form));
        whole.map_or(At::Nothing, |form| At::Secret(form.len()))
    }
}

#[derive(PartialEq, Eq)]
enum At {
    Nothing,
    Secret(usize),
    Perhaps,
}

/// Masks one stream of bytes.
#[derive(Debug)]
pub struct Masker {
    masks: Arc<Masks>,
    held: Vec<u8>,
    /// How many of the first held bytes belong to a secret whose mask is written already.
    covered: usize,
}

impl Masker {
    /// A masker at the beginning of a stream.
    #[must_use]
    pub fn new(masks: Arc<Masks>) -> Self {
        Self { masks, held: Vec::new(), covered: 0 }
    }

    /// Takes the next bytes; returns what may be shown by now.
    pub fn push(&mut self, bytes: &[u8]) -> Vec<u8> {
        if self.masks.longest == 0 {
            return bytes.to_vec();
        }
        self.held.extend_from_slice(bytes);
        self.shown(false)
    }

    /// The stream has ended: returns the rest.
    pub fn finish(&mut self) -> Vec<u8> {
        self.shown(true)
    }

    fn shown(&mut self, ended: bool) -> Vec<u8> {
        let mut shown = Vec::with_capacity(self.held.len());
        let mut at = 0;
        while at < self.held.len() {
            let rest = &self.held[at..];
            match if ended { self.masks.at_end(rest) } else { self.masks.at(rest) } {
                At::Perhaps => break,
                At::Secret(length) => {
                    if at >= self.covered {
                        shown.extend_from_slice(MASK);
                    }
                    self.covered = self.covered.max(at + length);
                }
                At::Nothing => {}
            }
            if at >= self.covered {
                shown.push(self.held[at]);
            }
            at += 1;
        }
        self.held.drain(..at);
        self.covered = self.covered.saturating_sub(at);
        shown
    }
}

#[cfg(test)]
mod tests {
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
    fn common_encodings_are_masked() {
        let secret = "s3cret/pass word+1";
        let basic = STANDARD.encode(format!("user:{secret}"));
        for form in [
            STANDARD.encode(secret),
            "s3cret%2Fpass%20word%2B1".into(),
            "s3cret%2Fpass+word%2B1".into(),
            "s3cret%2fpass%20word%2b1".into(),
            hex::encode(secret),
        ] {
            assert_eq!(masked(&[secret], &[&form]), "***", "{form}");
        }
        assert!(masked(&[secret], &[&basic]).contains("***"), "{basic}");
    }

    proptest! {
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
