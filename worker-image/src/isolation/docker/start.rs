//! The back end: turns tasks into containers, and has a guard start each.

use super::daemon::{Address, Daemon, Engine, words};
use super::guarantees::Able;
use super::kit::Kit;
use super::labels::{self, Scope};
use super::ours::Ours;
use super::out;
use super::pull::{Image, fetch};
use super::reference::is_reference;
use super::settings::Settings;
use super::spec::{Spec, environment};
use super::volumes::{self, Reach};
use super::{leftovers, network, reach};
use crate::clock::millis;
use crate::config::Place;
use crate::egress::{self, Proxy, Refusals};
use crate::guard::client;
use crate::isolation::bubblewrap::{names, path_variable};
use crate::isolation::guarantees::Trying;
use crate::isolation::plan::{ContainerOrders, Door, Errand, Plan, PlanFile};
use crate::isolation::{
    Ended, Fetch, Isolation, NetworkOf, Running, Service, ServiceNetwork, ServiceOf, StartError, Task,
};
use crate::network::{Joined, WayOut};
use crate::site::Site;
use futures::FutureExt as _;
use futures::future::BoxFuture;
use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::os::unix::fs::{PermissionsExt as _, chown};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;
use tokio::time::{sleep, timeout};
use tracing::warn;
use uuid::Uuid;

/// Slots' users where those of the daemon are not this host's: numbers that even a small range of them has.
const FIRST_UID_APART: u32 = 20_000;
/// How long it is tried to end a container whose guard is gone.
const ORPHAN_PATIENCE: Duration = Duration::from_secs(10);
/// How many processes a user may have: a backstop, since the container's are counted, and in older kernels other containers' too.
const PROCESSES_MAX: u32 = 4096;
/// What clones and probes name instead of an image: this worker's own.
pub(super) const OWN: &str = "callboard-worker";

/// The back end.
#[derive(Debug)]
pub struct Docker {
    settings: Settings,
    pub(super) place: Place,
    pub(super) ours: Ours,
    pub(super) reach: Reach,
    /// What the daemon says it can enforce.
    pub(super) able: Able,
    images: Mutex<BTreeMap<String, Image>>,
}

impl Docker {
    /// The back end of the daemon that `settings` name, for the worker of `scope`.
    ///
    /// # Errors
    ///
    /// What is wrong, for a person.
    pub async fn new(settings: Settings, place: Place, scope: Scope) -> Result<Self, String> {
        let at = |error: bollard::errors::Error| format!("{}: {}", settings.socket.display(), words(&error));
        let daemon = Daemon::find(settings.socket.clone()).await.map_err(at)?;
        let info = daemon.info().await.map_err(at)?;
        let kit = Kit::of_this_process(&place.binary).map_err(|error| format!("this program's own parts: {error}"))?;
        let image = kit.image(&daemon).await.map_err(|error| format!("no image of our own: {}", words(&error)))?;
        let engine = daemon.engine().await.map_err(at)?;
        if engine == Engine::Podman {
            warn!(
                "Podman is not supported: now and then a build hangs, or its output is cut; use a daemon of Docker's"
            );
        }
        let ours = Ours { daemon, engine, kit, scope, image };
        let reach = reach::find(&ours, &info, &place).await?;
        Ok(Self { settings, place, ours, reach, able: Able::of(&info), images: Mutex::default() })
    }

    /// Whether the daemon sees this worker's file system.
    #[must_use]
    pub fn reach(&self) -> Reach {
        self.reach
    }

    pub(super) fn user(&self, slot: u32) -> u32 {
        match self.reach {
            Reach::Shared => self.place.run_as(slot).unwrap_or_else(|| nix::unistd::geteuid().as_raw()),
            Reach::Apart => FIRST_UID_APART.saturating_add(slot),
        }
    }

    fn known(&self, image: &str) -> Option<Image> {
        self.images.lock().unwrap_or_else(PoisonError::into_inner).get(image).cloned()
    }

    async fn image(&self, image: &str) -> Result<Image, StartError> {
        if image == OWN {
            return Ok(Image { id: self.ours.image.id.clone(), env: Vec::new(), volumes: Vec::new() });
        }
        match self.known(image) {
            Some(known) => Ok(known),
            None => self.make_ready(image, &BTreeMap::new(), &|_| {}).await,
        }
    }

