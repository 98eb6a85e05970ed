//! Tells a step's commands between what was written before each and what after it, of both outputs: the reader of each waits at
//! a command's cue for the other.

use super::cue::Cue;
use super::read::Sink;
use protocol::log::Stream;
use std::time::Duration;
use tokio::sync::watch;
use tokio::time::timeout;

/// How long one reader waits for the other. The script writes both cues at once; an output that has none goes elsewhere by
/// now (`exec >FILE`), and is not waited for again before it has one.
const PATIENCE: Duration = Duration::from_millis(500);

/// The commands of one step that runs.
#[derive(Debug)]
pub struct Commands {
    cue: Cue,
    lines: Vec<String>,
    sink: Sink,
    met: watch::Sender<Met>,
}

impl Commands {
    /// The commands of the step whose output goes to `sink`.
    #[must_use]
    pub fn new(cue: Cue, lines: Vec<String>, sink: Sink) -> Self {
        Self { cue, lines, sink, met: watch::Sender::new(Met::default()) }
    }

    /// What stands before each command in both outputs.
    #[must_use]
    pub fn cue(&self) -> &Cue {
        &self.cue
    }

    /// All that `stream` had before the command `number` was handed on; returns once the command is told.
    pub(super) async fn come(&self, stream: Stream, number: usize) {
        if number >= self.lines.len() {
            return;
        }
        self.met.send_modify(|met| met.come(stream, number));
        let mut met = self.met.subscribe();
        let is_met = timeout(PATIENCE, met.wait_for(|met| met.may_pass(stream, number))).await.is_ok();
        self.met.send_modify(|met| {
            if !is_met {
                met.lose_other(stream);
            }
            if met.tell(number) {
                self.sink.say(&format!("$ {}", self.lines[number].trim_end()));
            }
        });
    }

    /// `stream` has ended.
    pub(super) fn end(&self, stream: Stream) {
        self.met.send_modify(|met| met.end(stream));
    }
}

/// How far the readers are, in commands that have begun.
#[derive(Debug, Default)]
struct Met {
    stdout: Seen,
    stderr: Seen,
    told: usize,
}

#[derive(Debug, Default)]
struct Seen {
    begun: usize,
    /// It is not waited for.
    is_lost: bool,
}

impl Met {
    fn come(&mut self, stream: Stream, number: usize) {
        let (own, _) = self.both(stream);
        *own = Seen { begun: own.begun.max(number + 1), is_lost: false };
    }

    fn end(&mut self, stream: Stream) {
        self.both(stream).0.is_lost = true;
    }

    fn lose_other(&mut self, stream: Stream) {
        self.both(stream).1.is_lost = true;
    }

    /// Whether `stream`, which has come to the command, need not wait for the other.
    fn may_pass(&self, stream: Stream, number: usize) -> bool {
        let other = if stream == Stream::Stderr { &self.stdout } else { &self.stderr };
        self.told > number || other.is_lost || other.begun > number
    }

    /// Whether the command is to be told now, which it is once.
    fn tell(&mut self, number: usize) -> bool {
        let is_new = number >= self.told;
        self.told = self.told.max(number + 1);
        is_new
    }

    fn both(&mut self, stream: Stream) -> (&mut Seen, &mut Seen) {
        if stream == Stream::Stderr {
            (&mut self.stderr, &mut self.stdout)
        } else {
            (&mut self.stdout, &mut self.stderr)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const OUT: Stream = Stream::Stdout;
    const ERR: Stream = Stream::Stderr;

    #[test]
    fn whichever_comes_first_waits_for_the_other() {
        for (first, second) in [(OUT, ERR), (ERR, OUT)] {
            let mut met = Met::default();
            met.come(first, 0);
            assert!(!met.may_pass(first, 0));
            met.come(second, 0);
            assert!(met.may_pass(first, 0) && met.may_pass(second, 0));
        }
    }

    #[test]
    fn a_command_is_told_once_and_none_behind_a_later_one() {
        let mut met = Met::default();
        assert!(met.tell(0) && !met.tell(0));
        assert!(met.tell(2) && !met.tell(1) && met.tell(3));
    }

    #[test]
    fn one_that_went_elsewhere_is_not_waited_for_until_it_is_back() {
        let mut met = Met::default();
        met.come(OUT, 1);
        met.lose_other(OUT);
        assert!(met.may_pass(OUT, 1) && met.may_pass(OUT, 2));
        met.come(ERR, 2);
        met.come(OUT, 3);
        assert!(!met.may_pass(OUT, 3));
    }

    #[test]
    fn one_that_has_ended_is_not_waited_for() {
        let mut met = Met::default();
        met.end(OUT);
        met.come(ERR, 0);
        assert!(met.may_pass(ERR, 0));
    }
}
