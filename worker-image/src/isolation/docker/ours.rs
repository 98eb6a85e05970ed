//! Containers of our own image, which run nothing but our own program.

use super::daemon::{Daemon, Engine};
use super::kit::{IMAGE, Kit, OwnImage};
use super::labels::Scope;
use super::spec::Spec;
use crate::clock::Boot;
use crate::isolation::Limits;
use crate::isolation::plan::{ContainerOrders, Env, Plan};
use bollard::errors::Error;
use bollard::models::{ContainerCreateBody, Mount};
use bollard::query_parameters::{CreateContainerOptionsBuilder, StartContainerOptions, WaitContainerOptionsBuilder};
use futures::StreamExt as _;
use std::path::PathBuf;
use std::time::Duration;
use tokio::time::timeout;
use uuid::Uuid;

/// How long a container may take that does next to nothing.
const PATIENCE: Duration = Duration::from_secs(60);
/// What it may take: there are builds beside it.
const LIMITS: Limits = Limits { memory_bytes: 256 << 20, processes: 512, cpu_millis: 1000, disk_bytes: 0 };

/// What it takes to run our own program.
#[derive(Clone, Debug)]
pub(super) struct Ours {
    /// Whose containers they are.
    pub daemon: Daemon,
    /// Whose daemon that is.
    pub engine: Engine,
    /// What the program is made of.
    pub kit: Kit,
    /// Whose they are among those that share the daemon.
    pub scope: Scope,
    /// The image.
    pub image: OwnImage,
}

impl Ours {
    /// The name of the volume that holds the kit.
    pub(super) fn kit_volume(&self) -> String {
        format!("{IMAGE}-{}", self.image.tag)
    }

    /// A container that runs our program with `args` as somebody who may do nothing, beside `build`.
    pub(super) fn spec<'a>(&'a self, args: &[&str], build: &'a str, user: u32, mounts: Vec<Mount>) -> Spec<'a> {
        Spec {
            image: self.image.id.clone(),
            command: self.kit.command(args),
            scope: &self.scope,
            build,
            user,
            network: "none",
            mounts,
            memory: Vec::new(),
            limits: LIMITS,
            capabilities: &[],
            engine: self.engine,
        }
    }

    /// What a guard does of a container that stands beside a build until the worker or the build ends, and no longer than to `fence_at`
    /// unless that is renewed: then it must heed what it is told of that, by [`crate::isolation::ask`].
    pub(super) fn orders(
        &self,
        body: ContainerCreateBody,
        ended_mark: PathBuf,
        fence_at: Option<Boot>,
    ) -> ContainerOrders {
        ContainerOrders {
            is_kept: false,
            daemon: self.daemon.address.clone(),
            name: format!("callboard-{}", Uuid::new_v4()),
            body,
            ended_mark,
            plan: nothing(),
            bounded: Vec::new(),
            disk_bytes: 0,
            fence_at: fence_at.unwrap_or(Boot(u64::MAX)),
            tells_fence: fence_at.is_some() && self.engine.may_be_told_at_any_time(),
            kill_grace_ms: 0,
        }
    }

    /// Runs our program with `args` to its end.
    ///
    /// # Errors
    ///
    /// If the daemon can't run it, or it fails.
    pub(super) async fn run(&self, args: &[&str], build: &str, mounts: Vec<Mount>) -> Result<(), Error> {
        self.finish(self.spec(args, build, nix::unistd::geteuid().as_raw(), mounts)).await
    }

    /// Gives directories to `user`, which takes root and two rights of root's; only our own program ever gets them.
    ///
    /// # Errors
    ///
    /// If the daemon can't run it, or it fails.
    pub(super) async fn hand_over(
        &self,
        directories: &[&str],
        user: u32,
        build: &str,
        mounts: Vec<Mount>,
    ) -> Result<(), Error> {
        let user = user.to_string();
        let args = [&["hand-over", "--user", &user], directories].concat();
        let spec = Spec { capabilities: &["CHOWN", "FOWNER"], ..self.spec(&args, build, 0, mounts) };
        self.finish(spec).await
    }

    async fn finish(&self, spec: Spec<'_>) -> Result<(), Error> {
        let (daemon, name) = (&self.daemon, format!("callboard-{}", Uuid::new_v4()));
        let named = CreateContainerOptionsBuilder::default().name(&name).build();
        let running = async {
            daemon.quick.create_container(Some(named), spec.body()).await?;
            daemon.quick.start_container(&name, None::<StartContainerOptions>).await?;
            let until = WaitContainerOptionsBuilder::default().condition("not-running").build();
            let ended = daemon.patient.wait_container(&name, Some(until)).next().await;
            ended.unwrap_or(Err(Error::RequestTimeoutError))
        };
        let ran = timeout(PATIENCE, running).await.unwrap_or(Err(Error::RequestTimeoutError));
        daemon.remove(&name).await?;
        ran.map(drop)
    }
}

/// What stands beside a build reads its input for its end alone.
fn nothing() -> Plan {
    Plan {
        argv: Vec::new(),
        env: Env::new(),
        files: Vec::new(),
        proxy_port: None,
        door: None,
        processes_max: 0,
        linger_ms: 0,
    }
}
