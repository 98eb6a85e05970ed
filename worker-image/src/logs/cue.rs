//! A command is shown on a line of its own, whatever its step wrote before: the script puts a cue in front of it, which
//! becomes a newline where one is missing, and else nothing.
//!
//! A cue is drawn by lot for each step, so that no output is taken for one.

use uuid::Uuid;

/// What no program writes by chance.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cue(String);

/// A control character that hardly anybody writes: only what begins with it is held until more comes.
const FIRST: char = '\u{1e}';

impl Cue {
    /// A cue of its own for each `lot`.
    #[must_use]
    pub fn new(lot: Uuid) -> Self {
        Self(format!("{FIRST}{}", lot.simple()))
    }

    /// The cue in a format of `printf`.
    #[must_use]
    pub fn format(&self) -> String {
        self.0.replace(FIRST, "\\036")
    }
}

/// Takes the cues out of one stream.
#[derive(Debug)]
pub(super) struct Cues {
    cue: Cue,
    /// The beginning of a cue whose rest is not read yet.
    begun: Vec<u8>,
    within_line: bool,
}

impl Cues {
    pub(super) fn new(cue: Cue) -> Self {
        Self { cue, begun: Vec::new(), within_line: false }
    }

    /// What was read, without its cues. The beginning of one at its end comes with what follows.
    pub(super) fn push(&mut self, bytes: &[u8]) -> Vec<u8> {
        let cue = self.cue.0.clone().into_bytes();
        let read = [std::mem::take(&mut self.begun), bytes.to_vec()].concat();
        let (mut rest, mut out) = (&read[..], Vec::with_capacity(read.len()));
        while let Some(at) = rest.iter().position(|byte| *byte == cue[0]) {
            self.take(&rest[..at], &mut out);
            rest = &rest[at..];
            if let Some(after) = rest.strip_prefix(&cue[..]) {
                let newline: &[u8] = if self.within_line { b"\n" } else { b"" };
                self.take(newline, &mut out);
                rest = after;
            } else if cue.starts_with(rest) {
                self.begun = rest.to_vec();
                return out;
            } else {
                self.take(&rest[..1], &mut out);
                rest = &rest[1..];
            }
        }
        self.take(rest, &mut out);
        out
    }

    /// What is left at the end of the stream.
    pub(super) fn finish(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.begun)
    }

    fn take(&mut self, bytes: &[u8], out: &mut Vec<u8>) {
        if let Some(last) = bytes.last() {
            self.within_line = *last != b'\n';
        }
        out.extend_from_slice(bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// What becomes of pieces in which `@` stands for the cue.
    fn read(pieces: &[&str]) -> String {
        let cue = Cue::new(Uuid::nil());
        let mut cues = Cues::new(cue.clone());
        let mut out: Vec<u8> =
            pieces.iter().flat_map(|piece| cues.push(piece.replace('@', &cue.0).as_bytes())).collect();
        out.extend(cues.finish());
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn a_cue_is_a_newline_where_one_is_missing_and_nothing_elsewhere() {
        assert_eq!(read(&["@$ one\n@$ two\nno newline@$ three\n"]), "$ one\n$ two\nno newline\n$ three\n");
        assert_eq!(read(&["no newline", "@$ one\n", "\n", "@$ two\n"]), "no newline\n$ one\n\n$ two\n");
        assert_eq!(read(&["@@$ one\n@"]), "$ one\n");
    }

    #[test]
    fn what_only_looks_like_a_cue_is_output() {
        let other = Cue::new(Uuid::from_u128(1)).0;
        assert_eq!(read(&["a\u{1e}b", &other, "\u{1e}", "c\u{1e}"]), format!("a\u{1e}b{other}\u{1e}c\u{1e}"));
        let begun = &Cue::new(Uuid::nil()).0[..9];
        assert_eq!(read(&[begun, "\n"]), format!("{begun}\n"));
        assert_eq!(read(&[begun]), begun);
    }

    proptest! {
        #[test]
        fn it_does_not_matter_how_a_stream_is_cut(at in 0..90usize) {
            let cue = Cue::new(Uuid::nil());
            let text = "one@two\n@three\u{1e}@".replace('@', &cue.0);
            let (first, second) = text.as_bytes().split_at(at.min(text.len()));
            let mut cues = Cues::new(cue);
            let out = [cues.push(first), cues.push(second), cues.finish()].concat();
            prop_assert_eq!(out, b"one\ntwo\nthree\x1e\n");
        }
    }
}
