//! Before each of a step's commands its script writes a cue to both of its outputs, which says the command's number and is not
//! shown: so whoever reads them knows what was written before the command and what after it.
//!
//! A cue is drawn by lot for each step, so that no output is taken for one. A step that looks for its own can have its commands
//! shown too early, and nothing else: what is shown is the worker's own list.

use std::ops::ControlFlow;
use uuid::Uuid;

/// What no program writes by chance.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cue(String);

/// A control character that hardly anybody writes: only what begins with it is held until more comes.
const FIRST: char = '\u{1e}';
/// The digits of a command's number, hexadecimal.
const DIGITS: usize = 8;

impl Cue {
    /// A cue of its own for each `lot`.
    #[must_use]
    pub fn new(lot: Uuid) -> Self {
        Self(format!("{FIRST}{}", lot.simple()))
    }

    /// The cue of a command, which is numbered from 0, in a format of `printf`.
    #[must_use]
    pub fn format(&self, number: usize) -> String {
        self.numbered(number).replace(FIRST, "\\036")
    }

    fn numbered(&self, number: usize) -> String {
        format!("{}{number:0DIGITS$x}", self.0)
    }

    /// What `bytes` begin with: a cue and its number, or something else; continues if more must come to tell.
    fn at_begin_of(&self, bytes: &[u8]) -> ControlFlow<Option<usize>> {
        let Some(digits) = bytes.strip_prefix(self.0.as_bytes()) else {
            return if self.0.as_bytes().starts_with(bytes) {
                ControlFlow::Continue(())
            } else {
                ControlFlow::Break(None)
            };
        };
        let digits = &digits[..digits.len().min(DIGITS)];
        if !digits.iter().all(u8::is_ascii_hexdigit) {
            return ControlFlow::Break(None);
        }
        if digits.len() < DIGITS {
            return ControlFlow::Continue(());
        }
        let number = std::str::from_utf8(digits).ok().and_then(|digits| usize::from_str_radix(digits, 16).ok());
        ControlFlow::Break(number)
    }

    fn length(&self) -> usize {
        self.0.len() + DIGITS
    }
}

/// What a stream consists of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Piece {
    /// What was written; not empty.
    Bytes(Vec<u8>),
    /// The command of this number, from 0, begins.
    Command(usize),
}

/// Takes the cues out of one stream.
#[derive(Debug)]
pub(super) struct Cues {
    cue: Cue,
    /// The beginning of a cue whose rest is not read yet.
    begun: Vec<u8>,
}

impl Cues {
    pub(super) fn new(cue: Cue) -> Self {
        Self { cue, begun: Vec::new() }
    }

    /// What was read, and the commands that begin in it. The beginning of a cue at its end comes with what follows.
    pub(super) fn push(&mut self, bytes: &[u8]) -> Vec<Piece> {
        let read = [std::mem::take(&mut self.begun), bytes.to_vec()].concat();
        let (mut from, mut at, mut pieces) = (0, 0, Vec::new());
        while let Some(first) = read[at..].iter().position(|byte| char::from(*byte) == FIRST) {
            at += first;
            match self.cue.at_begin_of(&read[at..]) {
                ControlFlow::Break(None) => at += 1,
                ControlFlow::Break(Some(number)) => {
                    pieces.extend([Piece::Bytes(read[from..at].to_vec()), Piece::Command(number)]);
                    at += self.cue.length();
                    from = at;
                }
                ControlFlow::Continue(()) => {
                    self.begun = read[at..].to_vec();
                    break;
                }
            }
        }
        pieces.push(Piece::Bytes(read[from..read.len() - self.begun.len()].to_vec()));
        pieces.retain(|piece| !matches!(piece, Piece::Bytes(bytes) if bytes.is_empty()));
        pieces
    }

    /// What is left at the end of the stream.
    pub(super) fn finish(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.begun)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// The bytes in which `@` stands for the cue of command 10.
    fn with_cues(text: &str) -> Vec<u8> {
        text.replace('@', &Cue::new(Uuid::nil()).numbered(10)).into_bytes()
    }

    /// What becomes of these, with `@` for each command 10.
    fn read(written: &[Vec<u8>]) -> String {
        let mut cues = Cues::new(Cue::new(Uuid::nil()));
        let mut pieces: Vec<Piece> = written.iter().flat_map(|bytes| cues.push(bytes)).collect();
        pieces.push(Piece::Bytes(cues.finish()));
        let shown = pieces.into_iter().map(|piece| match piece {
            Piece::Bytes(bytes) => String::from_utf8(bytes).unwrap(),
            Piece::Command(10) => "@".into(),
            Piece::Command(other) => other.to_string(),
        });
        shown.collect()
    }

    #[test]
    fn cues_are_taken_out_and_all_else_stays() {
        for text in ["@one\n@two\nno newline@three\n", "@@one\n@", "", "\u{1e}@\u{1e}"] {
            assert_eq!(read(&[with_cues(text)]), text);
        }
    }

    #[test]
    fn what_only_looks_like_a_cue_is_output() {
        let (own, other) = (Cue::new(Uuid::nil()).0, Cue::new(Uuid::from_u128(1)).numbered(10));
        let unlike = [&other, &own[..9], &own, "a\u{1e}b\u{1e}", &format!("{own}0000000g"), &format!("{own}+000000a")];
        for text in unlike {
            assert_eq!(read(&[text.into(), b"\n".to_vec()]), format!("{text}\n"));
            assert_eq!(read(&[text.into()]), text);
        }
    }

    proptest! {
        #[test]
        fn it_does_not_matter_how_a_stream_is_cut(at in 0..140usize) {
            let text = "one@two\n@three\u{1e}@";
            let bytes = with_cues(text);
            let (first, second) = bytes.split_at(at.min(bytes.len()));
            prop_assert_eq!(read(&[first.to_vec(), second.to_vec()]), text);
        }
    }
}
