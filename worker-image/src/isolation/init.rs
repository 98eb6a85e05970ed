//! The first process of a sandbox: carries out its plan, and reaps whatever is orphaned.
//!
//! When it ends, the kernel ends every other process of the sandbox before anybody learns of it.

use super::plan::{Door, Env, INSIDE, Plan, PlanFile};
use super::{ask, seccomp};
use crate::network;
use nix::errno::Errno;
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use nix::sys::signal::Signal;
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::{Pid, dup2_stdin};
use std::fs::{File, OpenOptions};
use std::io::{self, BufRead as _, BufReader, Write as _};
use std::os::fd::AsFd as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// How many descriptors a program may open unless it asks for more: what the worker has is too much for one that closes all
/// that it may have.
const DESCRIPTORS: u64 = 1024;
/// From -1000, never, to 1000, first.
const OOM_SCORE: &str = "500";
/// What a shell says of a program that can't be started.
const NOT_STARTED: i32 = 127;
const REAP_EVERY: Duration = Duration::from_millis(10);

/// Does what the plan on standard input says; returns the program's exit code.
#[must_use]
pub fn run() -> i32 {
    match start() {
        Ok((program, linger)) => {
            let code = reap_until(program);
            if code == 128 + Signal::SIGTERM as i32 {
                reap_the_rest(linger);
            }
            if code == 128 + Signal::SIGSYS as i32 {
                eprintln!(
                    "callboard: the program was ended at a system call of another architecture: 32-bit programs can't run"
                );
            }
            code
        }
        Err(error) => {
            eprintln!("callboard: {error}");
            NOT_STARTED
        }
    }
}

fn start() -> io::Result<(Pid, Duration)> {
    // Before there is a thread, or a word of the build's own is read.
    seccomp::apply()?;
    let plan = take_plan()?;
    let linger = Duration::from_millis(plan.linger_ms);
    // Where it is short of memory, this host is to end builds before anything of its own.
    std::fs::write("/proc/self/oom_score_adj", OOM_SCORE).ok();
    setrlimit(Resource::RLIMIT_NPROC, plan.processes_max.into(), plan.processes_max.into())?;
    setrlimit(Resource::RLIMIT_CORE, 0, 0)?;
    plan.files.iter().try_for_each(write)?;
    plan.door.map(let_in).transpose()?;
    let mut env = plan.proxy_port.map(proxy_env).unwrap_or_default();
    env.extend(plan.env);
    let (program, args) = plan.argv.split_first().ok_or(io::ErrorKind::InvalidInput)?;
    let (_, descriptors) = getrlimit(Resource::RLIMIT_NOFILE)?;
    setrlimit(Resource::RLIMIT_NOFILE, DESCRIPTORS.min(descriptors), descriptors)?;
    let child = Command::new(program).args(args).env_clear().envs(env).stdin(Stdio::null()).spawn();
    setrlimit(Resource::RLIMIT_NOFILE, descriptors, descriptors)?;
    let child = child.map_err(|error| io::Error::new(error.kind(), format!("{program}: {error}")))?;
    Ok((Pid::from_raw(i32::try_from(child.id()).unwrap_or(i32::MAX)), linger))
}

/// Reads the plan. A memory file is emptied: that is how the guard knows that the sandbox came up, and it leaves nothing for
/// others to read. A container has a line of a stream instead, which lasts as long as its guard.
fn take_plan() -> io::Result<Plan> {
    let file = File::from(io::stdin().as_fd().try_clone_to_owned()?);
    let is_memory = file.metadata()?.is_file();
    let (mut reader, mut text) = (BufReader::new(file), String::new());
    reader.read_line(&mut text)?;
    dup2_stdin(File::open("/dev/null")?)?;
    if is_memory {
        reader.into_inner().set_len(0)?;
    } else {
        ask::heed(reader)?;
    }
    Ok(serde_json::from_str(&text)?)
}

fn write(file: &PlanFile) -> io::Result<()> {
    let path = Path::new(INSIDE).join(&file.name);
    OpenOptions::new().write(true).create_new(true).mode(file.mode).open(path)?.write_all(file.content.as_bytes())
}

/// Lets connections in, on a thread of its own: those of all users take no more.
fn let_in(door: Door) -> io::Result<()> {
    let opened = network::Door::open(network::Service { port: door.port, door: &door.socket })?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    std::thread::Builder::new().spawn(move || runtime.block_on(opened.accept()))?;
    Ok(())
}

fn proxy_env(port: u16) -> Env {
    let proxy = format!("http://127.0.0.1:{port}");
    let names = ["http_proxy", "https_proxy", "all_proxy", "HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"];
    let mut env: Env = names.map(|name| (name.to_owned(), proxy.clone())).into();
    for name in ["no_proxy", "NO_PROXY"] {
        env.insert(name.into(), "localhost,127.0.0.1,::1".into());
    }
    env
}

fn reap_until(program: Pid) -> i32 {
    loop {
        match waitpid(None, None) {
            Ok(WaitStatus::Exited(pid, code)) if pid == program => return code,
            Ok(WaitStatus::Signaled(pid, signal, _)) if pid == program => return 128 + signal as i32,
            Ok(_) | Err(Errno::EINTR) => {}
            Err(_) => return NOT_STARTED,
        }
    }
}

/// A shell that is asked to end does so at once; what it had started was asked as well, and gets its time.
fn reap_the_rest(linger: Duration) {
    let begun = Instant::now();
    while begun.elapsed() < linger {
        match waitpid(None, Some(WaitPidFlag::WNOHANG)) {
            Ok(WaitStatus::StillAlive) => std::thread::sleep(REAP_EVERY),
            Ok(_) | Err(Errno::EINTR) => {}
            Err(_) => return,
        }
    }
}
