//! A process per task that outlives the worker and ends the sandbox when the worker can't.
//!
//! The worker holds one end of a socket, the guard the other. The guard starts bubblewrap, tells when it is over, and
//! ends all processes of the sandbox when it is told to, when the socket closes (the worker died), or when the fence is
//! reached (the worker is stopped, or cut off from the board). It has one thread, since bubblewrap dies with the
//! *thread* that started it; and a session of its own, so that Ctrl-C in the worker's terminal is not for it.

pub mod client;
mod container;
mod ending;
pub mod enter;
mod lines;
mod measure;
mod watch;

use crate::clock::Boot;
use crate::isolation::bubblewrap::first_process;
use crate::isolation::cgroup::Group;
use crate::isolation::plan::{Errand, Orders, Report};
use crate::mark::Mark;
use lines::Lines;
use measure::Measure;
use nix::fcntl::{FcntlArg, FdFlag, OFlag, fcntl};
use nix::sys::memfd::{MFdFlags, memfd_create};
use nix::sys::prctl::set_child_subreaper;
use nix::unistd::{dup2_stderr, dup2_stdin, dup2_stdout, pipe2, setsid};
use std::fs::{File, OpenOptions};
use std::io::{self, Seek as _, Write as _};
use std::os::fd::{AsFd as _, AsRawFd as _, OwnedFd};
use std::os::unix::net::UnixStream;
use std::process::{Child, Command, Stdio};
use watch::Watch;

/// Guards one sandbox: the whole life of the process `callboard-worker guard`. The socket is its standard input.
///
/// # Errors
///
/// If the socket is broken. All other trouble is told through it.
pub fn run() -> io::Result<()> {
    // Fails only for the first process of a group, which has a session's worth of distance already.
    setsid().ok();
    let socket = UnixStream::from(io::stdin().as_fd().try_clone_to_owned()?);
    dup2_stdin(File::open("/dev/null")?)?;
    let mut lines = Lines::new(socket.try_clone()?);
    let done = lines.errand().and_then(|errand| match errand {
        Errand::Sandbox(orders) => guard(&orders, lines),
        Errand::Container(orders) => container::guard(*orders, lines),
    });
    let report = match done {
        Ok(report) => report,
        Err(error) => Report { trouble: Some(error.to_string()), ..Report::default() },
    };
    let mut line = serde_json::to_vec(&report)?;
    line.push(b'\n');
    // A worker that is gone reads nothing.
    (&socket).write_all(&line).ok();
    Ok(())
}

fn guard(orders: &Orders, lines: Lines) -> io::Result<Report> {
    if orders.fence_at.has_come() {
        return Ok(Report { fenced: true, ..Report::default() });
    }
    let (plan, mark) = (plan_file(orders)?, Mark::open(&orders.ended_mark)?);
    mark.set(None)?;
    // Whoever loses its parent in the sandbox, bubblewrap itself, is ours to end.
    set_child_subreaper(true)?;
    let (status, status_of_sandbox) = pipe2(OFlag::O_CLOEXEC)?;
    orders.group.as_ref().map_or(Ok(()), |group| group.make(&orders.limits))?;
    let sandbox = start(orders, &plan, status_of_sandbox)?;
    let_go_of_output()?;
    let group = orders.group.clone();
    let processes = move || group.as_ref().map(Group::processes).unwrap_or_default();
    let measure = Measure::start(&orders.bounded, orders.limits.disk_bytes, processes)?;
    let mut watch = Watch::new(orders, sandbox, lines, File::from(status), measure);
    watch.until_it_is_over()?;
    let exceeded = watch.exceeded();
    ending::kill_orphans();
    orders.group.as_ref().map_or(Ok(()), Group::end)?;
    // Only a recovery would read it.
    mark.set(Some(Boot::now())).ok();
    // Emptied by the sandbox's first process once it has read it.
    let started = plan.metadata()?.len() == 0;
    Ok(Report { exceeded, ..watch.report(started) })
}

/// The plan, as a file without a name that is gone with the last process that has it open.
fn plan_file(orders: &Orders) -> io::Result<File> {
    let mut file = File::from(memfd_create(c"plan", MFdFlags::MFD_CLOEXEC)?);
    file.write_all(&serde_json::to_vec(&orders.plan)?)?;
    file.rewind()?;
    Ok(file)
}

fn start(orders: &Orders, plan: &File, status: OwnedFd) -> io::Result<Child> {
    // Nothing else is started by this process, so nothing else inherits it.
    fcntl(&status, FcntlArg::F_SETFD(FdFlag::empty()))?;
    let mut command = Command::new(std::env::current_exe()?);
    command.arg("enter");
    for door in orders.group.iter().flat_map(Group::doors) {
        command.arg("--group").arg(door);
    }
    if let Some(id) = orders.run_as {
        command.arg("--user").arg(id.to_string());
    }
    if let Some(process) = orders.inside {
        command.arg("--inside").arg(process.to_string());
    }
    command.arg("--").arg(&orders.program).arg("--json-status-fd").arg(status.as_raw_fd().to_string());
    command.args(&orders.args).args(first_process()).env_clear().stdin(Stdio::from(plan.try_clone()?));
    command.spawn()
}

/// The pipes must end when the sandbox does.
fn let_go_of_output() -> io::Result<()> {
    let null = OpenOptions::new().write(true).open("/dev/null")?;
    dup2_stdout(&null)?;
    dup2_stderr(&null)?;
    Ok(())
}
