//! The pid file of a server: whose process it names, and whether that one takes connections.

use crate::leftovers;
use anyhow::Context as _;
use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

/// A number above every process's (`pid_max` is at most 2^22).
const NOBODY: i32 = i32::MAX;
/// The line that says how far the server is.
const STATUS_LINE: usize = 7;

/// Whose process a pid file names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Whose {
    /// A server on these data.
    Server,
    /// Certainly another's, or that of one that has ended.
    Another,
    /// Nobody's, or that can't be seen.
    Unknown,
}

fn file(data: &Path) -> PathBuf {
    data.join("postmaster.pid")
}

/// The process that the pid file names, if it certainly is a server on `data`.
pub(super) fn server(data: &Path) -> Option<i32> {
    let text = fs::read_to_string(file(data)).ok()?;
    let pid = text.lines().next()?.trim();
    (whose(pid, data) == Whose::Server).then(|| pid.parse().ok()).flatten().filter(|pid| *pid > 1)
}

/// Whether the server that runs as `pid` takes connections.
pub(super) fn is_ready(data: &Path, pid: i32) -> bool {
    let text = fs::read_to_string(file(data)).unwrap_or_default();
    let mut lines = text.lines();
    let is_its = lines.next().is_some_and(|line| line.trim().parse() == Ok(pid));
    is_its && lines.nth(STATUS_LINE - 1).is_some_and(|status| status.trim() == "ready")
}

/// After a crash, the number in the server's pid file may be another process's by now: after a reboot, for one; or still that of the one
/// that was killed, where its parent was as well and nobody has noticed yet. The server would not start beside it. The file itself stays, since the server finds its old shared memory by it.
pub(super) fn forget_another_process(data: &Path) -> anyhow::Result<()> {
    let file = file(data);
    let Ok(text) = fs::read_to_string(&file) else { return Ok(()) };
    let Some((pid, rest)) = text.split_once('\n') else { return Ok(()) };
    if whose(pid.trim(), data) != Whose::Another {
        return Ok(());
    }
    fs::write(&file, format!("{NOBODY}\n{rest}")).with_context(|| format!("{} can't be written", file.display()))
}

fn whose(pid: &str, data: &Path) -> Whose {
    if pid.parse().is_ok_and(leftovers::has_ended) {
        return Whose::Another;
    }
    let arguments = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    let arguments: Vec<&Path> =
        arguments.split(|byte| *byte == 0).map(|word| Path::new(OsStr::from_bytes(word))).collect();
    let Some(program) = arguments.first().filter(|program| !program.as_os_str().is_empty()) else {
        return Whose::Unknown;
    };
    if program.file_name().is_none_or(|name| name != "postgres") {
        return Whose::Another;
    }
    let given = arguments.iter().position(|word| *word == Path::new("-D")).and_then(|at| arguments.get(at + 1));
    match (given.map(fs::canonicalize), fs::canonicalize(data)) {
        (Some(Ok(given)), Ok(data)) if given == data => Whose::Server,
        (Some(Ok(_)), Ok(_)) => Whose::Another,
        (Some(Err(_)) | None, _) | (_, Err(_)) => Whose::Unknown,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;

    fn forgotten(pid: u32) -> bool {
        let data = tempfile::tempdir().expect("a directory");
        fs::write(file(data.path()), format!("{pid}\n/data\n")).expect("written");
        forget_another_process(data.path()).expect("looked at");
        let text = fs::read_to_string(file(data.path())).expect("still there");
        assert!(text.ends_with("\n/data\n"), "{text}");
        text.starts_with(&NOBODY.to_string())
    }

    #[test]
    fn a_process_that_has_ended_and_that_nobody_has_waited_for_is_no_server() {
        let mut ended = Command::new("true").spawn().expect("it runs");
        let pid = ended.id();
        while !leftovers::has_ended(i32::try_from(pid).expect("a process")) {
            std::thread::yield_now();
        }
        assert!(forgotten(pid));
        ended.wait().expect("waited for");
        assert!(!forgotten(pid), "the server finds out by itself that nobody is there");
    }

    #[test]
    fn a_process_of_another_program_is_no_server() {
        assert!(forgotten(std::process::id()));
    }
}
