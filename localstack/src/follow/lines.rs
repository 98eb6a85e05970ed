//! A build for people: each line of its log behind the name of its step; on a terminal, below them, one line that says what
//! it is at and for how long.

use super::status::now_at;
use super::view::View;
use crate::clean;
use crate::paint::{Paint, fit, width};
use crate::screen::{self, Screen};
use crate::spell::{clock, now};
use protocol::Status;
use protocol::build::Build;
use protocol::log::{Chunk, Stream};
use std::io::{self, Write};

/// The longest line that is waited for; a longer one is broken.
const LINE_MAX_BYTES: usize = 64 * 1024;
/// The longest name of a step in front of its lines.
const NAME_MAX: usize = 20;
const SPINNER: [&str; 10] = ["⠋", "⠙", "⠹", "⠸", "⠼", "⠴", "⠦", "⠧", "⠇", "⠏"];
const ERASE: &str = "\r\x1b[2K";

/// How wide the terminal is now: people resize it.
type Columns = fn() -> Option<usize>;

/// Shows a build in lines.
#[derive(Debug)]
pub struct Lines<W: Write> {
    out: W,
    paint: Paint,
    live: Option<Columns>,
    build: Option<Build>,
    step: Option<String>,
    unfinished: Vec<Unfinished>,
    said: String,
    drawn: String,
    ticks: usize,
}

/// What a stream of a step has written since its last newline.
#[derive(Debug)]
struct Unfinished {
    step: String,
    stream: Stream,
    bytes: Vec<u8>,
}

impl<W: Write> Lines<W> {
    /// As the screen has it.
    #[must_use]
    pub fn new(out: W, screen: Screen) -> Self {
        Self::with(out, screen.paint, screen.is_live.then_some(screen::columns))
    }

    fn with(out: W, paint: Paint, live: Option<Columns>) -> Self {
        let (said, drawn) = (String::new(), String::new());
        Self { out, paint, live, build: None, step: None, unfinished: Vec::new(), said, drawn, ticks: 0 }
    }

    /// Writes a line above the one that says what the build is at.
    fn line(&mut self, text: &str) -> io::Result<()> {
        self.erase()?;
        writeln!(self.out, "{text}")
    }

    fn erase(&mut self) -> io::Result<()> {
        if !self.drawn.is_empty() {
            self.drawn.clear();
            write!(self.out, "{ERASE}")?;
        }
        Ok(())
    }

    fn draw(&mut self) -> io::Result<()> {
        if let (Some(columns), Some(build)) = (self.live.and_then(|columns| columns()), &self.build) {
            let since = build.started_at.unwrap_or(build.created_at);
            let seconds = u64::try_from((now() - since).whole_seconds()).unwrap_or(0);
            let spinner = SPINNER[self.ticks % SPINNER.len()];
            let line = format!("{spinner} {} · {}", now_at(build, self.step.as_deref()), clock(seconds));
            let line = self.paint.bold(&fit(&line, columns.saturating_sub(1)));
            if line != self.drawn {
                write!(self.out, "{ERASE}{line}")?;
                self.drawn = line;
            }
        }
        self.out.flush()
    }

    /// Says what has changed, where it can't be written over: on what is not a terminal.
    fn say(&mut self) -> io::Result<()> {
        let Some(build) = self.build.as_ref().filter(|_| self.live.is_none()) else { return Ok(()) };
        let words = match build.status {
            Status::Pending => now_at(build, None),
            Status::Running if build.cancel_requested => now_at(build, None),
            Status::Running => "running".into(),
            Status::Success | Status::Failed | Status::TimedOut | Status::Cancelled => return Ok(()),
        };
        if words != self.said {
            self.line(&words)?;
            self.said = words;
        }
        Ok(())
    }

    /// Only a build that runs has a log, so a first chunk says as well that it runs: looks at the build come more seldom.
    fn begin(&mut self) -> io::Result<()> {
        if let Some(build) = self.build.as_mut().filter(|build| build.status == Status::Pending) {
            build.status = Status::Running;
            build.started_at = Some(now());
            self.say()?;
        }
        Ok(())
    }

