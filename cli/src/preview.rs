//! `callboard preview`: live previews, and for operators the leases of their ports.

use crate::answer::Answer;
use crate::ids;
use crate::output::Output;
use crate::settings::Settings;
use anyhow::bail;
use clap::Subcommand;
use localstack::clean::plain;
use localstack::client::{Client, Failed};
use localstack::spell::{ago, now, took};
use localstack::table::details;
use protocol::pipeline_file::parse_duration;
use protocol::preview::{ExtendPreview, LeaseChange, Mended, Preview, Previews, Reconciled};
use reqwest::Method;
use rules::preview::{State, WaitingFor};
use time::OffsetDateTime;
use uuid::Uuid;

/// `preview`.
#[derive(Debug, Subcommand)]
pub enum PreviewCommand {
    /// Previews, newest first.
    #[command(after_help = "Examples:
  callboard preview list
  callboard preview list --status running
  callboard preview list --json | jq -r '.previews[].url'")]
    List {
        /// Those in this state.
        #[arg(long, value_parser = state)]
        status: Option<State>,
        /// The one of this build.
        #[arg(long, value_parser = ids::of_build)]
        build: Option<Uuid>,
        /// How many at most.
        #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..=100))]
        limit: u32,
    },
    /// A preview: where it is reached, what it waits for, why it failed.
    #[command(after_help = "Example:\n  callboard preview show 01a2308a-c2ff-7509-a0e1-a6168fbb6d21")]
    Show {
        /// Its id, as `preview list` has it.
        #[arg(value_parser = ids::of_preview)]
        id: Uuid,
    },
    /// The address of a running preview, for a browser: nothing else is printed.
    #[command(after_help = "Examples:
  callboard preview open 01a2308a-c2ff-7509-a0e1-a6168fbb6d21
  xdg-open \"$(callboard preview open 01a2308a-c2ff-7509-a0e1-a6168fbb6d21)\"")]
    Open {
        /// Its id, as `preview list` has it.
        #[arg(value_parser = ids::of_preview)]
        id: Uuid,
    },
    /// Let a preview live longer, from now on.
    #[command(after_help = "Examples:
  callboard preview extend 01a2308a-c2ff-7509-a0e1-a6168fbb6d21 --for 2h
  callboard preview extend 01a2308a-c2ff-7509-a0e1-a6168fbb6d21 --if-version 7")]
    Extend {
        /// Its id, as `preview list` has it.
        #[arg(value_parser = ids::of_preview)]
        id: Uuid,
        /// How long; as long as its pipeline says if this is not given.
        #[arg(long = "for", value_name = "TIME", value_parser = duration)]
        time: Option<u32>,
        /// Only if it still has this version.
        #[arg(long, value_name = "N")]
        if_version: Option<i64>,
    },
    /// End a preview, or let go of what is left of a failed one.
    #[command(after_help = "Example:\n  callboard preview destroy 01a2308a-c2ff-7509-a0e1-a6168fbb6d21")]
    Destroy {
        /// Its id, as `preview list` has it.
        #[arg(value_parser = ids::of_preview)]
        id: Uuid,
        /// Only if it still has this version.
        #[arg(long, value_name = "N")]
        if_version: Option<i64>,
    },
    /// What a preview last wrote, as its host has told; a build's own log is `callboard build logs`.
    #[command(after_help = "Example:\n  callboard preview logs 01a2308a-c2ff-7509-a0e1-a6168fbb6d21")]
    Logs {
        /// Its id, as `preview list` has it.
        #[arg(value_parser = ids::of_preview)]
        id: Uuid,
    },
    /// For operators: mend the leases of ports, and say which.
    #[command(after_help = "Example:\n  callboard preview reconcile")]
    Reconcile,
}

fn state(word: &str) -> Result<State, String> {
    let words = || State::ALL.iter().map(|state| state.as_str()).collect::<Vec<_>>().join(", ");
    State::parse(word).ok_or_else(|| format!("must be one of {}", words()))
}

fn duration(text: &str) -> Result<u32, String> {
    parse_duration(text).map_err(|bad| bad.to_string())
}

