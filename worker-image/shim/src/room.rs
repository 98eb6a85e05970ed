//! A room, from its first connection to its end.
//!
//! SIGTERM ends nothing here: in which order the containers of a task end is the runner's to say (`asked`). What runs here can't get
//! at the connections: they are closed to it, and this process is none that it may look into.

use crate::program::{self, Failed};
use crate::said::{Hello, Line, Orders, TO_ROOM_MAX_BYTES, ToRoom, ToRunner, hear, say};
use crate::{asked, end};
use nix::sys::prctl::set_dumpable;
use nix::sys::signal::{SigSet, Signal};
use nix::unistd::Pid;
use std::fs;
use std::io::{self, Read, Write as _};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::Child;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, OnceLock};
use std::thread;
use std::time::{Duration, Instant};

/// The exit code of a room whose runner is gone.
pub const ABANDONED: u8 = 125;
/// What a shell says of a program that can't be started.
const NO_PROGRAM: i32 = 127;

const CONNECT_EVERY: Duration = Duration::from_millis(100);
/// How long a runner may take to listen: its container is started before those of rooms, but no faster.
const CONNECT_WITHIN: Duration = Duration::from_secs(600);
/// How long output may take to be read once its program has ended: what the runner has taken by then is all.
const OUTPUT_WITHIN: Duration = Duration::from_secs(2);
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// Is the room `number` of the runner at `socket`; returns its exit code.
#[must_use]
pub fn run(number: u8, socket: &Path) -> u8 {
    prepare();
    let Ok([mut control, stdout, stderr]) = connect(number, socket) else {
        eprintln!("callboard: no runner at {}", socket.display());
        return ABANDONED;
    };
    if let Err(error) = control.try_clone().and_then(asked::pass_on) {
        return not_started(&mut control, &error);
    }
    loop {
        match hear::<ToRoom>(&mut control, TO_ROOM_MAX_BYTES) {
            Ok(ToRoom::Run(orders)) => return perform(control, [stdout, stderr], &orders),
            Ok(ToRoom::Unneeded) => return 0,
            Ok(ToRoom::Left { .. } | ToRoom::Terminate | ToRoom::Kill) => {}
            Err(_) => return ABANDONED,
        }
    }
}

/// Before anybody is heard, or a thread is there.
fn prepare() {
    let mut unheard = SigSet::empty();
    [Signal::SIGTERM, Signal::SIGINT, Signal::SIGHUP].into_iter().for_each(|signal| unheard.add(signal));
    unheard.thread_block().ok();
    // Where it is short of memory, the kernel is to end a step before the runner.
    fs::write("/proc/self/oom_score_adj", "500").ok();
    set_dumpable(false).ok();
}

/// All connections of a room, each with its hello.
fn connect(number: u8, socket: &Path) -> io::Result<[UnixStream; 3]> {
    let begun = Instant::now();
    let first = loop {
        match UnixStream::connect(socket) {
            Ok(stream) => break stream,
            Err(error) if begun.elapsed() > CONNECT_WITHIN => return Err(error),
            Err(_) => thread::sleep(CONNECT_EVERY),
        }
    };
    let mut all = [first, UnixStream::connect(socket)?, UnixStream::connect(socket)?];
    for (stream, line) in all.iter_mut().zip(Line::ALL) {
        stream.write_all(&Hello { room: number, line }.bytes())?;
    }
    Ok(all)
}

fn perform(mut control: UnixStream, outputs: [UnixStream; 2], orders: &Orders) -> u8 {
    let killed_before = end::out_of_memory();
    let watch = match control.try_clone().and_then(|heard| Watch::begin(heard, orders)) {
        Ok(watch) => watch,
        Err(error) => return not_started(&mut control, &error),
    };
    let (code, [stdout, stderr]) = match program::start(orders) {
        Ok(mut child) => {
            let program = pid(&child);
            watch.begins(program);
            let carried = carry(&mut child, outputs);
            say(&mut control, &ToRunner::Started).ok();
            let code = end::reap(program, Duration::from_millis(orders.linger_ms));
            (code, carried)
        }
        Err(Failed::Program(error)) => {
            let [stdout, mut stderr] = outputs;
            say(&mut control, &ToRunner::Started).ok();
            stderr.write_all(format!("callboard: {error}\n").as_bytes()).ok();
            drop((stdout, stderr));
            (NO_PROGRAM, [channel().1, channel().1])
        }
        Err(Failed::Room(error)) => return not_started(&mut control, &error),
    };
    for output in [stdout, stderr] {
        output.recv_timeout(OUTPUT_WITHIN).ok();
    }
    fs::remove_dir_all(&orders.inside).ok();
    watch.ends();
    say(&mut control, &ToRunner::Ended { code, out_of_memory: end::out_of_memory() > killed_before }).ok();
    u8::try_from(code).unwrap_or(u8::MAX)
}

