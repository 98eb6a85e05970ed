//! Starts a preview's keeper.

use super::folder::Folder;
use super::keeper::{Orders, READY};
use super::settings::Settings;
use crate::clock::{Boot, millis};
use crate::clone::logins;
use crate::config::Config;
use crate::isolation::cgroup;
use crate::isolation::plan::{Env, Errand, INSIDE, PlanFile};
use crate::isolation::{Fetch, Isolation, ServiceOf, StartError, Task};
use crate::mask::Masks;
use crate::network::{Inside, WayOut};
use crate::script;
use crate::site::Site;
use protocol::preview::PreviewRun;
use rules::preview::Stage;
use rules::variables::{Origin, environment};
use std::io;
use std::path::Path;
use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::process::Command;
use tokio::task::spawn_blocking;
use tokio::time::timeout;
use tracing::info;
use uuid::Uuid;

/// How long a keeper may take to begin.
const PATIENCE: Duration = Duration::from_secs(10);
/// The script's name among the service's files.
const SCRIPT: &str = "script";

/// Why a preview could not be started.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct NotStarted {
    /// At what it fails.
    pub(super) stage: Stage,
    /// What to say about it.
    pub(super) why: String,
}

impl From<StartError> for NotStarted {
    fn from(error: StartError) -> Self {
        Self { stage: Stage::Start, why: error.to_string() }
    }
}

/// Starts what `run` says from the kept workspace in `folder`. The future may be dropped while an image is fetched. No secret of `run`
/// is in what is said of a failure, whatever a registry has said.
pub(super) async fn start(
    config: &Config,
    isolation: &dyn Isolation,
    folder: &Folder,
    run: PreviewRun,
) -> Result<(), NotStarted> {
    let secrets = secrets(&run);
    let masked = |failed: NotStarted| {
        let masks = Arc::new(Masks::new(secrets.iter().map(String::as_str)));
        NotStarted { why: masks.text(&failed.why), ..failed }
    };
    begin(config, isolation, folder, run).await.map_err(masked)
}

/// What its service sees, and what registries are shown.
fn secrets(run: &PreviewRun) -> Vec<String> {
    let seen = run.secrets.values().map(|secret| secret.0.as_str());
    seen.chain(logins(run.registry_secrets.values())).map(str::to_owned).collect()
}

async fn begin(config: &Config, isolation: &dyn Isolation, folder: &Folder, run: PreviewRun) -> Result<(), NotStarted> {
    if !config.previews.enabled || !isolation.holds_previews(&run.image) {
        let why = format!("its host holds no previews that run in image {:?}", run.image);
        return Err(NotStarted { stage: Stage::Unsupported, why });
    }
    isolation.fetch(Fetch { image: &run.image, secrets: &run.registry_secrets, say: &|_| {}, way_out: None }).await?;
    let trouble = |error: io::Error| NotStarted { stage: Stage::Start, why: format!("its keeper: {error}") };
    let orders = orders(config, isolation, folder, run).await?;
    let (root, build) = (config.place.builds_root.clone(), folder.build);
    // What an earlier try left keeps no later one from its group.
    let cleared = spawn_blocking(move || cgroup::end_of(&root, &build.to_string())).await;
    cleared.map_err(io::Error::other).flatten().map_err(trouble)?;
    spawn(&config.place.installed(), build, &orders).await.map_err(trouble)?;
    info!(build.id = %build, "preview's keeper started");
    Ok(())
}

async fn orders(
    config: &Config,
    isolation: &dyn Isolation,
    folder: &Folder,
    run: PreviewRun,
) -> Result<Orders, NotStarted> {
    let trouble = |error: io::Error| NotStarted { stage: Stage::Start, why: format!("its workspace: {error}") };
    let slot = folder.slot().map_err(trouble)?;
    Site::reopen_in(&folder.site).map_err(trouble)?;
    let secrets = run.secrets.values().map(|secret| secret.0.clone()).collect();
    let task = Task {
        image: run.image.clone(),
        argv: ["/bin/sh", "-e", &format!("{INSIDE}/{SCRIPT}")].map(str::to_owned).into(),
        env: env(folder.build, &run),
        files: vec![PlanFile { name: SCRIPT.into(), mode: 0o600, content: script::script(&run.commands, None) }],
        directory: folder.site.clone(),
        slot,
        number: 0,
        // Its network is made by its keeper.
        way_out: Some(WayOut { sandboxes: Some(Inside { process: 0, proxy_port: 0 }), containers: None }),
        limits: config.limits,
        // Its end is the keeper's, and no lease's.
        fence_at: Boot(u64::MAX),
        kill_grace: config.grace.kill,
    };
    let of = ServiceOf { port: run.port, retain_failed: run.retain_failed };
    let service = isolation.service(task, of).await?;
    if let Errand::Container(_) = service.errand {
        folder.note_container(run.retain_failed).map_err(trouble)?;
    }
    Ok(Orders {
        build: folder.build,
        site: folder.site.clone(),
        binary: config.place.installed(),
        slot,
        run_as: config.place.run_as(slot),
        errand: service.errand,
        network: service.network,
        door: service.door,
        allowed: config.egress_allow.clone(),
        resolver: config.resolver,
        port: run.port,
        health_path: run.health_path,
        secrets,
        settings: Settings::clone(&config.previews),
        kill_grace_ms: millis(config.grace.kill),
    })
}

/// What a service's shell is given. A build's variable that a secret hides is not in `run`.
fn env(build: Uuid, run: &PreviewRun) -> Env {
    let mut ours = script::sandbox_env(build);
    ours.insert("CALLBOARD_PREVIEW".into(), "true".into());
    ours.insert("PORT".into(), run.port.to_string());
    let secrets = script::values(&run.secrets);
    environment([(Origin::Callboard, ours), (Origin::Secret, secrets), (Origin::Own, run.env.clone())])
}

/// A keeper that has not heard its whole line when this ends, ends too.
async fn spawn(binary: &Path, build: Uuid, orders: &Orders) -> io::Result<()> {
    let mut line = serde_json::to_vec(orders)?;
    line.push(b'\n');
    let mut command = Command::new(binary);
    command.args(["keep", "--build", &build.to_string()]).env_clear().current_dir("/");
    let mut keeper = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn()?;
    let (stdin, stdout) = keeper.stdin.take().zip(keeper.stdout.take()).ok_or(io::ErrorKind::BrokenPipe)?;
    let mut stdin = stdin;
    let begins = async {
        stdin.write_all(&line).await?;
        drop(stdin);
        let mut said = String::new();
        BufReader::new(stdout).read_line(&mut said).await?;
        match said.trim() {
            READY => Ok(()),
            "" => Err(io::Error::other("it ended without a word")),
            said => Err(io::Error::other(said.to_owned())),
        }
    };
    match timeout(PATIENCE, begins).await {
        Ok(began) => began,
        Err(_) => {
            keeper.kill().await.ok();
            Err(io::ErrorKind::TimedOut.into())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn the_previews_own_variable_hides_a_secret() {
        let run = json!({
            "image": "", "commands": ["serve"], "port": 8080, "health_path": "/",
            "env": { "KEY": "own" }, "secrets": { "KEY": "s3cret", "TOKEN": "s3cret" },
        });
        let env = env(Uuid::nil(), &serde_json::from_value(run).unwrap());
        assert_eq!((env["KEY"].as_str(), env["TOKEN"].as_str()), ("own", "s3cret"));
    }
}