    /// Takes what one stream of a step wrote; writes the lines that end in it.
    fn take(&mut self, chunk: &Chunk) -> io::Result<()> {
        let at = self.unfinished.iter().position(|line| line.step == chunk.step && line.stream == chunk.stream);
        let mut bytes = at.map(|at| self.unfinished.swap_remove(at).bytes).unwrap_or_default();
        let written = chunk.bytes().unwrap_or_default();
        // The worker's own words begin with a newline where a step left a line unfinished, which has one here already.
        let begins =
            if chunk.stream == Stream::System && bytes.is_empty() { written.strip_prefix(b"\n") } else { None };
        bytes.extend(begins.unwrap_or(&written));
        let mut rest = &bytes[..];
        while let Some(end) = rest.iter().position(|byte| *byte == b'\n') {
            self.output(&chunk.step, chunk.stream, &rest[..end])?;
            rest = &rest[end + 1..];
        }
        if rest.len() > LINE_MAX_BYTES {
            self.output(&chunk.step, chunk.stream, rest)?;
        } else if !rest.is_empty() {
            self.unfinished.push(Unfinished { step: chunk.step.clone(), stream: chunk.stream, bytes: rest.to_vec() });
        }
        Ok(())
    }

    fn output(&mut self, step: &str, stream: Stream, bytes: &[u8]) -> io::Result<()> {
        let text = clean::line(bytes, self.paint.0);
        let text = match stream {
            Stream::Stdout | Stream::Stderr => text,
            Stream::System => self.paint.bold(&text),
        };
        let mark = self.mark(step);
        self.line(format!("{mark} {text}").trim_end())
    }

    /// The name of a step, as wide as the widest, in its colour.
    fn mark(&self, step: &str) -> String {
        let names = self.build.as_ref().map(|build| &build.step_names[..]).unwrap_or_default();
        let wide = names.iter().map(|name| width(&clean::plain(name))).chain([5]).max().unwrap_or(5).min(NAME_MAX);
        let name = fit(&clean::plain(step), wide);
        let fill = " ".repeat(wide.saturating_sub(width(&name)));
        let at = names.iter().position(|name| name == step).map_or(0, |at| at + 1);
        self.paint.step(at, &format!("{name}{fill} │"))
    }

    /// Before another step, or the worker, speaks: what has not ended by now won't any more.
    fn finish(&mut self, step: &str, stream: Stream) -> io::Result<()> {
        let goes_on = |line: &Unfinished| line.step == step && (line.stream == stream || stream != Stream::System);
        let (kept, done) = std::mem::take(&mut self.unfinished).into_iter().partition(goes_on);
        self.unfinished = kept;
        self.write(done)
    }

    fn write(&mut self, lines: Vec<Unfinished>) -> io::Result<()> {
        lines.iter().try_for_each(|line| self.output(&line.step, line.stream, &line.bytes))
    }
}

impl<W: Write + Send> View for Lines<W> {
    fn build(&mut self, build: &Build) -> io::Result<()> {
        // A look that was begun before the first chunk came may know less than that does.
        let knows_less = build.status == Status::Pending;
        if !knows_less || self.build.as_ref().is_none_or(|known| known.status == Status::Pending) {
            self.build = Some(build.clone());
        }
        self.say()?;
        self.draw()
    }

    fn chunk(&mut self, chunk: &Chunk) -> io::Result<()> {
        self.begin()?;
        if self.step.as_deref() != Some(&chunk.step) || chunk.stream == Stream::System {
            self.finish(&chunk.step, chunk.stream)?;
            self.step = Some(chunk.step.clone());
        }
        self.take(chunk)?;
        self.draw()
    }

    fn note(&mut self, text: &str) -> io::Result<()> {
        self.line(&self.paint.dim(&format!("callboard: {}", clean::plain(text))))?;
        self.draw()
    }

    fn tick(&mut self) -> io::Result<()> {
        self.ticks = self.ticks.wrapping_add(1);
        if self.live.is_some() { self.draw() } else { Ok(()) }
    }

    fn end(&mut self) -> io::Result<()> {
        let unfinished = std::mem::take(&mut self.unfinished);
        self.write(unfinished)?;
        self.erase()?;
        self.live = None;
        self.out.flush()
    }
}

