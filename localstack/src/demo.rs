//! `callboard demo`: a whole board for one build, which leaves nothing behind.

mod groups;
mod kill_worker;
mod place;
mod secrets;
mod source;
mod toolchain;

use crate::client::Client;
use crate::follow::{Lines, follow, waiting};
use crate::git_https::GitHttps;
use crate::receipt::receipt;
use crate::say;
use crate::screen::Screen;
use crate::signals::Signals;
use crate::stack::{Options, Stack};
use crate::{leftovers, postgres, worker};
use place::Place;
pub(crate) use place::sweep_dead;
use protocol::Status;
use protocol::build::Build;
use protocol::worker::Secret;
use rules::Timing;
use source::Source;
use std::collections::{BTreeMap, BTreeSet};
use std::io::stdout;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use toolchain::Toolchain;

/// Nothing here can run a build (EX_UNAVAILABLE).
const NO_SANDBOX: u8 = 69;
/// Something was left behind (EX_SOFTWARE).
const LEFT: u8 = 70;
/// How long what was ended may still be seen.
const FADES: Duration = Duration::from_secs(2);

/// What `demo` is told.
#[derive(Clone, Debug)]
pub struct DemoOptions {
    /// A git repository to build, instead of the sample.
    pub path: Option<PathBuf>,
    /// Kill the worker in the middle of a step, and show what becomes of the build.
    pub kill_worker: bool,
    /// Secrets that the pipeline names.
    pub secrets: BTreeMap<String, Secret>,
    /// Where it is shown.
    pub screen: Screen,
}

/// Runs a build on a board of its own. Returns the exit code: 0 success, 1 failed, 3 cancelled, 4 timed out, 69 no
/// sandbox works here, 70 something was left behind, 128 + N ended by signal N.
///
/// # Errors
///
/// What is missing, and how to mend it. Nothing is left behind.
pub async fn demo(options: DemoOptions) -> anyhow::Result<u8> {
    let mut signals = Signals::listen()?;
    leftovers::adopt()?;
    sweep_dead();
    let place = Place::make()?;
    let mut scene = None;
    let ended = tokio::select! {
        ended = act(&mut scene, place.path(), &options) => ended,
        caught = signals.next() => Ok(caught.code),
    };
    if let Some(scene) = scene {
        tokio::select! {
            stopped = scene.stack.stop() => stopped?,
            // A second signal ends at once what the first asked to end.
            _ = signals.next() => {}
        }
    }
    let (clean, told) = clear(place).await;
    // Whether anybody reads this does not matter any more.
    match ended {
        Ok(code) => {
            let _ = say::out(told);
            Ok(if code == 0 && !clean { LEFT } else { code })
        }
        // The reason is what is to be read, and it comes last; that nothing is left would only stand before it.
        Err(error) => {
            if !clean {
                say::err(told);
            }
            Err(error)
        }
    }
}

/// Counts what is left, ends it, and removes the directory. Whether nothing was left, and what to say of it.
async fn clear(place: Place) -> (bool, String) {
    let dir = place.path().to_owned();
    let left = Left::faded(&dir).await;
    let (ended, gone) = leftovers::end_descendants();
    let end = match (ended, gone) {
        (0, _) => "",
        (_, true) => " (ended now)",
        (_, false) => " (some can't be ended)",
    };
    let removed = place.remove();
    let directory = match &removed {
        Ok(()) => "directory removed".to_owned(),
        Err(error) => format!("{} can't be removed: {error}", dir.display()),
    };
    let told = format!("processes left: {}{end}, mounts left: {}, {directory}", left.processes, left.mounts);
    (left.is_nothing() && removed.is_ok(), told)
}

struct Left {
    processes: usize,
    mounts: usize,
}

impl Left {
    /// Everything that descends from us or has to do with the directory.
    fn count(dir: &Path) -> Self {
        let processes: BTreeSet<u32> = leftovers::descendants().into_iter().chain(leftovers::processes(dir)).collect();
        Self { processes: processes.len(), mounts: leftovers::mounts(dir) }
    }

