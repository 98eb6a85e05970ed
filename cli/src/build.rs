//! `callboard build`.

use crate::args::BuildCommand;
use crate::exit;
use crate::output::{Output, ago, now, plain, took};
use localstack::client::Client;
use localstack::follow::Follow;
use protocol::Status;
use protocol::build::{Build, Builds, Submit};
use reqwest::Method;
use uuid::Uuid;

/// Does it; returns the exit code.
///
/// # Errors
///
/// What the board says.
pub async fn run(command: BuildCommand, board: &Client, output: Output) -> anyhow::Result<u8> {
    match command {
        BuildCommand::Submit { pipeline, git_ref, env, follow, idempotency_key } => {
            let submit = Submit { pipeline, git_ref, env: env.into_iter().collect() };
            let mut request = board.request(Method::POST, "builds").json(&submit);
            if let Some(key) = idempotency_key {
                request = request.header("idempotency-key", key);
            }
            submitted(board.send(request).await?, follow, board, output).await
        }
        BuildCommand::Retry { id, follow } => {
            let request = board.request(Method::POST, &format!("builds/{id}/retry"));
            submitted(board.send(request).await?, follow, board, output).await
        }
        BuildCommand::List { status, pipeline, limit } => list(status, pipeline, limit, board, output).await,
        BuildCommand::Show { id } => {
            let build = board.build(id).await?;
            output.print(&build, |build| shown(build, output))?;
            Ok(0)
        }
        // Whose log it is does not matter to whoever reads it: only an interruption does.
        BuildCommand::Logs { id, follow: true } => {
            let code = followed(id, board, output).await?;
            Ok(if code == exit::INTERRUPTED { code } else { 0 })
        }
        BuildCommand::Logs { id, follow: false } => {
            Follow::new(board, id).stored().await?;
            Ok(0)
        }
        BuildCommand::Cancel { id } => {
            let build: Build = board.send(board.request(Method::POST, &format!("builds/{id}/cancel"))).await?;
            output.print(&build, |build| match build.status {
                Status::Running => format!("build {id} was asked to stop; its worker ends it within a minute"),
                Status::Pending | Status::Success | Status::Failed | Status::TimedOut | Status::Cancelled => {
                    format!("build {id} is {}", output.status(build.status))
                }
            })?;
            Ok(0)
        }
    }
}

async fn submitted(build: Build, follow: bool, board: &Client, output: Output) -> anyhow::Result<u8> {
    if !follow {
        let id = build.id;
        output.print(&build, |_| format!("build {id} is submitted; follow it with `callboard build logs -f {id}`"))?;
        return Ok(0);
    }
    if !output.json {
        println!("build {}", build.id);
    }
    followed(build.id, board, output).await
}

/// Follows a build to its end; Ctrl-C lets go of it.
async fn followed(id: Uuid, board: &Client, output: Output) -> anyhow::Result<u8> {
    let mut follow = Follow::new(board, id);
    if output.json {
        follow = follow.silent();
    }
    let ended = tokio::select! {
        ended = follow.until(|_| false) => ended?,
        _ = tokio::signal::ctrl_c() => {
            eprintln!("\nThe build goes on. Follow it with `callboard build logs -f {id}`, end it with `callboard build cancel {id}`.");
            return Ok(exit::INTERRUPTED);
        }
    };
    output.print(&ended, |build| format!("\n{}", shown(build, output)))?;
    Ok(exit::of_build(ended.status))
}

async fn list(
    status: Option<String>,
    pipeline: Option<String>,
    limit: u32,
    board: &Client,
    output: Output,
) -> anyhow::Result<u8> {
    let asked = [("status", status), ("pipeline", pipeline), ("limit", Some(limit.to_string()))];
    let asked: Vec<_> = asked.into_iter().filter_map(|(name, value)| Some((name, value?))).collect();
    let query: Vec<String> = asked.iter().map(|(name, value)| format!("{name}={}", escaped(value))).collect();
    let builds: Builds = board.get(&format!("builds?{}", query.join("&"))).await?;
    output.print(&builds, |builds| table(&builds.builds, output))?;
    Ok(0)
}

/// A value as it stands in an address.
fn escaped(value: &str) -> String {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.');
    value.bytes().map(|byte| if plain(byte) { char::from(byte).to_string() } else { format!("%{byte:02X}") }).collect()
}

fn table(builds: &[Build], output: Output) -> String {
    if builds.is_empty() {
        return "no builds; submit one with `callboard build submit PIPELINE`".into();
    }
    let row = |build: &Build| {
        let reason = build.end_reason.map(|reason| reason.to_string());
        let waits = || build.position.map(|ahead| format!("{ahead} ahead"));
        let note = reason.or_else(|| build.phase.clone()).or_else(waits).unwrap_or_default();
        let ran = build.duration_ms.map(took).unwrap_or_default();
        let made = ago(build.created_at, now());
        vec![
            build.id.to_string(),
            build.pipeline.clone(),
            plain(&build.git_ref),
            output.status(build.status),
            plain(&note),
            ran,
            made,
        ]
    };
    output.table(
        &["ID", "PIPELINE", "REF", "STATUS", "", "RAN", "SUBMITTED"],
        &builds.iter().map(row).collect::<Vec<_>>(),
    )
}

fn shown(build: &Build, output: Output) -> String {
    let mut lines = vec![("build", build.id.to_string()), ("pipeline", build.pipeline.clone())];
    let mut add = |name, value: Option<String>| lines.extend(value.map(|value| (name, value)));
    let reason = build.end_reason.map(|reason| format!(" ({reason})")).unwrap_or_default();
    add("status", Some(format!("{}{reason}", output.status(build.status))));
    add("", build.error_message.as_deref().map(plain));
    let waits = build.waiting_for.and_then(|why| serde_json::to_value(why).ok()?.as_str().map(str::to_owned));
    add("waits for", waits.map(|why| format!("{why}, {} ahead", build.position.unwrap_or(0))));
    add("ref", Some(plain(&build.git_ref)));
    add("commit", build.commit.clone());
    add("submitted", Some(ago(build.created_at, now())));
    add("at", build.phase.as_deref().map(plain));
    add("ran", build.duration_ms.map(took));
    add("charged", build.charged_seconds.map(|seconds| format!("{seconds} s")));
    for step in &build.steps {
        let status = serde_json::to_value(step.status).ok().and_then(|word| word.as_str().map(str::to_owned));
        let code = step.exit_code.map(|code| format!(", exit code {code}")).unwrap_or_default();
        let (name, status) = (plain(&step.name), status.unwrap_or_default());
        add("step", Some(format!("{name:<20} {status:<9} {:>8}{code}", took(step.duration_ms))));
    }
    lines.iter().map(|(name, value)| format!("{name:<10} {value}")).collect::<Vec<_>>().join("\n")
}
