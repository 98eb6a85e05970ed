//! The back ends that tests are run in, and what containers are left of a worker.

use crate::fleet::can_seal;
use crate::skipped::skip;
use serde_json::Value;
use std::io::{Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};

/// Programs of this host.
pub(crate) const HOST_IMAGE: &str = "callboard-test:host";

/// Runs each test, a function of a back end, in both.
macro_rules! in_both {
    ($($name:ident),* $(,)?) => {
        mod bubblewrap {
            $(#[tokio::test(flavor = "multi_thread")]
            async fn $name() {
                super::$name(crate::BackEnd::Bubblewrap).await;
            })*
        }
        mod docker {
            $(#[tokio::test(flavor = "multi_thread")]
            async fn $name() {
                super::$name(crate::BackEnd::Docker).await;
            })*
        }
    };
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BackEnd {
    Bubblewrap,
    /// Containers alone: also the clone is made in one.
    Docker,
    /// Both, as they come.
    Auto,
}

impl BackEnd {
    /// Whether it works here; if not, the calling test is skipped.
    pub(crate) fn is_here(self) -> bool {
        match self {
            Self::Bubblewrap => can_seal(),
            Self::Docker => socket().is_some(),
            Self::Auto => can_seal() && socket().is_some(),
        }
    }

    /// What stands for this host's programs.
    pub(crate) fn image(self) -> &'static str {
        match self {
            Self::Bubblewrap | Self::Auto => "host",
            Self::Docker => HOST_IMAGE,
        }
    }

    pub(crate) fn args(self) -> Vec<String> {
        let is_by_daemon = self != Self::Bubblewrap;
        self.args_by(is_by_daemon.then(socket).flatten().as_deref())
    }

    /// The same, with another way to the daemon.
    pub(crate) fn args_by(self, socket: Option<&Path>) -> Vec<String> {
        let host = || format!("unix://{}", socket.unwrap().display());
        let words = |words: &[&str]| words.iter().map(|word| (*word).to_owned()).collect();
        match self {
            Self::Bubblewrap => words(&["--isolation", "bubblewrap"]),
            Self::Auto => words(&["--docker-host", &host()]),
            Self::Docker => words(&[
                "--isolation",
                "docker",
                "--docker-host",
                &host(),
                "--clone-image",
                HOST_IMAGE,
                "--pull",
                "never",
            ]),
        }
    }

    /// The processes in containers of a builds root; 0 stands for a container without any, or a volume.
    pub(crate) fn left(self, root: &Path) -> Vec<i32> {
        if self == Self::Bubblewrap {
            return Vec::new();
        }
        let containers = containers(root);
        let volumes = found("/volumes", root)["Volumes"].as_array().map_or(0, Vec::len);
        let mut left = vec![0; containers.len() + volumes];
        let is_theirs = |pid: &i32| {
            let groups = std::fs::read_to_string(format!("/proc/{pid}/cgroup")).unwrap_or_default();
            containers.iter().any(|id| groups.contains(id))
        };
        left.extend(callboard_worker::proc::all().into_iter().map(|process| process.pid).filter(is_theirs));
        left
    }

    /// Ends what a test that failed has left.
    pub(crate) fn clear(self, root: &Path) {
        if self != Self::Bubblewrap {
            for id in containers(root) {
                ask("DELETE", &format!("/containers/{id}?force=1&v=1"));
            }
        }
    }
}

/// The daemon's socket; without one the calling test is skipped.
pub(crate) fn socket() -> Option<PathBuf> {
    let socket = std::env::var_os("CALLBOARD_TEST_DOCKER").map(PathBuf::from);
    if socket.is_none() {
        let why = std::env::var_os("CALLBOARD_TEST_DOCKER_WHY").and_then(|why| why.into_string().ok());
        skip("docker", &why.unwrap_or_else(|| "run the tests by ./tests/run, or by ./tests/docker".into()));
    }
    socket
}

pub(crate) fn containers(root: &Path) -> Vec<String> {
    let found = found("/containers/json?all=1", root);
    found.as_array().into_iter().flatten().map(|container| container["Id"].as_str().unwrap().to_owned()).collect()
}

/// What carries a label of this builds root.
fn found(path: &str, root: &Path) -> Value {
    let host_id = std::fs::read_to_string(root.join(".host-id")).unwrap_or_default();
    let filters = format!(r#"{{"label":["callboard.worker={host_id}:{}"]}}"#, root.display());
    let joint = if path.contains('?') { '&' } else { '?' };
    ask("GET", &format!("{path}{joint}filters={}", escaped(&filters)))
}

fn escaped(text: &str) -> String {
    text.bytes()
        .map(|byte| if byte.is_ascii_alphanumeric() { char::from(byte).to_string() } else { format!("%{byte:02X}") })
        .collect()
}

/// One call to the daemon; whoever asks with HTTP/1.0 is answered in one piece.
pub(crate) fn ask(method: &str, path: &str) -> Value {
    let mut daemon = UnixStream::connect(socket().unwrap()).unwrap();
    write!(daemon, "{method} {path} HTTP/1.0\r\nHost: docker\r\n\r\n").unwrap();
    let mut answer = String::new();
    daemon.read_to_string(&mut answer).unwrap();
    let (_, body) = answer.split_once("\r\n\r\n").unwrap();
    serde_json::from_str(body).unwrap_or(Value::Null)
}
