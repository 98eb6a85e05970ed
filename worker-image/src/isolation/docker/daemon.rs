//! Docker's daemon behind a Unix socket.

use super::labels;
use crate::isolation::StartError;
use bollard::errors::Error;
use bollard::models::{SystemInfo, SystemVersion};
use bollard::query_parameters::{
    KillContainerOptionsBuilder, ListContainersOptionsBuilder, ListVolumesOptionsBuilder,
    RemoveContainerOptionsBuilder, RemoveVolumeOptionsBuilder,
};
use bollard::{API_DEFAULT_VERSION, BollardRequest, ClientVersion, Docker};
use serde::{Deserialize, Serialize};
use std::collections::HashMap;
use std::fmt;
use std::path::{Path, PathBuf};

/// How long the daemon may take to answer what it can answer at once, in seconds.
const PATIENCE_SECONDS: u64 = 20;
/// How long an answer may take that comes when a container ends or an image is there: longer than any build.
const LONG_SECONDS: u64 = 7 * 24 * 3600;
/// The newest release of the interface whose answers we know; the daemon's own, if that is older.
const VERSION_MAX: &ClientVersion = API_DEFAULT_VERSION;

/// How a daemon is spoken to, as a guard is told it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Address {
    /// Its socket.
    pub socket: PathBuf,
    /// The release of the interface, as agreed with it.
    pub version: (usize, usize),
}

/// Whose daemon it is, where they differ.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Engine {
    /// Docker's, or one that says nothing else.
    Docker,
    /// Podman's.
    Podman,
}

impl Engine {
    /// Whether a container that has just ended may be told something: where Podman can't pass it on it ends the output as well,
    /// with words of its own. (Nor has it a daemon that could hold an input open.)
    pub(super) fn may_be_told_at_any_time(self) -> bool {
        self == Self::Docker
    }

    fn of(version: &SystemVersion) -> Self {
        let parts = version.components.iter().flatten();
        let is_podman = parts.into_iter().any(|part| part.name.starts_with("Podman"));
        if is_podman { Self::Podman } else { Self::Docker }
    }
}

/// A daemon.
#[derive(Clone)]
pub struct Daemon {
    /// For calls that it answers at once.
    pub quick: Docker,
    /// For calls that it answers when something has happened.
    pub patient: Docker,
    /// How to reach it again.
    pub address: Address,
}

impl fmt::Debug for Daemon {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Daemon").field("address", &self.address).finish_non_exhaustive()
    }
}

/// The socket that `host` names, in the words of DOCKER_HOST.
///
/// # Errors
///
/// If it names something else than a Unix socket.
pub fn socket(host: &str) -> Result<PathBuf, String> {
    match host.strip_prefix("unix://") {
        Some(path) if path.starts_with('/') => Ok(path.into()),
        Some(_) | None => Err(format!("{host:?} is not a Unix socket; write unix:///PATH")),
    }
}

impl Daemon {
    /// Finds a daemon and agrees with it on a release of its interface.
    ///
    /// # Errors
    ///
    /// If nobody answers there.
    pub async fn find(socket: PathBuf) -> Result<Self, Error> {
        let version = (VERSION_MAX.major_version, VERSION_MAX.minor_version);
        let quick = client(&socket, PATIENCE_SECONDS, version)?.negotiate_version().await?;
        let agreed = quick.client_version();
        Self::at(Address { socket, version: (agreed.major_version, agreed.minor_version) })
    }

    /// The daemon at a known address.
    ///
    /// # Errors
    ///
    /// If there is no socket.
    pub fn at(address: Address) -> Result<Self, Error> {
        let quick = client(&address.socket, PATIENCE_SECONDS, address.version)?;
        let patient = client(&address.socket, LONG_SECONDS, address.version)?;
        Ok(Self { quick, patient, address })
    }

    /// What it says of itself.
    ///
    /// # Errors
    ///
    /// If it does not answer.
    pub async fn info(&self) -> Result<SystemInfo, Error> {
        self.quick.info().await
    }

    /// Whose it is.
    ///
    /// # Errors
    ///
    /// If it does not answer.
    pub(super) async fn engine(&self) -> Result<Engine, Error> {
        Ok(Engine::of(&self.quick.version().await?))
    }

    /// Sends `signal` to a container's first process.
    ///
    /// # Errors
    ///
    /// If the daemon does not answer, or the container does not run.
    pub async fn signal(&self, container: &str, signal: &str) -> Result<(), Error> {
        let options = KillContainerOptionsBuilder::default().signal(signal).build();
        self.quick.kill_container(container, Some(options)).await
    }

    /// Ends a container and removes it. One that is gone is no error.
    ///
    /// # Errors
    ///
    /// If the daemon does not answer, or can't.
    pub async fn remove(&self, container: &str) -> Result<(), Error> {
        let options = RemoveContainerOptionsBuilder::default().force(true).v(true).build();
        gone(self.quick.remove_container(container, Some(options)).await)
    }

    /// Removes a volume. One that is gone is no error.
    ///
    /// # Errors
    ///
    /// If the daemon does not answer, or a container still has it.
    pub async fn remove_volume(&self, volume: &str) -> Result<(), Error> {
        let options = RemoveVolumeOptionsBuilder::default().force(true).build();
        gone(self.quick.remove_volume(volume, Some(options)).await)
    }

