//! What a sandbox sees of this host: its programs, and the few files of /etc that programs need. All read-only.

use crate::isolation::plan::Env;
use crate::workplace::has;
use std::fs;
use std::path::{Path, PathBuf};

/// Where programs are looked for, here and in the sandbox.
const PROGRAMS: [&str; 6] = ["/usr/local/sbin", "/usr/local/bin", "/usr/sbin", "/usr/bin", "/sbin", "/bin"];

/// What is bound at the root: directories on old systems, links into /usr on others.
const ROOT: [&str; 6] = ["bin", "sbin", "lib", "lib32", "lib64", "libx32"];

/// The files of /etc that programs need; none of them tells users, hosts or secrets.
const ETC: [&str; 20] = [
    "alternatives",
    "ca-certificates",
    "ca-certificates.conf",
    "debian_version",
    "fonts",
    "ld.so.cache",
    "ld.so.conf",
    "ld.so.conf.d",
    "localtime",
    "magic",
    "mime.types",
    "os-release",
    "perl",
    "pki/ca-trust",
    "pki/tls/certs",
    "protocols",
    "services",
    "ssl/certs",
    "ssl/openssl.cnf",
    "timezone",
];
/// The same for names that end in a version.
const ETC_BEGINNINGS: [&str; 2] = ["java-", "python3"];

/// The first program called `name` in the usual places.
#[must_use]
pub fn find(name: &str) -> Option<PathBuf> {
    PROGRAMS.iter().map(|directory| Path::new(directory).join(name)).find(|path| path.is_file())
}

/// The variable PATH of a sandbox, before any tools.
#[must_use]
pub fn path_variable() -> String {
    PROGRAMS.join(":")
}

/// What a step finds programs by: as [`path_variable`], with those of `tools` first. A PATH of the step's own stays.
pub(super) fn with_tools(mut env: Env, tools: &[PathBuf]) -> Env {
    if let Some(path) = env.get_mut("PATH").filter(|path| **path == path_variable()) {
        let own = tools.iter().map(|directory| format!("{}/bin:", directory.display())).collect::<String>();
        path.insert_str(0, &own);
    }
    env
}

/// They are bound by the names that they have here, which programs in them may know.
pub(super) fn tools(directories: &[PathBuf]) -> Vec<String> {
    let shown = directories.iter().map(|directory| directory.to_string_lossy());
    shown.flat_map(|directory| three("--ro-bind", &directory, &directory)).collect()
}

pub(super) fn system() -> Vec<String> {
    let mut args = three("--ro-bind", "/usr", "/usr").to_vec();
    for name in ROOT {
        let path = format!("/{name}");
        match fs::read_link(&path) {
            Ok(target) => args.extend(three("--symlink", &target.to_string_lossy(), &path)),
            Err(_) if has(Path::new(&path)) => args.extend(three("--ro-bind", &path, &path)),
            Err(_) => {}
        }
    }
    args
}

/// Our own `passwd`, `group`, `hosts` and `nsswitch.conf` are in `ours`.
pub(super) fn etc(ours: &Path) -> Vec<String> {
    let mut args = Vec::new();
    for name in ETC.iter().map(|name| (*name).to_owned()).chain(versioned()) {
        let path = format!("/etc/{name}");
        if has(Path::new(&path)) {
            args.extend(three("--ro-bind", &path, &path));
        }
    }
    for (name, _) in crate::workplace::ETC_FILES {
        args.extend(three("--ro-bind", &ours.join(name).to_string_lossy(), &format!("/etc/{name}")));
    }
    args
}

fn versioned() -> impl Iterator<Item = String> {
    let names = fs::read_dir("/etc").into_iter().flatten().flatten().map(|entry| entry.file_name());
    names
        .filter_map(|name| name.into_string().ok())
        .filter(|name| ETC_BEGINNINGS.iter().any(|beginning| name.starts_with(beginning)))
}

fn three(how: &str, from: &str, to: &str) -> [String; 3] {
    [how.to_owned(), from.to_owned(), to.to_owned()]
}