    async fn make_ready(&self, image: &str, secrets: &Secrets, say: Say<'_>) -> Result<Image, StartError> {
        self.takes(image)?;
        let ready = fetch(&self.ours.daemon, self.settings.pull, image, secrets, say).await?;
        self.images.lock().unwrap_or_else(PoisonError::into_inner).insert(image.to_owned(), ready.clone());
        Ok(ready)
    }

    /// An empty directory of the build's user, in which its first process opens the way in.
    fn make_door(&self, task: &Task) -> io::Result<PathBuf> {
        let directory = task.directory.join(volumes::DOOR.0);
        match fs::remove_dir_all(&directory) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            Ok(()) | Err(_) => {}
        }
        fs::create_dir(&directory)?;
        fs::set_permissions(&directory, fs::Permissions::from_mode(0o700))?;
        if let Some(user) = self.place.run_as(task.slot) {
            chown(&directory, Some(user), Some(user))?;
        }
        Ok(directory.join(names::DOOR))
    }

    fn orders(&self, task: &Task, build: &str, image: Image) -> ContainerOrders {
        let labels = self.ours.scope.of_build(build);
        let plan = self.plan(task, &image);
        let mut mounts = volumes::kept(self.reach, &task.directory, build, &labels);
        mounts.push(volumes::kit(self.reach, &self.place.binaries(), &self.ours.kit_volume()));
        let spec = Spec {
            image: image.id,
            command: self.ours.kit.command(&["sandbox-init"]),
            scope: &self.ours.scope,
            build,
            user: self.user(task.slot),
            network: "none",
            mounts,
            memory: image.volumes,
            limits: task.limits,
            capabilities: &[],
            engine: self.ours.engine,
        };
        ContainerOrders {
            daemon: self.ours.daemon.address.clone(),
            name: format!("callboard-{}", Uuid::new_v4()),
            body: spec.body(),
            ended_mark: Site::ended_mark(&task.directory),
            is_kept: false,
            plan,
            bounded: volumes::bounded(self.reach, &task.directory),
            disk_bytes: task.limits.disk_bytes,
            fence_at: task.fence_at,
            tells_fence: self.ours.engine.may_be_told_at_any_time(),
            kill_grace_ms: millis(task.kill_grace),
        }
    }

    fn plan(&self, task: &Task, image: &Image) -> Plan {
        let mut files = task.files.clone();
        if let Ok(content) = fs::read_to_string(task.directory.join(names::CERTIFICATES)) {
            files.push(PlanFile { name: names::CERTIFICATES.into(), mode: 0o644, content });
        }
        Plan {
            argv: task.argv.clone(),
            env: environment(&image.env, &task.env, &path_variable()),
            files,
            proxy_port: None,
            door: None,
            processes_max: PROCESSES_MAX.max(task.limits.processes),
            linger_ms: millis(task.kill_grace),
        }
    }
}

/// Secrets by registry.
type Secrets = BTreeMap<String, protocol::worker::Secret>;
type Say<'a> = &'a (dyn Fn(&str) + Send + Sync);

