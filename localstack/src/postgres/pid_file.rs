//! The pid file that a crash leaves, when its number is another process's by now: after a reboot, for one.

use anyhow::Context as _;
use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

/// A number above every process's (`pid_max` is at most 2^22).
const NOBODY: i32 = i32::MAX;

/// After a crash, the number in the server's pid file may be another process's by now: pg_ctl would stop that one, and the
/// server not start beside it. The file itself stays, since the server finds its old shared memory by it.
pub(super) fn forget_another_process(data: &Path) -> anyhow::Result<()> {
    let file = data.join("postmaster.pid");
    let Ok(text) = fs::read_to_string(&file) else { return Ok(()) };
    let Some((pid, rest)) = text.split_once('\n') else { return Ok(()) };
    if !is_another(pid.trim(), data) {
        return Ok(());
    }
    fs::write(&file, format!("{NOBODY}\n{rest}")).with_context(|| format!("{} can't be written", file.display()))
}

/// Whether a process runs that is certainly no server on `data`. Where that can't be seen: no.
fn is_another(pid: &str, data: &Path) -> bool {
    let arguments = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    let arguments: Vec<&Path> =
        arguments.split(|byte| *byte == 0).map(|word| Path::new(OsStr::from_bytes(word))).collect();
    let Some(program) = arguments.first().filter(|program| !program.as_os_str().is_empty()) else { return false };
    if program.file_name().is_none_or(|name| name != "postgres") {
        return true;
    }
    let given = arguments.iter().position(|word| *word == Path::new("-D")).and_then(|at| arguments.get(at + 1));
    match (given.map(fs::canonicalize), fs::canonicalize(data)) {
        (Some(Ok(given)), Ok(data)) => given != data,
        (Some(Err(_)) | None, _) | (_, Err(_)) => false,
    }
}
