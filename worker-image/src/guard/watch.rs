//! Watches one sandbox until it is over: hears the worker, counts to the fence, ends it where that is due.

use super::ending::{self, Ending};
use super::lines::Lines;
use super::measure::Measure;
use crate::clock::Boot;
use crate::isolation::Exceeded;
use crate::isolation::cgroup::Group;
use crate::isolation::plan::{Orders, Report, Word};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use std::fs::File;
use std::io::{self, Read as _};
use std::os::fd::AsFd as _;
use std::os::unix::process::ExitStatusExt as _;
use std::process::{Child, ExitStatus};
use std::time::Duration;

/// The longest wait: `poll` stands still in a suspend, the fence does not; and the disk is measured on another thread.
const WAIT_MAX: Duration = Duration::from_millis(250);

pub(super) struct Watch {
    sandbox: Child,
    lines: Lines,
    /// What bubblewrap tells; its end is bubblewrap's end.
    status: File,
    told: Vec<u8>,
    group: Option<Group>,
    measure: Measure,
    fence_at: Boot,
    kill_grace: Duration,
    ending: Option<Ending>,
    exit: Option<ExitStatus>,
}

impl Watch {
    pub(super) fn new(orders: &Orders, sandbox: Child, lines: Lines, status: File, measure: Measure) -> Self {
        let kill_grace = Duration::from_millis(orders.kill_grace_ms);
        let (group, fence_at) = (orders.group.clone(), orders.fence_at);
        Self {
            sandbox,
            lines,
            status,
            told: Vec::new(),
            group,
            measure,
            fence_at,
            kill_grace,
            ending: None,
            exit: None,
        }
    }

    pub(super) fn until_it_is_over(&mut self) -> io::Result<()> {
        while self.exit.is_none() {
            let (worker_spoke, sandbox_spoke) = self.wait()?;
            if sandbox_spoke && self.hear_sandbox()? {
                self.exit = Some(self.sandbox.wait()?);
                break;
            }
            if worker_spoke {
                self.hear_worker();
            }
            self.end_what_is_due();
            self.exit = self.sandbox.try_wait()?;
        }
        Ok(())
    }

    /// The limit that it met. To be asked before the group is gone.
    pub(super) fn exceeded(&self) -> Option<Exceeded> {
        let (disk, memory) = (self.measure.is_over(), self.group.as_ref().is_some_and(Group::ran_out_of_memory));
        disk.then_some(Exceeded::Disk).or(memory.then_some(Exceeded::Memory))
    }

    pub(super) fn report(&self, started: bool) -> Report {
        let code = |exit: ExitStatus| exit.code().or(exit.signal().map(|signal| 128 + signal));
        let fenced = self.ending.is_some_and(|ending| ending.fenced);
        Report { started, exit_code: self.exit.and_then(code), exceeded: None, fenced, trouble: None }
    }

    fn wait(&self) -> io::Result<(bool, bool)> {
        let due = self.ending.map_or(self.fence_at, |ending| ending.kill_at);
        let wait = due.since(Boot::now()).clamp(Duration::from_millis(1), WAIT_MAX);
        let wait = PollTimeout::try_from(wait).unwrap_or(PollTimeout::ZERO);
        let mut of_sandbox = [PollFd::new(self.status.as_fd(), PollFlags::POLLIN)].to_vec();
        if !self.lines.is_closed {
            of_sandbox.push(PollFd::new(self.lines.as_fd(), PollFlags::POLLIN));
        }
        match poll(&mut of_sandbox, wait) {
            Ok(_) | Err(nix::errno::Errno::EINTR) => {}
            Err(error) => return Err(error.into()),
        }
        let spoke = |fd: Option<&PollFd<'_>>| fd.and_then(PollFd::any).unwrap_or(false);
        Ok((spoke(of_sandbox.get(1)), spoke(of_sandbox.first())))
    }

    /// Returns whether bubblewrap is over.
    fn hear_sandbox(&mut self) -> io::Result<bool> {
        let mut part = [0; 1024];
        let length = self.status.read(&mut part)?;
        self.told.extend_from_slice(&part[..length]);
        Ok(length == 0)
    }

    fn hear_worker(&mut self) {
        for word in self.lines.words() {
            match word {
                Word::FenceAt(at) => self.fence_at = self.fence_at.max(at),
                Word::Terminate => self.begin_to_end(false),
                Word::Kill => self.kill(),
            }
        }
        if self.lines.is_closed {
            self.begin_to_end(false);
        }
    }

    fn end_what_is_due(&mut self) {
        // Whoever has filled the disk has no use for a grace.
        if self.measure.is_over() {
            self.kill();
        }
        match self.ending {
            None if self.fence_at.has_come() => self.begin_to_end(true),
            Some(ending) if ending.kill_at.has_come() => self.kill(),
            None | Some(_) => {}
        }
    }

    fn begin_to_end(&mut self, fenced: bool) {
        if self.ending.is_some() {
            return;
        }
        self.ending = Some(Ending::begin(self.kill_grace, fenced));
        match self.first() {
            Some(first) => ending::terminate(first),
            None => self.kill(),
        }
    }

    fn kill(&self) {
        ending::kill(self.first(), self.bubblewrap());
        self.group.iter().for_each(Group::kill);
    }

    fn bubblewrap(&self) -> i32 {
        i32::try_from(self.sandbox.id()).unwrap_or(0)
    }

    /// The sandbox's first process, as this host knows it: bubblewrap tells it once it is there.
    fn first(&self) -> Option<i32> {
        let mut told = serde_json::Deserializer::from_slice(&self.told).into_iter::<serde_json::Value>();
        told.find_map(|value| value.ok()?.get("child-pid")?.as_i64()).and_then(|pid| i32::try_from(pid).ok())
    }
}
