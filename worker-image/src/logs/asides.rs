//! Lines of the worker's own that come while a step writes, such as what the network refuses: they wait for the end of the
//! step's line, so that none is cut in two, but not for ever.

use protocol::log::Stream;
use std::sync::Arc;

/// How long a step within a line must write nothing, once a line waits, before it is taken to wait for something: a prompt.
const SILENCE_MS: u64 = 500;
/// The longest wait, also where the step goes on and on without a newline, or a part of its line is held back.
const WAIT_MAX_MS: u64 = 10_000;

/// Where a stream is in its line.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Place {
    /// At the beginning of one.
    #[default]
    Begin,
    /// Within one.
    Within,
    /// Within one that is shown in part; more of it was read and is held back, its newline perhaps.
    Held,
}

/// A line that waits.
#[derive(Debug)]
pub(super) struct Aside {
    pub(super) step: Arc<str>,
    /// When it came, in milliseconds after the claim.
    pub(super) at_ms: u64,
    pub(super) line: Vec<u8>,
}

/// The lines that wait, and what for.
#[derive(Debug, Default)]
pub(super) struct Asides {
    waiting: Vec<Aside>,
    stdout: Place,
    stderr: Place,
    heard_at_ms: u64,
}

impl Asides {
    pub(super) fn push(&mut self, aside: Aside) {
        self.waiting.push(aside);
    }

    /// After how many bytes of what `stream` writes now no stream is within a line. `None` if nothing waits, or nowhere.
    pub(super) fn gap(&self, stream: Stream, bytes: &[u8]) -> Option<usize> {
        let other = match stream {
            Stream::Stdout => self.stderr,
            Stream::Stderr => self.stdout,
            Stream::System => Place::Begin,
        };
        if self.waiting.is_empty() || other != Place::Begin {
            return None;
        }
        bytes.iter().position(|byte| *byte == b'\n').map(|newline| newline + 1)
    }

    /// Something was read of `stream`, which is at `place` since.
    pub(super) fn heard(&mut self, stream: Stream, place: Place, at_ms: u64) {
        match stream {
            Stream::Stdout => self.stdout = place,
            Stream::Stderr => self.stderr = place,
            Stream::System => return,
        }
        self.heard_at_ms = at_ms;
    }

    /// When those that wait are to be told, in milliseconds after the claim, unless more is heard. `None` if none waits.
    pub(super) fn due_at_ms(&self) -> Option<u64> {
        let first = self.waiting.first()?;
        let latest = first.at_ms + WAIT_MAX_MS;
        Some(match self.stdout.max(self.stderr) {
            Place::Begin => first.at_ms,
            Place::Within => latest.min(first.at_ms.max(self.heard_at_ms) + SILENCE_MS),
            Place::Held => latest,
        })
    }

    /// All that wait, in the order in which they came; none is left.
    pub(super) fn take(&mut self) -> Vec<Aside> {
        std::mem::take(&mut self.waiting)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// When what was said at 1000 ms is due, after this was heard.
    fn check(heard: &[(Stream, Place, u64)], expected: Option<u64>) {
        let mut asides = Asides::default();
        asides.push(Aside { step: "test".into(), at_ms: 1000, line: b"refused\n".to_vec() });
        heard.iter().for_each(|(stream, place, at_ms)| asides.heard(*stream, *place, *at_ms));
        assert_eq!(asides.due_at_ms(), expected);
        assert_eq!(asides.take().len(), 1);
        assert_eq!(asides.due_at_ms(), None);
    }

    #[test]
    fn between_lines_nothing_waits() {
        check(&[], Some(1000));
        check(&[(Stream::Stdout, Place::Within, 900), (Stream::Stdout, Place::Begin, 1100)], Some(1000));
    }

    #[test]
    fn within_a_line_of_either_stream_it_waits_until_the_step_is_silent() {
        check(&[(Stream::Stdout, Place::Within, 1200)], Some(1700));
        check(&[(Stream::Stderr, Place::Within, 1200), (Stream::Stdout, Place::Begin, 1300)], Some(1800));
    }

    #[test]
    fn a_step_that_was_silent_before_has_time_to_answer() {
        check(&[(Stream::Stdout, Place::Within, 3)], Some(1500));
    }

    #[test]
    fn nothing_waits_for_ever() {
        check(&[(Stream::Stdout, Place::Within, 10_500)], Some(11_000));
        check(&[(Stream::Stdout, Place::Within, 10_499)], Some(10_999));
        check(&[(Stream::Stdout, Place::Held, 1200)], Some(11_000));
        check(&[(Stream::Stdout, Place::Held, 1200), (Stream::Stderr, Place::Within, 1300)], Some(11_000));
    }

    #[test]
    fn the_gap_is_behind_the_first_newline_while_the_other_stream_is_between_lines() {
        let mut asides = Asides::default();
        assert_eq!(asides.gap(Stream::Stdout, b"a\n"), None, "nothing waits");
        asides.push(Aside { step: "test".into(), at_ms: 1, line: Vec::new() });
        assert_eq!(asides.gap(Stream::Stdout, b"a\nb\n"), Some(2));
        assert_eq!(asides.gap(Stream::Stdout, b"ab"), None);
        asides.heard(Stream::Stderr, Place::Within, 1);
        assert_eq!(asides.gap(Stream::Stdout, b"a\nb\n"), None);
        assert_eq!(asides.gap(Stream::Stderr, b"\n"), Some(1));
    }
}
