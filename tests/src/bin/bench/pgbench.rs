//! pgbench: what Postgres does when nobody but it is asked.

use crate::statements::Script;
use anyhow::{Context as _, bail};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;
use tokio::process::Command;

/// Runs a script over prepared statements for a span. The caller counts what it did: a script may come away with nothing.
///
/// # Errors
///
/// If it fails, or one of its clients does.
pub async fn run(dir: &Path, url: &str, script: &Script, clients: usize, span: Duration) -> anyhow::Result<()> {
    let file = dir.join("script.sql");
    std::fs::write(&file, &script.text)?;
    let mut command = Command::new(program());
    command.args(["--no-vacuum", "--protocol=prepared", "--jobs=2"]);
    command.arg(format!("--client={clients}")).arg(format!("--time={}", span.as_secs()));
    for (name, value) in &script.variables {
        command.arg(format!("--define={name}={value}"));
    }
    command.arg("--file").arg(&file).arg(url).stdin(Stdio::null()).kill_on_drop(true);
    let output = command.output().await.context("pgbench can't be run: it comes with the server's packages")?;
    let words = String::from_utf8_lossy(&output.stderr);
    if !output.status.success() || words.contains("aborted") {
        let first: Vec<&str> = words.lines().take(4).collect();
        bail!("pgbench ended with {}: {}", output.status, first.join("\n"));
    }
    Ok(())
}

/// The one of the newest server, else that of the PATH.
fn program() -> PathBuf {
    let folders = std::fs::read_dir("/usr/lib/postgresql").into_iter().flatten().flatten();
    let mut found: Vec<PathBuf> = folders.map(|folder| folder.path().join("bin/pgbench")).collect();
    found.retain(|file| file.exists());
    found.sort();
    found.pop().unwrap_or_else(|| "pgbench".into())
}
