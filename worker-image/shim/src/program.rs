//! Starts a room's program: what it finds around it, and what it is held to.

use crate::said::{File, Orders};
use crate::{HOME, seccomp};
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use nix::unistd::{AccessFlags, access};
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs::{self, DirBuilder, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Child, Command, Stdio};

/// How many descriptors a program may open unless it asks for more.
const DESCRIPTORS: u64 = 1024;
/// Of what ECS puts into every container, what leads to it.
const OF_ECS: [&str; 3] = ["ECS_", "AWS_CONTAINER_", "AWS_EXECUTION_ENV"];

type Env = BTreeMap<OsString, OsString>;

/// Why a program does not run.
pub(crate) enum Failed {
    /// The room could not be made ready.
    Room(io::Error),
    /// The image has no such program.
    Program(io::Error),
}

/// Makes all ready and starts the program, in a process group of its own. This thread, and all that it starts from now on, is refused what
/// [`seccomp`] refuses.
pub(crate) fn start(orders: &Orders) -> Result<Child, Failed> {
    ready(orders).map_err(Failed::Room)?;
    let own = home(&orders.inside);
    let env = environment(std::env::vars_os(), orders, &own);
    let (program, args) = orders.argv.split_first().ok_or(Failed::Program(io::ErrorKind::InvalidInput.into()))?;
    let mut command = Command::new(program);
    command.args(args).env_clear().envs(env).current_dir(&orders.directory).process_group(0);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let (_, descriptors) = getrlimit(Resource::RLIMIT_NOFILE).map_err(|errno| Failed::Room(errno.into()))?;
    let few = |soft| setrlimit(Resource::RLIMIT_NOFILE, soft, descriptors).map_err(|errno| Failed::Room(errno.into()));
    few(DESCRIPTORS.min(descriptors))?;
    let child = command.spawn();
    few(descriptors)?;
    child.map_err(|error| Failed::Program(io::Error::new(error.kind(), format!("{program}: {error}"))))
}

fn ready(orders: &Orders) -> io::Result<()> {
    seccomp::apply()?;
    setrlimit(Resource::RLIMIT_CORE, 0, 0)?;
    setrlimit(Resource::RLIMIT_NPROC, orders.processes_max.into(), orders.processes_max.into())?;
    DirBuilder::new().mode(0o700).create(&orders.inside)?;
    orders.files.iter().try_for_each(|file| write(&orders.inside, file))
}

fn write(directory: &Path, file: &File) -> io::Result<()> {
    let mut options = OpenOptions::new();
    let made = options.write(true).create_new(true).mode(file.mode).open(directory.join(&file.name));
    made?.write_all(file.content.as_bytes())
}

/// A home that can be written, if the task has none.
fn home(inside: &Path) -> OsString {
    if access(HOME, AccessFlags::W_OK | AccessFlags::X_OK).is_ok() {
        return HOME.into();
    }
    let home = inside.join("home");
    fs::create_dir(&home).ok();
    home.into()
}

/// The image's environment, and the program's over it. The image's PATH stands unless somebody chose one.
fn environment(of_room: impl Iterator<Item = (OsString, OsString)>, orders: &Orders, home: &OsString) -> Env {
    let is_of_ecs = |name: &OsString| OF_ECS.iter().any(|begin| name.to_string_lossy().starts_with(begin));
    let of_image: Env = of_room.filter(|(name, _)| !is_of_ecs(name)).collect();
    let mut env = of_image.clone();
    env.extend(orders.env.iter().map(|(name, value)| (name.into(), value.into())));
    let is = |name: &str, usual: &str| orders.env.get(name).is_some_and(|value| value == usual);
    if let Some(path) = of_image.get(&OsString::from("PATH")).filter(|_| is("PATH", &orders.usual_path)) {
        env.insert("PATH".into(), path.clone());
    }
    if is("HOME", HOME) {
        env.insert("HOME".into(), home.clone());
    }
    env
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(of_task: &[(&str, &str)], name: &str, expected: Option<&str>) {
        let of_room = [
            ("PATH", "/cargo/bin"),
            ("A", "image"),
            ("HOME", "/root"),
            ("ECS_CONTAINER_METADATA_URI_V4", "http://169.254.170.2/v4/x"),
            ("AWS_CONTAINER_CREDENTIALS_RELATIVE_URI", "/v2/credentials/x"),
            ("AWS_REGION", "of the image"),
        ];
        let own = |(name, value): &(&str, &str)| ((*name).to_owned(), (*value).to_owned());
        let orders = Orders {
            argv: Vec::new(),
            env: of_task.iter().map(own).collect(),
            usual_path: "/usual".into(),
            files: Vec::new(),
            inside: "/inside".into(),
            directory: "/".into(),
            processes_max: 1,
            linger_ms: 0,
            left_ms: 0,
        };
        let of_room = of_room.into_iter().map(|(name, value)| (name.into(), value.into()));
        let env = environment(of_room, &orders, &"/its/home".into());
        assert_eq!(env.get(&OsString::from(name)), expected.map(OsString::from).as_ref(), "{name}");
    }

    #[test]
    fn a_programs_variables_win_over_its_images_but_for_a_path_that_nobody_chose() {
        check(&[("A", "task")], "A", Some("task"));
        check(&[], "A", Some("image"));
        check(&[("PATH", "/usual")], "PATH", Some("/cargo/bin"));
        check(&[("PATH", "/chosen")], "PATH", Some("/chosen"));
    }

    #[test]
    fn a_home_that_nobody_chose_is_one_that_can_be_written() {
        check(&[("HOME", HOME)], "HOME", Some("/its/home"));
        check(&[("HOME", "/chosen")], "HOME", Some("/chosen"));
    }

    #[test]
    fn nothing_leads_a_program_to_ecs() {
        check(&[], "ECS_CONTAINER_METADATA_URI_V4", None);
        check(&[], "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI", None);
        check(&[], "AWS_REGION", Some("of the image"));
    }
}