fn not_started(control: &mut UnixStream, error: &io::Error) -> u8 {
    say(control, &ToRunner::NotStarted { why: error.to_string() }).ok();
    ABANDONED
}

fn pid(child: &Child) -> Pid {
    Pid::from_raw(i32::try_from(child.id()).unwrap_or(i32::MAX))
}

/// Carries both outputs to the runner, each on a thread of its own; what is returned ends with each.
fn carry(child: &mut Child, [stdout, stderr]: [UnixStream; 2]) -> [Receiver<()>; 2] {
    fn begin(from: Option<impl Read + Send + 'static>, mut to: UnixStream) -> Receiver<()> {
        let (ended, end) = channel();
        thread::spawn(move || {
            if let Some(mut from) = from {
                io::copy(&mut from, &mut to).ok();
            }
            drop((to, ended));
        });
        end
    }
    [begin(child.stdout.take(), stdout), begin(child.stderr.take(), stderr)]
}

/// Heeds the runner while a program runs.
struct Watch {
    program: Arc<OnceLock<Pid>>,
    is_over: Arc<AtomicBool>,
}

impl Watch {
    fn begin(mut control: UnixStream, orders: &Orders) -> io::Result<Self> {
        let (program, is_over) = (Arc::new(OnceLock::new()), Arc::new(AtomicBool::new(false)));
        let (begun, until_ms) = (Instant::now(), Arc::new(AtomicU64::new(orders.left_ms)));
        let after_ms = move || u64::try_from(begun.elapsed().as_millis()).unwrap_or(u64::MAX);
        let (heard, until, over) = (Arc::clone(&program), Arc::clone(&until_ms), Arc::clone(&is_over));
        thread::Builder::new().spawn(move || {
            while let Ok(said) = hear::<ToRoom>(&mut control, TO_ROOM_MAX_BYTES) {
                match said {
                    ToRoom::Left { ms } => until.store(after_ms().saturating_add(ms), SeqCst),
                    ToRoom::Terminate => signal(&heard, Signal::SIGTERM),
                    ToRoom::Kill => signal(&heard, Signal::SIGKILL),
                    ToRoom::Run(_) | ToRoom::Unneeded => {}
                }
            }
            if !over.load(SeqCst) {
                abandoned(&heard);
            }
        })?;
        let (heard, over) = (Arc::clone(&program), Arc::clone(&is_over));
        thread::Builder::new().spawn(move || {
            while after_ms() < until_ms.load(SeqCst) {
                thread::sleep(LOOK_EVERY);
            }
            if !over.load(SeqCst) {
                abandoned(&heard);
            }
        })?;
        Ok(Self { program, is_over })
    }

    fn begins(&self, program: Pid) {
        self.program.set(program).ok();
    }

    fn ends(&self) {
        self.is_over.store(true, SeqCst);
    }
}

fn signal(program: &OnceLock<Pid>, signal: Signal) {
    if let Some(program) = program.get() {
        end::everybody(*program, signal);
    }
}

/// Nobody waits for what runs here any more.
fn abandoned(program: &OnceLock<Pid>) -> ! {
    signal(program, Signal::SIGKILL);
    std::process::exit(ABANDONED.into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::net::UnixListener;

    #[test]
    fn a_room_says_which_it_is_on_each_of_its_connections() {
        let directory = tempfile::tempdir().unwrap();
        let socket = directory.path().join("socket");
        let listener = UnixListener::bind(&socket).unwrap();
        let all = connect(4, &socket).unwrap();
        for line in Line::ALL {
            let mut hello = [0; Hello::BYTES];
            listener.accept().unwrap().0.read_exact(&mut hello).unwrap();
            assert_eq!(Hello::read(hello), Some(Hello { room: 4, line }));
        }
        drop(all);
    }
}
