//! Waits for a program's end, and ends all else that it has left.

use nix::errno::Errno;
use nix::sys::signal::{Signal, kill, killpg};
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::Pid;
use std::fs;
use std::thread;
use std::time::{Duration, Instant};

const REAP_EVERY: Duration = Duration::from_millis(10);
/// How long the kernel may take to end what was killed.
const KILLED: Duration = Duration::from_secs(5);

/// Where a container sees what its memory has come to: by control groups, and by those of before.
const MEMORY: [&str; 2] = ["/sys/fs/cgroup/memory.events", "/sys/fs/cgroup/memory/memory.oom_control"];

/// Signals all processes of the room but this one. As the first process of its namespace, whatever group or session they are in.
pub(crate) fn everybody(program: Pid, signal: Signal) {
    if std::process::id() == 1 {
        kill(Pid::from_raw(-1), signal).ok();
    } else {
        killpg(program, signal).ok();
    }
}

/// Waits for `program`, and reaps whatever is orphaned meanwhile; returns its exit code, 128 + N for a signal N. Then ends the others: at once,
/// or, if it was asked to end and did, after `linger`: they were asked as well.
pub(crate) fn reap(program: Pid, linger: Duration) -> i32 {
    let code = reap_until(program);
    if code == 128 + Signal::SIGTERM as i32 {
        reap_for(linger);
    }
    everybody(program, Signal::SIGKILL);
    reap_for(KILLED);
    code
}

fn reap_until(program: Pid) -> i32 {
    loop {
        match waitpid(None, None) {
            Ok(WaitStatus::Exited(pid, code)) if pid == program => return code,
            Ok(WaitStatus::Signaled(pid, signal, _)) if pid == program => return 128 + signal as i32,
            Ok(_) | Err(Errno::EINTR) => {}
            Err(_) => return 128 + Signal::SIGKILL as i32,
        }
    }
}

/// Until nobody is left, or so long.
fn reap_for(patience: Duration) {
    let begun = Instant::now();
    while begun.elapsed() < patience {
        match waitpid(None, Some(WaitPidFlag::WNOHANG)) {
            Ok(WaitStatus::StillAlive) => thread::sleep(REAP_EVERY),
            Ok(_) | Err(Errno::EINTR) => {}
            Err(_) => return,
        }
    }
}

/// How many processes the kernel has ended here for want of memory; 0 where that can't be known.
pub(crate) fn out_of_memory() -> u64 {
    MEMORY.iter().filter_map(|path| killed_in(&fs::read_to_string(path).ok()?)).next().unwrap_or(0)
}

fn killed_in(events: &str) -> Option<u64> {
    events.lines().find_map(|line| line.strip_prefix("oom_kill ")?.trim().parse().ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_killed_for_want_of_memory_is_counted_in_both_kinds_of_control_groups() {
        assert_eq!(killed_in("low 0\nhigh 0\nmax 3\noom 2\noom_kill 2\noom_group_kill 0\n"), Some(2));
        assert_eq!(killed_in("oom_kill_disable 0\nunder_oom 0\noom_kill 1\n"), Some(1));
        assert_eq!(killed_in("low 0\n"), None);
    }
}
