//! Functions, a worker and, where it is to be killed, a Postgres of their own, each a process, and a preview that somebody uses.

use super::life::Life;
use super::postgres::Server;
use super::scene::{self, Scene};
use crate::Board;
use crate::previews::holds_together;
use http::Method;
use localstack::leftovers;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;
use std::path::PathBuf;
use std::time::{Duration, Instant};
use tokio::io::AsyncWriteExt as _;
use tokio::process::Child;
use tokio::time::timeout;
use uuid::Uuid;

/// How long anything may take.
const PATIENCE: Duration = Duration::from_secs(60);
const LOOK_EVERY: Duration = Duration::from_millis(10);

/// Who is killed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Victim {
    Functions,
    Worker,
    Postgres,
}

pub(super) struct House {
    pub(super) board: Board,
    victim: Victim,
    scene: Scene,
    functions: scene::Functions,
    worker: Child,
    /// How long the log of workers was when this one started.
    log_before: usize,
    postgres: Option<Server>,
}

impl House {
    /// `None`, said out loud, where no worker can run.
    pub(super) async fn set(victim: Victim) -> Option<Self> {
        let scene = Scene::set().await?;
        let postgres = if victim == Victim::Postgres { Some(Server::start(scene.dir.path()).await) } else { None };
        let board = match &postgres {
            Some(server) => Board::on(&server.url).await,
            None => Board::new().await,
        };
        board.pipeline(&board.api, "main", &scene.pipeline()).await;
        scene.keep_token(&board.worker);
        let functions = scene.functions(&board.shell.config.database_url).await;
        let (log_before, worker) = (0, scene.worker());
        Some(Self { board, victim, scene, functions, worker, log_before, postgres })
    }

    fn victim(&mut self) -> &mut Child {
        match (self.victim, &mut self.postgres) {
            (Victim::Functions, _) => &mut self.functions.process,
            (Victim::Worker, _) | (Victim::Postgres, None) => &mut self.worker,
            (Victim::Postgres, Some(server)) => &mut server.process,
        }
    }

    /// From now on the victim is killed as soon as the point is reached.
    pub(super) async fn arm(&mut self, point: &str) {
        assert!(!self.tell_to_arm(point).await, "the victim was killed before {point}");
    }

    /// Whether the victim was killed at the point that is armed, which is none any more.
    async fn disarm(&mut self) -> bool {
        self.tell_to_arm("nowhere").await
    }

    async fn tell_to_arm(&mut self, point: &str) -> bool {
        let line = format!("{point} {}\n", self.victim().id().unwrap_or(0));
        let (Ok(()), Ok(Some(said))) =
            (self.functions.tell.write_all(line.as_bytes()).await, self.functions.said.next_line().await)
        else {
            return true;
        };
        said == "struck"
    }

    /// Waits until the victim is dead, and starts it again.
    pub(super) async fn is_struck(&mut self, point: &str) {
        let victim = self.victim;
        let ended = timeout(PATIENCE, self.victim().wait()).await;
        ended.unwrap_or_else(|_| panic!("{point} was not reached, with {victim:?} as victim")).expect("waited for");
        self.disarm().await;
        self.start_again().await;
    }

    async fn start_again(&mut self) {
        match self.victim {
            Victim::Functions => self.functions = self.scene.functions(&self.board.shell.config.database_url).await,
            Victim::Worker => (self.log_before, self.worker) = (self.scene.log().len(), self.scene.worker()),
            Victim::Postgres => {
                let answers = || timeout(LOOK_EVERY * 20, self.board.try_execute("select 1"));
                while !matches!(answers().await, Ok(Ok(_))) {
                    self.postgres.iter_mut().for_each(Server::start_again);
                    tokio::time::sleep(LOOK_EVERY).await;
                }
            }
        }
    }

    /// Whether a build succeeded. If not, it was ended by a recovery, which only its worker's death excuses, and has left nothing.
    pub(super) async fn has_succeeded(&self, build: Uuid) -> bool {
        let how = self.until("the end of a build", async || {
            let build = self.board.get(&format!("/api/v1/builds/{build}")).await.body;
            build["ended_at"].is_string().then(|| build["end_reason"].as_str().unwrap_or("success").to_owned())
        });
        let how = how.await;
        if how == "success" {
            return true;
        }
        assert_eq!((how.as_str(), self.victim), ("recovery", Victim::Worker));
        assert_eq!(self.board.number(&format!("select count(*) from previews where build_id = '{build}'")).await, 0);
        self.until("no directory", async || (!self.site(build).exists()).then_some(())).await;
        false
    }

    /// A build whose preview starts while the victim is killed at a point of a sync. One that is reached with nothing to do as well
    /// is armed once there is something.
    pub(super) async fn starts_while_struck(&mut self, point: &str) -> Uuid {
        if !is_idle_too(point) {
            self.arm(point).await;
        }
        let build = self.board.submit().await;
        if is_idle_too(point) {
            self.until("a preview", async || self.status(build).await).await;
            self.arm(point).await;
        }
        self.is_struck(point).await;
        build
    }

    async fn status(&self, build: Uuid) -> Option<String> {
        Some(self.preview(build).await?["status"].as_str()?.to_owned())
    }

    /// `None` also where the database has just been killed.
    async fn preview(&self, build: Uuid) -> Option<Value> {
        let list = self.board.get(&format!("/api/v1/previews?build={build}")).await.body;
        list["previews"].get(0).cloned()
    }