impl Isolation for Docker {
    fn name(&self) -> &'static str {
        "docker"
    }

    fn takes(&self, image: &str) -> Result<(), StartError> {
        match image {
            OWN => Ok(()),
            "host" => {
                let why = "this worker has the docker back end alone, which runs images";
                Err(StartError::Image(format!("image \"host\" can't be run: {why}")))
            }
            image if is_reference(image) => Ok(()),
            image => Err(StartError::Image(format!("image {image:?} is not the name of an image"))),
        }
    }

    fn clone_image(&self) -> &str {
        &self.settings.clone_image
    }

    fn probe(&self) -> (String, Vec<String>) {
        self.own(&["--version"])
    }

    fn own(&self, args: &[&str]) -> (String, Vec<String>) {
        (OWN.into(), self.ours.kit.command(args))
    }

    fn has_sandboxes(&self) -> bool {
        false
    }

    fn network(&self, of: NetworkOf<'_>) -> Option<ContainerOrders> {
        Some(network::orders(self, of))
    }

    fn guarantees(&self) -> Trying<'_> {
        self.given().boxed()
    }

    fn fetch<'a>(&'a self, fetch: Fetch<'a>) -> BoxFuture<'a, Result<(), StartError>> {
        async move {
            let image = self.make_ready(fetch.image, fetch.secrets, fetch.say);
            let network = async {
                match fetch.way_out {
                    Some(way_out) => joined(way_out).await.map(drop),
                    None => Ok(()),
                }
            };
            tokio::try_join!(image, network).map(drop)
        }
        .boxed()
    }

    fn start(&self, task: Task) -> BoxFuture<'_, Result<Running, StartError>> {
        async move {
            let image = self.image(&task.image).await?;
            let build = build_of(&task);
            let orders = self.orders(&task, &build, image);
            let (daemon, name) = (self.ours.daemon.clone(), orders.name.clone());
            let mut errand = Errand::Container(Box::new(orders));
            if let Some(way_out) = &task.way_out {
                errand.join(&joined(way_out).await?);
            }
            let started = client::start(&self.place.installed(), &build, &errand).await;
            let running =
                started.map_err(|error| StartError::Trouble(format!("the guard could not be started: {error}")))?;
            Ok(Running { ended: and_gone(running.ended, daemon, name).boxed(), ..running })
        }
        .boxed()
    }

    /// Where the daemon does not see this worker's files, nothing here would see a container's door.
    fn holds_previews(&self, image: &str) -> bool {
        self.reach == Reach::Shared && image != OWN && self.takes(image).is_ok()
    }

    fn service(&self, task: Task, of: ServiceOf) -> BoxFuture<'_, Result<Service, StartError>> {
        async move {
            let image = self.image(&task.image).await?;
            let trouble = |error: io::Error| StartError::Trouble(format!("its way in: {error}"));
            let door = self.make_door(&task).map_err(trouble)?;
            let build = build_of(&task);
            let mut orders = self.orders(&task, &build, image);
            let mounts = orders.body.host_config.get_or_insert_default().mounts.get_or_insert_default();
            mounts.push(volumes::door(&task.directory));
            orders.plan.door = Some(Door { socket: Path::new(volumes::DOOR.1).join(names::DOOR), port: of.port });
            orders.is_kept = of.retain_failed;
            let (images, fence_at) = (&[task.image.as_str()], task.fence_at);
            let of = NetworkOf { build: &build, directory: &task.directory, slot: task.slot, images, fence_at };
            let network = ServiceNetwork::Container(Box::new(network::orders(self, of)));
            Ok(Service { errand: Errand::Container(Box::new(orders)), door, network })
        }
        .boxed()
    }

    fn way_out<'a>(&'a self, way: egress::Way<'a>, refusals: Refusals) -> BoxFuture<'a, io::Result<Proxy>> {
        match self.reach {
            Reach::Shared => Proxy::start(way, refusals).boxed(),
            Reach::Apart => {
                let user = self.user(way.slot);
                out::contained(&self.ours, way, user, refusals).boxed()
            }
        }
    }

    fn clear<'a>(&'a self, build: &'a str) -> BoxFuture<'a, Result<(), String>> {
        async move {
            let ended = leftovers::end(&self.ours.daemon, &labels::build(build)).await;
            ended.map(drop).map_err(|error| words(&error))
        }
        .boxed()
    }
}

/// The build, as its directory is called.
fn build_of(task: &Task) -> String {
    task.directory.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default()
}

/// The way into the network of a build's containers; without one nothing is started.
async fn joined(way_out: &WayOut) -> Result<Joined, StartError> {
    let joined = match &way_out.containers {
        Some(awaited) => awaited.joined().await,
        None => Err("there is none".into()),
    };
    joined.map_err(|why| StartError::Trouble(format!("the network of the build's containers: {why}")))
}

/// A guard that was killed has not removed its container.
async fn and_gone(ended: BoxFuture<'static, Ended>, daemon: Daemon, name: String) -> Ended {
    let ended = ended.await;
    if matches!(ended, Ended::Broken(_)) {
        remove(&daemon, &name).await;
    }
    ended
}

async fn remove(daemon: &Daemon, name: &str) {
    let removed = async {
        while daemon.remove(name).await.is_err() {
            sleep(Duration::from_millis(200)).await;
        }
    };
    if timeout(ORPHAN_PATIENCE, removed).await.is_err() {
        warn!(container = name, "a container can't be removed; it is left to the next recovery");
    }
}

/// Removes a container, if its daemon answers soon. One that is gone is as well.
pub async fn remove_soon(daemon: &Address, name: &str) {
    if let Ok(daemon) = Daemon::at(daemon.clone()) {
        remove(&daemon, name).await;
    }
}