/// Does it: `reconcile` with an operator's token, the others with the workspace's.
///
/// # Errors
///
/// What is not set, or what the board says.
pub async fn run(command: PreviewCommand, settings: &Settings, output: Output) -> anyhow::Result<u8> {
    match command {
        PreviewCommand::List { status, build, limit } => {
            list(status, build, limit, &settings.api()?, output).await?;
        }
        PreviewCommand::Show { id } => output.print(&read(id, &settings.api()?).await?, |it| shown(it, output))?,
        PreviewCommand::Open { id } => open(&read(id, &settings.api()?).await?, output)?,
        PreviewCommand::Extend { id, time, if_version } => {
            let body = ExtendPreview { ttl_seconds: time };
            let board = settings.api()?;
            let request = board.request(Method::POST, &format!("previews/{id}/extend")).json(&body);
            let preview: Answer<Preview> = send(request, if_version, &board).await?;
            output.print(&preview, |it| format!("preview {id} lives {}", left(it.expires_at, now())))?;
        }
        PreviewCommand::Destroy { id, if_version } => {
            let board = settings.api()?;
            let request = board.request(Method::DELETE, &format!("previews/{id}"));
            let preview: Answer<Preview> = send(request, if_version, &board).await?;
            output.print(&preview, destroyed)?;
        }
        PreviewCommand::Logs { id } => output.print(&read(id, &settings.api()?).await?, log)?,
        PreviewCommand::Reconcile => {
            let board = settings.operator()?;
            let done: Answer<Reconciled> = board.send(board.request(Method::POST, "admin/previews/reconcile")).await?;
            output.print(&done, reconciled)?;
        }
    }
    Ok(0)
}

async fn read(id: Uuid, board: &Client) -> Result<Answer<Preview>, Failed> {
    board.get(&format!("previews/{id}")).await
}

async fn send(
    request: reqwest::RequestBuilder,
    version: Option<i64>,
    board: &Client,
) -> Result<Answer<Preview>, Failed> {
    let request = match version {
        Some(version) => request.header("if-match", format!("\"{version}\"")),
        None => request,
    };
    board.send(request).await
}

async fn list(
    status: Option<State>,
    build: Option<Uuid>,
    limit: u32,
    board: &Client,
    output: Output,
) -> anyhow::Result<()> {
    let fields = [("status", status.map(|state| state.to_string())), ("build", build.map(|id| id.to_string()))];
    let fields = fields.into_iter().filter_map(|(name, value)| Some(format!("&{name}={}", value?)));
    let path = format!("previews?limit={limit}{}", fields.collect::<String>());
    let previews: Answer<Previews> = board.get(&path).await?;
    output.print(&previews, |all| {
        if all.previews.is_empty() {
            return "no previews; a pipeline gets one with `preview:` in its file".into();
        }
        let rows: Vec<_> = all.previews.iter().map(row).collect();
        output.table(&["PREVIEW", "PIPELINE", "STATE", "TIME LEFT", "ADDRESS"], &rows)
    })?;
    Ok(())
}

fn row(preview: &Preview) -> Vec<String> {
    let is_live = preview.status.is_live();
    vec![
        preview.id.to_string(),
        plain(&preview.pipeline),
        words(preview),
        if is_live { left(preview.expires_at, now()) } else { String::new() },
        plain(preview.url.as_deref().or(preview.message.as_deref()).unwrap_or("")),
    ]
}

/// A preview's state, and what it waits for or at what it failed.
fn words(preview: &Preview) -> String {
    let state = preview.status;
    match (preview.waiting_for, preview.stage) {
        (Some(WaitingFor::Host), _) => format!("{state} (waits for its host)"),
        (Some(WaitingFor::Quota), _) => format!("{state} (waits for a place: the plan's limit)"),
        (Some(WaitingFor::Port), _) => format!("{state} (waits for a free port of its host)"),
        (None, Some(stage)) => format!("{state} ({stage})"),
        (None, None) => state.to_string(),
    }
}

fn left(at: OffsetDateTime, now: OffsetDateTime) -> String {
    match u64::try_from((at - now).whole_milliseconds()) {
        Ok(ms) => format!("{} more", took(ms)),
        Err(_) => "no longer".into(),
    }
}

fn shown(preview: &Preview, output: Output) -> String {
    let is_live = preview.status.is_live();
    let lines = [
        ("preview", Some(preview.id.to_string())),
        ("build", Some(format!("{} of {}", preview.build_id, plain(&preview.pipeline)))),
        ("state", Some(words(preview))),
        ("", preview.message.as_deref().map(plain)),
        ("address", preview.url.as_deref().map(plain)),
        ("host", preview.host_id.as_deref().map(plain)),
        ("lives", is_live.then(|| left(preview.expires_at, now()))),
        ("gone", preview.destroyed_at.map(|at| ago(at, now()))),
        ("version", Some(preview.version.to_string())),
    ];
    details(&lines, output.paint)
}