/// Whatever ends it, nothing that was to be written over stays on the terminal.
impl<W: Write> Drop for Lines<W> {
    fn drop(&mut self) {
        let _ = self.erase().and_then(|()| self.out.flush());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn build(status: &str) -> Build {
        let build = json!({ "id": uuid::Uuid::nil(), "pipeline": "app", "status": status, "repository": "", "ref": "main",
            "created_at": "2026-12-01T00:00:00Z", "step_names": ["compile", "test"], "version": 1, "position": 2,
            "waiting_for": "capacity" });
        serde_json::from_value(build).unwrap()
    }

    fn shown(paint: bool, live: Option<Columns>, play: impl Fn(&mut Lines<&mut Vec<u8>>)) -> String {
        let mut out = Vec::new();
        let mut lines = Lines::with(&mut out, Paint(paint), live);
        play(&mut lines);
        lines.end().unwrap();
        drop(lines);
        String::from_utf8(out).unwrap()
    }

    fn chunk(seq: u64, step: &str, stream: Stream, text: &[u8]) -> Chunk {
        Chunk::new(seq, step, stream, 0, text)
    }

    #[test]
    fn lines_are_whole_however_they_were_cut_and_streams_do_not_mix() {
        let text = shown(false, None, |lines| {
            lines.build(&build("pending")).unwrap();
            lines.build(&build("pending")).unwrap();
            lines.build(&build("running")).unwrap();
            lines.chunk(&chunk(1, "clone", Stream::System, b"Cloning\n")).unwrap();
            lines.chunk(&chunk(2, "compile", Stream::Stdout, b"one\ntw")).unwrap();
            lines.chunk(&chunk(3, "compile", Stream::Stderr, b"warning\n")).unwrap();
            lines.chunk(&chunk(4, "compile", Stream::Stdout, b"o \xf0\x9f")).unwrap();
            lines.chunk(&chunk(5, "compile", Stream::Stdout, b"\x98\x80\nno newline")).unwrap();
            lines.chunk(&chunk(6, "test", Stream::Stdout, b"10%\r100%\n\nend")).unwrap();
            lines.chunk(&chunk(7, "test", Stream::System, b"\nexit code 0\n")).unwrap();
        });
        let expected = "waiting for a free worker, 2 ahead\nrunning\nclone   │ Cloning\ncompile │ one\ncompile │ warning\n\
                        compile │ two 😀\ncompile │ no newline\ntest    │ 100%\ntest    │\ntest    │ end\ntest    │ exit code 0\n";
        assert_eq!(text, expected);
    }

    #[test]
    fn an_empty_line_within_a_command_is_shown() {
        let text = shown(false, None, |lines| {
            lines.chunk(&chunk(1, "test", Stream::Stderr, b"no newline")).unwrap();
            lines.chunk(&chunk(2, "test", Stream::System, b"\n$ one\n\ntwo\n")).unwrap();
        });
        assert_eq!(text, "test  │ no newline\ntest  │ $ one\ntest  │\ntest  │ two\n");
    }

    #[test]
    fn a_build_runs_before_its_log_begins_and_does_not_wait_again() {
        let text = shown(false, None, |lines| {
            lines.build(&build("pending")).unwrap();
            lines.chunk(&chunk(1, "clone", Stream::System, b"Cloning\n")).unwrap();
            lines.build(&build("pending")).unwrap();
            lines.build(&build("running")).unwrap();
            lines.chunk(&chunk(2, "compile", Stream::Stdout, b"one\n")).unwrap();
        });
        let expected = "waiting for a free worker, 2 ahead\nrunning\nclone   │ Cloning\ncompile │ one\n";
        assert_eq!(text, expected);
    }

    #[test]
    fn a_line_without_end_is_broken_so_that_memory_stays_bounded() {
        let text = shown(false, None, |lines| {
            (1..=40).for_each(|seq| lines.chunk(&chunk(seq, "test", Stream::Stdout, &[b'x'; 4096])).unwrap());
        });
        assert_eq!(text.lines().count(), 3);
        assert_eq!(text.matches('x').count(), 40 * 4096);
    }

    #[test]
    fn on_a_terminal_the_last_line_is_written_over_and_gone_at_the_end() {
        let text = shown(true, Some(|| Some(30)), |lines| {
            lines.build(&build("pending")).unwrap();
            lines.chunk(&chunk(1, "test", Stream::Stdout, b"\x1b[31mred\x1b[2J\n")).unwrap();
            lines.tick().unwrap();
        });
        assert!(text.starts_with("\r\x1b[2K\x1b[1m⠋ waiting for a free worker,…"), "{text:?}");
        assert!(text.contains("\r\x1b[2K\x1b[34mtest    │\x1b[0m \x1b[31mred\x1b[0m\n"), "{text:?}");
        assert!(text.ends_with(ERASE) && !text.contains("\x1b[2J"), "{text:?}");
    }

    #[test]
    fn one_that_is_let_go_of_leaves_no_line_behind_either() {
        let mut out = Vec::new();
        let mut lines = Lines::with(&mut out, Paint(false), Some(|| Some(30)));
        lines.build(&build("pending")).unwrap();
        drop(lines);
        let text = String::from_utf8(out).unwrap();
        assert!(text.contains("waiting") && text.ends_with(ERASE), "{text:?}");
    }
}