    /// The containers that carry a label, whatever their state, each with the build that it is for.
    ///
    /// # Errors
    ///
    /// If the daemon does not answer.
    pub async fn containers_of_builds(&self, label: &str) -> Result<Vec<(String, String)>, Error> {
        let options = ListContainersOptionsBuilder::default().all(true).filters(&by(label)).build();
        let found = self.quick.list_containers(Some(options)).await?;
        let build = |labels: Option<HashMap<String, String>>| labels?.remove(labels::BUILD);
        Ok(found.into_iter().filter_map(|it| Some((it.id?, build(it.labels).unwrap_or_default()))).collect())
    }

    /// The volumes that carry a label.
    ///
    /// # Errors
    ///
    /// If the daemon does not answer.
    pub async fn volumes(&self, label: &str) -> Result<Vec<String>, Error> {
        let options = ListVolumesOptionsBuilder::default().filters(&by(label)).build();
        let found = self.quick.list_volumes(Some(options)).await?.volumes.unwrap_or_default();
        Ok(found.into_iter().map(|volume| volume.name).collect())
    }
}

fn by(label: &str) -> HashMap<String, Vec<String>> {
    [("label".to_owned(), vec![label.to_owned()])].into()
}

fn client(socket: &Path, seconds: u64, version: (usize, usize)) -> Result<Docker, Error> {
    let (major_version, minor_version) = version;
    let version = ClientVersion { major_version, minor_version };
    let client = Docker::connect_with_unix(&socket.to_string_lossy(), seconds, &version)?;
    Ok(client.with_request_modifier(with_safe_credentials))
}

/// The library writes credentials in base64's usual alphabet, and daemons read the other one: `-` for `+`, `_` for `/`.
fn with_safe_credentials(mut request: BollardRequest) -> BollardRequest {
    const HEADER: &str = "x-registry-auth";
    let safe =
        request.headers().get(HEADER).and_then(|value| Some(value.to_str().ok()?.replace('+', "-").replace('/', "_")));
    if let Some(mut value) = safe.and_then(|safe| safe.parse::<reqwest::header::HeaderValue>().ok()) {
        value.set_sensitive(true);
        request.headers_mut().insert(HEADER, value);
    }
    request
}

fn gone(removed: Result<(), Error>) -> Result<(), Error> {
    match removed {
        // 409: its removal has begun already.
        Err(Error::DockerResponseServerError { status_code: 404, .. }) => Ok(()),
        Err(Error::DockerResponseServerError { status_code: 409, message }) if message.contains("in progress") => {
            Ok(())
        }
        other => other,
    }
}

/// The daemon's own words, without the library's.
#[must_use]
pub(super) fn words(error: &Error) -> String {
    if let Error::DockerResponseServerError { message: said, .. } | Error::DockerStreamError { error: said } = error {
        return said.trim().to_owned();
    }
    if matches!(error, Error::RequestTimeoutError) {
        return "the container daemon does not answer".into();
    }
    error.to_string()
}

/// A daemon that can't do what it should is the host's trouble.
#[must_use]
pub(super) fn trouble(error: &Error) -> StartError {
    StartError::Trouble(format!("the container daemon: {}", words(error)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use bollard::models::SystemVersionComponents;

    #[test]
    fn a_daemon_is_podmans_if_it_says_so() {
        let part = |name: &str| SystemVersionComponents { name: name.into(), ..SystemVersionComponents::default() };
        let engine =
            |name| Engine::of(&SystemVersion { components: Some(vec![part(name)]), ..SystemVersion::default() });
        assert_eq!([engine("Podman Engine"), engine("Engine")], [Engine::Podman, Engine::Docker]);
        assert_eq!(Engine::of(&SystemVersion::default()), Engine::Docker);
    }

    #[test]
    fn a_daemon_is_named_by_a_unix_socket() {
        assert_eq!(socket("unix:///run/podman/podman.sock"), Ok("/run/podman/podman.sock".into()));
        for host in ["tcp://127.0.0.1:2375", "unix://docker.sock", "/run/docker.sock", "ssh://host"] {
            assert!(socket(host).unwrap_err().contains("unix:///PATH"), "{host}");
        }
    }

    #[test]
    fn credentials_are_in_the_alphabet_that_daemons_read() {
        let modified = |value: &str| {
            let mut request = BollardRequest::new(bollard::body_full(Vec::new().into()));
            request.headers_mut().insert("x-registry-auth", value.parse().unwrap());
            with_safe_credentials(request).headers()["x-registry-auth"].to_str().unwrap().to_owned()
        };
        assert_eq!(modified("ab+c/d=="), "ab-c_d==");
    }

    #[test]
    fn what_is_gone_already_is_removed() {
        let said = |status_code, message: &str| {
            gone(Err(Error::DockerResponseServerError { status_code, message: message.into() }))
        };
        assert!(said(404, "no such container").is_ok() && said(409, "removal is already in progress").is_ok());
        assert!(said(409, "volume is in use").is_err() && said(500, "").is_err());
    }
}
