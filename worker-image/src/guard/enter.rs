//! A step between a guard and its sandbox: goes into the sandbox's control group, becomes its user, and then bubblewrap, which
//! so is limited from its first instruction.

use crate::isolation::cgroup;
use std::io;
use std::os::unix::process::CommandExt as _;
use std::path::PathBuf;
use std::process::Command;

/// Goes where `doors` lead, becomes `user` and then `command`. Returns only if that fails.
#[must_use]
pub fn enter(doors: &[PathBuf], user: Option<u32>, command: &[String]) -> io::Error {
    let Some((program, args)) = command.split_first() else {
        return io::ErrorKind::InvalidInput.into();
    };
    if let Err(error) = cgroup::join(doors) {
        return error;
    }
    let mut command = Command::new(program);
    if let Some(id) = user {
        command.uid(id).gid(id);
    }
    command.args(args).exec()
}