    /// The same once what was ended has had the time to be gone.
    async fn faded(dir: &Path) -> Self {
        let begun = Instant::now();
        loop {
            let left = Self::count(dir);
            if left.is_nothing() || begun.elapsed() > FADES {
                return left;
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }

    fn is_nothing(&self) -> bool {
        self.processes == 0 && self.mounts == 0
    }
}

/// A board with everything that one build needs.
struct Scene {
    stack: Stack,
    git: GitHttps,
    source: Source,
    client: Client,
    screen: Screen,
    toolchain: Option<Toolchain>,
    /// The limits that this machine does not give.
    accept: Vec<String>,
}

async fn act(scene: &mut Option<Scene>, dir: &Path, options: &DemoOptions) -> anyhow::Result<u8> {
    scene.insert(Scene::set(dir, options).await?).play(options).await
}

impl Scene {
    async fn set(dir: &Path, options: &DemoOptions) -> anyhow::Result<Self> {
        let stack_dir = dir.join("board");
        postgres::user::check(&stack_dir.join("postgres")).await?;
        let timing = if options.kill_worker { kill_worker::timing() } else { Timing::default() };
        let repository = match &options.path {
            Some(path) => std::path::absolute(path)?,
            None => source::sample(&dir.join("sample"), options.kill_worker).await?,
        };
        let git = GitHttps::serve(&repository, dir).await?;
        let source = Source::read(&repository, &git, options.path.is_some()).await?;
        secrets::check(&source.spec, options)?;
        let stack = Stack::start(Options { dir: stack_dir, port: 0, database_url: None, timing: Some(timing) }).await?;
        say::out(format_args!("board    {} over its own Postgres", stack.url()))?;
        say::out(format_args!("source   {} (HEAD of {}; what is not committed is not built)", git.url(), source.name))?;
        let client = Client::new(stack.url(), stack.tokens().api.clone())?;
        // The sample needs none.
        let toolchain = if options.path.is_some() { Toolchain::find(stack.dir()).await? } else { None };
        Ok(Self { stack, git, source, client, screen: options.screen, toolchain, accept: Vec::new() })
    }

    async fn play(&mut self, options: &DemoOptions) -> anyhow::Result<u8> {
        secrets::set(&self.client, &options.secrets).await?;
        self.client.apply(&self.source.slug, &self.source.spec).await?;
        match worker::doctor(self.stack.dir()).await {
            Ok(accept) => self.accept = accept,
            Err(why) => return self.wait_in_vain(&why).await,
        }
        self.start_worker(options.kill_worker)?;
        let build = self.client.submit(&self.source.slug).await?;
        say::out(format_args!("build    {} submitted\n", build.id))?;
        if options.kill_worker {
            return kill_worker::play(self, build).await;
        }
        let ended = follow(&self.client, build.id, &mut Lines::new(stdout(), self.screen)).await?;
        self.print_receipt(&ended).await?;
        Ok(exit_code(&ended))
    }

    fn start_worker(&mut self, short: bool) -> anyhow::Result<()> {
        let mut extra = if short { kill_worker::worker_arguments() } else { Vec::new() };
        extra.extend(self.toolchain.iter().flat_map(Toolchain::arguments));
        self.stack.start_worker(worker::Options {
            api_url: self.stack.url(),
            dir: self.stack.dir().to_owned(),
            ca_bundle: Some(self.git.authority().to_owned()),
            egress_allow: vec![self.git.egress()],
            accept: self.accept.clone(),
            slots: 1,
            restart: !short,
            extra,
        })?;
        say::out("worker   callboard-worker, sandboxes by bubblewrap")?;
        if let Some(toolchain) = &self.toolchain {
            say::out(format_args!("tools    {toolchain}"))?;
        }
        worker::unlimited(&self.accept).map_or(Ok(()), |line| Ok(say::out(format_args!("         {line}"))?))
    }

    async fn print_receipt(&self, build: &Build) -> anyhow::Result<()> {
        let workspace = self.client.workspace().await?;
        let left = workspace.left_seconds.map_or_else(|| "?".into(), |left| (left / 60).to_string());
        let reserved = build.max_duration_seconds.unwrap_or(0);
        let freed =
            format!("the lease, and {reserved} s that were reserved; still reserved: {} s", workspace.reserved_seconds);
        let more = [("left", format!("{left} minutes of this month")), ("freed", freed)];
        say::out(self.screen.paint.bold("\n── receipt"))?;
        Ok(say::out(format_args!("{}\n", receipt(build, &more, self.screen)))?)
    }

    /// No sandbox, no build: it is submitted all the same, so that one sees it wait.
    async fn wait_in_vain(&self, why: &anyhow::Error) -> anyhow::Result<u8> {
        let build = self.client.submit(&self.source.slug).await?;
        let build = self.client.build(build.id).await?;
        say::out(format_args!("build    {} is {}: {}", build.id, build.status, waiting(&build)))?;
        say::out(format_args!(
            "No worker was started, since no sandbox works on this machine. It waits for capacity.\n\n{why}"
        ))?;
        Ok(NO_SANDBOX)
    }
}

fn exit_code(build: &Build) -> u8 {
    match build.status {
        Status::Success => 0,
        Status::Failed | Status::Pending | Status::Running => 1,
        Status::Cancelled => 3,
        Status::TimedOut => 4,
    }
}