fn open(preview: &Answer<Preview>, output: Output) -> anyhow::Result<()> {
    let id = preview.value.id;
    let Some(url) = preview.value.url.clone() else {
        bail!("preview {id} has no address: it is {}; see `callboard preview show {id}`", words(&preview.value))
    };
    Ok(output.print(preview, |_| plain(&url))?)
}

fn destroyed(preview: &Preview) -> String {
    match preview.status {
        State::Destroying => format!("preview {} is destroyed as soon as its host calls", preview.id),
        state @ (State::Starting | State::Running | State::Expired | State::Destroyed | State::Failed) => {
            format!("preview {} is {state}", preview.id)
        }
    }
}

fn log(preview: &Preview) -> String {
    let lines = |text: &str| text.lines().map(plain).collect::<Vec<_>>().join("\n");
    match (&preview.log_tail, &preview.message) {
        (Some(tail), _) => lines(tail),
        (None, Some(message)) => lines(message),
        (None, None) => {
            format!("its host has told nothing; the build's log: `callboard build logs {}`", preview.build_id)
        }
    }
}

fn reconciled(done: &Reconciled) -> String {
    let line = |lease: &Mended| {
        let (host, port, id) = (plain(&lease.host_id), lease.port, lease.preview_id);
        let what = match lease.change {
            LeaseChange::Orphaned => "removed, since its preview has no port any more",
            LeaseChange::Inconsistent => "removed, since its preview says another port",
            LeaseChange::Missing => "made again",
            LeaseChange::Taken => "held by another preview, so this one has none",
            LeaseChange::Unknown => "changed in a way that this release does not know",
        };
        format!("port {port} of host {host}, preview {id}: {what}")
    };
    let sum = format!("{} mended; ports leased now: {}", done.mended.len(), done.leases);
    done.mended.iter().map(line).chain([sum]).collect::<Vec<_>>().join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn preview(change: serde_json::Value) -> Preview {
        let mut json = json!({
            "id": "01a2308a-c2ff-7509-a0e1-a6168fbb6d21", "build_id": "01a2308a-c2ff-7509-a0e1-a6168fbb6d20",
            "pipeline": "app", "status": "starting", "retain_failed": false, "version": 3,
            "created_at": "2026-12-01T00:00:00Z", "expires_at": "2026-12-01T01:00:00Z" });
        json.as_object_mut().unwrap().extend(change.as_object().unwrap().clone());
        serde_json::from_value(json).unwrap()
    }

    #[test]
    fn a_state_says_what_is_waited_for_and_at_what_it_failed() {
        assert_eq!(
            words(&preview(json!({ "waiting_for": "quota" }))),
            "starting (waits for a place: the plan's limit)"
        );
        assert_eq!(words(&preview(json!({ "status": "failed", "stage": "start" }))), "failed (start)");
        assert_eq!(words(&preview(json!({ "status": "running" }))), "running");
    }

    #[test]
    fn the_time_left_is_none_once_it_is_over() {
        let at = OffsetDateTime::UNIX_EPOCH + time::Duration::seconds(60);
        assert_eq!(left(at, OffsetDateTime::UNIX_EPOCH), "1 min 0 s more");
        assert_eq!(left(at, at + time::Duration::seconds(1)), "no longer");
    }

    #[test]
    fn what_a_host_told_controls_no_terminal() {
        let text = log(&preview(json!({ "log_tail": "a\u{1b}[2J\nb\u{7}" })));
        assert!(!text.replace('\n', "").contains(char::is_control), "{text:?}");
        assert!(log(&preview(json!({}))).contains("callboard build logs 01a2308a"));
    }

    #[test]
    fn every_lease_that_was_mended_is_told() {
        let lease =
            |change: &str| json!({ "change": change, "host_id": "h1", "port": 20001, "preview_id": Uuid::nil() });
        let done = json!({ "mended": [lease("orphaned"), lease("missing"), lease("newer")], "leases": 2 });
        let text = reconciled(&serde_json::from_value(done).unwrap());
        assert_eq!(text.lines().count(), 4);
        assert!(text.contains("port 20001 of host h1") && text.ends_with("3 mended; ports leased now: 2"));
    }
}