    /// The preview of a build, once it runs.
    pub(super) async fn lives(&self, build: Uuid) -> Life {
        self.is(build, "running").await;
        let preview = self.until("a preview", async || self.preview(build).await).await;
        let port = preview["port"].as_u64().and_then(|port| u16::try_from(port).ok()).expect("a port");
        let id = preview["id"].as_str().expect("an id").to_owned();
        Life::begin((build, id), port, self.keepers(build)).await
    }

    /// Waits for a status; no preview of these stories fails.
    async fn is(&self, build: Uuid, status: &str) {
        let is = async || {
            let now = self.preview(build).await?;
            assert_ne!(now["status"], "failed", "{now}");
            (now["status"] == status).then_some(())
        };
        self.until(status, is).await;
    }

    /// Its users have noticed nothing: its address, its process, the connection that is open, and the board's word.
    pub(super) async fn goes_on(&self, life: &mut Life, after: &str) {
        assert_eq!(self.keepers(life.build), life.keepers, "after {after}");
        life.is_used(after).await;
        self.is(life.build, "running").await;
    }

    /// What is asked while the victim is killed at a point of it is done when it is asked again.
    pub(super) async fn is_asked_while_struck(&mut self, life: &Life, point: &str, (method, what): (&Method, &str)) {
        if what.ends_with("reconcile") {
            self.board.execute("update port_leases set port = 5").await;
        }
        self.arm(point).await;
        self.ask(life, method, what).await;
        self.is_struck(point).await;
        self.is_done(life, method, what).await;
    }

    /// Asks until the answer is a good one.
    async fn is_done(&self, life: &Life, method: &Method, what: &str) {
        let done = async || self.ask(life, method, what).await.filter(|status| (200..300).contains(status));
        self.until("an answer", done).await;
    }

    async fn ask(&self, life: &Life, method: &Method, what: &str) -> Option<u16> {
        if what.starts_with("/api/") {
            return self.functions.ask(method, what, &self.board.operator).await;
        }
        let path = format!("/api/v1/previews/{}{what}", life.id);
        self.functions.ask(method, &path, &self.board.api).await
    }

    /// Ends it by an order, with the victim killed at a point of that; nothing is left. Where a sync is of changes alone, those of the
    /// end are struck as well, if they come later than the order.
    pub(super) async fn ends(&mut self, life: Life, order: &str, sync: &str) {
        let (method, what) =
            if order.starts_with("cleanup.") { (Method::POST, "/api/v1/admin/sweep") } else { (Method::DELETE, "") };
        if order.starts_with("cleanup.") {
            let over = format!("update previews set expires_at = clock_timestamp() where build_id = '{}'", life.build);
            self.board.execute(&over).await;
        }
        self.is_asked_while_struck(&life, order, (&method, what)).await;
        if !is_idle_too(sync) {
            self.arm(sync).await;
            self.until_destroyed_or_killed(life.build).await;
            if self.disarm().await {
                self.is_struck(sync).await;
            }
        }
        self.has_gone(life).await;
    }

    /// Destroys it, and nobody is killed.
    pub(super) async fn destroys(&self, life: Life) {
        self.is_done(&life, &Method::DELETE, "").await;
        self.has_gone(life).await;
    }

    async fn has_gone(&self, life: Life) {
        let build = life.build;
        self.is(build, "destroyed").await;
        life.sees_its_end().await;
        self.until("nothing of it", async || self.is_gone(build).then_some(())).await;
    }

    async fn until_destroyed_or_killed(&mut self, build: Uuid) {
        let begun = Instant::now();
        while self.victim().try_wait().expect("asked").is_none()
            && self.status(build).await.as_deref() != Some("destroyed")
        {
            assert!(begun.elapsed() < PATIENCE, "{:?}", self.preview(build).await);
            tokio::time::sleep(LOOK_EVERY).await;
        }
    }

    fn site(&self, build: Uuid) -> PathBuf {
        self.scene.builds_root().join(build.to_string())
    }

    fn keepers(&self, build: Uuid) -> Vec<u32> {
        self.scene.called(&["keep", "--build", &build.to_string()])
    }

    fn is_gone(&self, build: Uuid) -> bool {
        let site = self.site(build);
        leftovers::processes(&site).is_empty() && leftovers::mounts(&site) == 0 && !site.join("preview/log").exists()
    }

    /// What the board has holds together, and no process is left.
    pub(super) async fn leaves_nothing(mut self) {
        let is_ready = || self.scene.log()[self.log_before..].contains("worker ready");
        self.until("a worker that is ready", async || is_ready().then_some(())).await;
        for _ in 0..2 {
            let pid = self.worker.id().and_then(|pid| i32::try_from(pid).ok()).expect("it runs");
            kill(Pid::from_raw(pid), Signal::SIGTERM).expect("signalled");
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
        timeout(PATIENCE, self.worker.wait()).await.expect("it ends").expect("waited for");
        holds_together(&self.board).await;
        assert_eq!(leftovers::processes(&self.scene.builds_root()), Vec::<u32>::new());
    }

    async fn until<T>(&self, what: &str, found: impl AsyncFn() -> Option<T>) -> T {
        let looking = async {
            loop {
                match found().await {
                    Some(it) => return it,
                    None => tokio::time::sleep(LOOK_EVERY).await,
                }
            }
        };
        let found = timeout(PATIENCE, looking).await;
        found.unwrap_or_else(|_| {
            panic!("{what} did not come, with {:?} as victim; the worker said:\n{}", self.victim, self.scene.log())
        })
    }
}

/// Whether a point of a sync is reached also where nothing has changed.
fn is_idle_too(point: &str) -> bool {
    ["sync.asked", "sync.noted"].contains(&point)
}
