//! The first process of a sandbox: carries out its plan, reaps whatever is orphaned, and is the way to the proxy.
//!
//! When it ends, the kernel ends every other process of the sandbox before anybody learns of it.

use super::ask;
use super::plan::{Env, INSIDE, Plan, PlanFile};
use nix::errno::Errno;
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use nix::sys::signal::Signal;
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::{Pid, dup2_stdin};
use std::fs::{File, OpenOptions};
use std::io::{self, BufRead as _, BufReader, Write as _};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::os::fd::AsFd as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// The most processes of one sandbox.
const PROCESSES_MAX: u64 = 4096;
/// How many descriptors a program may open unless it asks for more: what the worker has is too much for one that closes all
/// that it may have.
const DESCRIPTORS: u64 = 1024;
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
            code
        }
        Err(error) => {
            eprintln!("callboard: {error}");
            NOT_STARTED
        }
    }
}

fn start() -> io::Result<(Pid, Duration)> {
    let plan = take_plan()?;
    let linger = Duration::from_millis(plan.linger_ms);
    setrlimit(Resource::RLIMIT_NPROC, PROCESSES_MAX, PROCESSES_MAX)?;
    setrlimit(Resource::RLIMIT_CORE, 0, 0)?;
    plan.files.iter().try_for_each(write)?;
    let mut env = plan.egress.map(relay).transpose()?.map(proxy_env).unwrap_or_default();
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

fn proxy_env(port: u16) -> Env {
    let proxy = format!("http://127.0.0.1:{port}");
    let names = ["http_proxy", "https_proxy", "all_proxy", "HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"];
    let mut env: Env = names.map(|name| (name.to_owned(), proxy.clone())).into();
    for name in ["no_proxy", "NO_PROXY"] {
        env.insert(name.into(), "localhost,127.0.0.1,::1".into());
    }
    env
}

/// Listens on the sandbox's loopback and carries every connection to the proxy's socket.
fn relay(socket: PathBuf) -> io::Result<u16> {
    let listener = TcpListener::bind(("127.0.0.1", 0))?;
    let port = listener.local_addr()?.port();
    std::thread::Builder::new().spawn(move || {
        for client in listener.incoming().flatten() {
            // Without a thread to spare, the client sees its connection closed.
            carry(&client, &socket).ok();
        }
    })?;
    Ok(port)
}

fn carry(client: &TcpStream, socket: &Path) -> io::Result<()> {
    let proxy = UnixStream::connect(socket)?;
    let (mut from_client, mut to_client) = (client.try_clone()?, client.try_clone()?);
    let (mut from_proxy, mut to_proxy) = (proxy.try_clone()?, proxy);
    std::thread::Builder::new().spawn(move || {
        io::copy(&mut from_client, &mut to_proxy).ok();
        to_proxy.shutdown(Shutdown::Write).ok();
    })?;
    std::thread::Builder::new().spawn(move || {
        io::copy(&mut from_proxy, &mut to_client).ok();
        to_client.shutdown(Shutdown::Both).ok();
    })?;
    Ok(())
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
