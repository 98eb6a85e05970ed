//! Follows a build to its end: what it waits for, then its log as it comes, under a heading for each step.

use crate::client::{Client, Failed};
use protocol::Status;
use protocol::build::{Build, WaitingFor};
use protocol::log::{Chunk, Stream};
use std::io::{IsTerminal as _, Write as _, stdout};
use std::time::Duration;
use uuid::Uuid;

const LOOK_EVERY: Duration = Duration::from_millis(250);
const LOOK_AGAIN: Duration = Duration::from_secs(1);
/// How long a board may be away.
const PATIENCE: Duration = Duration::from_secs(60);

enum Look {
    Over(Box<Build>),
    More,
    Nothing,
}

/// Colours, on a terminal alone.
#[derive(Clone, Copy, Debug)]
pub struct Paint(bool);

impl Paint {
    /// As standard output is: painted on a terminal, unless `NO_COLOR` is set.
    #[must_use]
    pub fn new() -> Self {
        Self(stdout().is_terminal() && std::env::var_os("NO_COLOR").is_none())
    }

    fn with(self, code: &str, text: &str) -> String {
        if self.0 { format!("\x1b[{code}m{text}\x1b[0m") } else { text.to_owned() }
    }

    /// For headings.
    #[must_use]
    pub fn bold(self, text: &str) -> String {
        self.with("1", text)
    }

    /// For what the worker itself says.
    #[must_use]
    pub fn dim(self, text: &str) -> String {
        self.with("2", text)
    }

    /// A status in its colour.
    #[must_use]
    pub fn status(self, status: Status) -> String {
        let code = match status {
            Status::Pending | Status::Running => "36",
            Status::Success => "32",
            Status::Failed | Status::TimedOut => "31",
            Status::Cancelled => "33",
        };
        self.with(code, status.as_str())
    }
}

impl Default for Paint {
    fn default() -> Self {
        Self::new()
    }
}

/// Prints a build's log as it comes.
#[derive(Debug)]
pub struct Follow<'a> {
    client: &'a Client,
    id: Uuid,
    seen: u64,
    step: String,
    at_line_start: bool,
    said: Option<WaitingFor>,
    paint: Paint,
    silent: bool,
}

impl<'a> Follow<'a> {
    /// Follows the build `id` from its beginning.
    #[must_use]
    pub fn new(client: &'a Client, id: Uuid) -> Self {
        Self {
            client,
            id,
            seen: 0,
            step: String::new(),
            at_line_start: true,
            said: None,
            paint: Paint::new(),
            silent: false,
        }
    }

    /// The same, without printing anything.
    #[must_use]
    pub fn silent(mut self) -> Self {
        self.silent = true;
        self
    }

    /// Prints what is stored now.
    ///
    /// # Errors
    ///
    /// If the board does not answer.
    pub async fn stored(&mut self) -> Result<(), Failed> {
        while self.page().await?.is_some() {}
        self.end_line();
        Ok(())
    }

    /// Prints the next page; `None` if nothing is new, else whether it is the log's end.
    async fn page(&mut self) -> Result<Option<bool>, Failed> {
        let page = self.client.log(self.id, self.seen).await?;
        if !self.silent {
            page.chunks.iter().for_each(|chunk| self.print(chunk));
        }
        let new = page.last_seq > self.seen;
        self.seen = self.seen.max(page.last_seq);
        Ok(new.then_some(page.complete))
    }

    /// Until the build is final and its log complete, or `enough` says so.
    ///
    /// # Errors
    ///
    /// If the board does not answer.
    pub async fn until(&mut self, enough: impl Fn(&Build) -> bool) -> Result<Build, Failed> {
        let mut silence = Duration::ZERO;
        loop {
            match self.look(&enough).await {
                Ok(Look::Over(build)) => return Ok(*build),
                Ok(Look::More) => silence = Duration::ZERO,
                Ok(Look::Nothing) => {
                    silence = Duration::ZERO;
                    tokio::time::sleep(LOOK_EVERY).await;
                }
                // A board that is being restarted comes back; the build goes on meanwhile.
                Err(Failed::Unreachable { .. } | Failed::Strange(_)) if silence < PATIENCE => {
                    silence += LOOK_AGAIN;
                    tokio::time::sleep(LOOK_AGAIN).await;
                }
                Err(failed) => return Err(failed),
            }
        }
    }

    /// The build is read before the page: a build that is final in it has no chunk that the page could miss.
    async fn look(&mut self, enough: impl Fn(&Build) -> bool) -> Result<Look, Failed> {
        let build = self.client.build(self.id).await?;
        if !self.silent {
            self.say_waiting(&build);
        }
        let page = self.page().await?;
        let whole = build.status.is_final() && page.unwrap_or(true);
        if whole || enough(&build) {
            self.end_line();
            return Ok(Look::Over(Box::new(build)));
        }
        Ok(if page.is_some() { Look::More } else { Look::Nothing })
    }

    fn say_waiting(&mut self, build: &Build) {
        if build.status != Status::Pending || self.said == build.waiting_for {
            return;
        }
        self.said = build.waiting_for;
        let why = match build.waiting_for {
            Some(WaitingFor::Capacity) | None => "a free worker",
            Some(WaitingFor::RunningLimit) => "another build of the workspace to end",
            Some(WaitingFor::Minutes) => "minutes that running builds have reserved",
            Some(WaitingFor::Billing) => "the workspace's plan",
            Some(WaitingFor::NoWorkerMatches) => "capacity: no worker has phoned in",
        };
        println!("{}", self.paint.dim(&format!("waiting for {why}")));
    }

    fn print(&mut self, chunk: &Chunk) {
        if chunk.step != self.step {
            self.end_line();
            self.step.clone_from(&chunk.step);
            println!("{}", self.paint.bold(&format!("── {} ", printable(chunk.step.as_bytes()))));
        }
        let text = printable(&chunk.bytes().unwrap_or_default());
        match chunk.stream {
            Stream::Stdout | Stream::Stderr => print!("{text}"),
            Stream::System => print!("{}", self.paint.dim(&text)),
        }
        if !text.is_empty() {
            self.at_line_start = text.ends_with('\n');
        }
        let _ = stdout().flush();
    }

    fn end_line(&mut self) {
        if !self.at_line_start {
            println!();
            self.at_line_start = true;
        }
    }
}

/// A build's output is a stranger's: no control character but tab and newline reaches the terminal.
fn printable(bytes: &[u8]) -> String {
    let text = String::from_utf8_lossy(bytes);
    text.chars().filter(|letter| !letter.is_control() || matches!(letter, '\n' | '\t')).collect()
}
