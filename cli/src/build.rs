//! `callboard build`.

mod list;
mod show;

use crate::answer::Answer;
use crate::output::Output;
use crate::{exit, ids};
use clap::Subcommand;
use localstack::client::{Client, Failed};
use localstack::follow::{self, Json, Lines, Raw, Silent, View};
use localstack::receipt::receipt;
use localstack::say;
use protocol::Status;
use protocol::build::{Build, Submit};
use reqwest::{Method, RequestBuilder};
use std::io::stdout;
use std::time::Duration;
use uuid::Uuid;

/// How often a submission is sent before it is given up; the board makes one build of it all the same.
const TRIES: u32 = 4;

/// `build`.
#[derive(Debug, Subcommand)]
pub enum BuildCommand {
    /// Submit a build.
    #[command(after_help = "Examples:
  callboard build submit app
  callboard build submit app --ref v1.2 --env LEVEL=full --follow
  callboard build submit app --json | jq -r .id

With --follow the exit code is the build's: 0 success, 1 failed, 3 cancelled, 4 timed out.")]
    Submit {
        /// The pipeline's name.
        pipeline: String,
        /// The branch, tag or commit; the pipeline's own if none is given.
        #[arg(long = "ref", value_name = "REF")]
        git_ref: Option<String>,
        /// A variable; may be repeated. Not for secrets: those are set with `callboard secret set`.
        #[arg(long = "env", value_name = "NAME=VALUE", value_parser = variable)]
        env: Vec<(String, String)>,
        /// Follow it to its end.
        #[arg(long)]
        follow: bool,
        /// Makes a repeat within a day return the first build.
        #[arg(long, value_name = "KEY")]
        idempotency_key: Option<String>,
    },
    /// Builds, newest first.
    #[command(after_help = "Examples:
  callboard build list
  callboard build list --status failed --pipeline app --limit 5
  callboard build list --json | jq -r '.builds[].id'")]
    List {
        /// Those in this state.
        #[arg(long, value_parser = status)]
        status: Option<Status>,
        /// Those of this pipeline.
        #[arg(long)]
        pipeline: Option<String>,
        /// How many at most.
        #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..=10_000))]
        limit: u32,
    },
    /// A build: what it is at, how it ended, what it cost.
    #[command(after_help = "Example:\n  callboard build show 01a2308a-c2ff-7509-a0e1-a6168fbb6d21")]
    Show {
        /// Its id, as `build list` has it.
        #[arg(value_parser = ids::of_build)]
        id: Uuid,
    },
    /// A build's log: on a terminal in lines, else the bytes that the steps wrote.
    #[command(after_help = "Examples:
  callboard build logs -f 01a2308a-c2ff-7509-a0e1-a6168fbb6d21
  callboard build logs 01a2308a-c2ff-7509-a0e1-a6168fbb6d21 > build.log
  callboard build logs 01a2308a-c2ff-7509-a0e1-a6168fbb6d21 --json | jq -r 'select(.stream == \"stderr\").text'")]
    Logs {
        /// Its id, as `build list` has it.
        #[arg(value_parser = ids::of_build)]
        id: Uuid,
        /// Go on until the build has ended.
        #[arg(short, long)]
        follow: bool,
    },
    /// End a build.
    #[command(after_help = "Example:\n  callboard build cancel 01a2308a-c2ff-7509-a0e1-a6168fbb6d21")]
    Cancel {
        /// Its id, as `build list` has it.
        #[arg(value_parser = ids::of_build)]
        id: Uuid,
    },
    /// Try an ended build again: the same steps at the same commit.
    #[command(after_help = "Example:\n  callboard build retry 01a2308a-c2ff-7509-a0e1-a6168fbb6d21 --follow")]
    Retry {
        /// Its id, as `build list` has it.
        #[arg(value_parser = ids::of_build)]
        id: Uuid,
        /// Follow it to its end; the exit code is the build's.
        #[arg(long)]
        follow: bool,
    },
}

fn variable(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((name, value)) if !name.is_empty() => Ok((name.to_owned(), value.to_owned())),
        Some(_) | None => Err("must be NAME=VALUE".into()),
    }
}

fn status(word: &str) -> Result<Status, String> {
    let words = || Status::ALL.iter().map(|status| status.as_str()).collect::<Vec<_>>().join(", ");
    Status::parse(word).ok_or_else(|| format!("must be one of {}", words()))
}

/// Does it; returns the exit code.
///
/// # Errors
///
/// What the board says.
pub async fn run(command: BuildCommand, board: &Client, output: Output) -> anyhow::Result<u8> {
    match command {
        BuildCommand::Submit { pipeline, git_ref, env, follow, idempotency_key } => {
            let submit = Submit { pipeline, git_ref, env: env.into_iter().collect() };
            let key = idempotency_key.unwrap_or_else(|| Uuid::new_v4().to_string());
            let build = send(board, || board.request(Method::POST, "builds").json(&submit), &key).await?;
            submitted(&build, follow, board, output).await
        }
        BuildCommand::Retry { id, follow } => {
            let request = || board.request(Method::POST, &format!("builds/{id}/retry"));
            let build = send(board, request, &Uuid::new_v4().to_string()).await?;
            submitted(&build, follow, board, output).await
        }
        BuildCommand::List { status, pipeline, limit } => {
            let asked = list::Asked { status, pipeline };
            let builds = list::read(&asked, limit, board).await?;
            output.print(&builds, |builds| show::table(&builds.builds, asked.is_for_all(), output))?;
            Ok(0)
        }
        BuildCommand::Show { id } => {
            let build: Answer<Build> = board.get(&format!("builds/{id}")).await?;
            output.print(&build, |build| show::build(build, output))?;
            Ok(0)
        }
        BuildCommand::Logs { id, follow } => logs(id, follow, board, output).await,
        BuildCommand::Cancel { id } => cancel(id, board, output).await,
    }
}

/// Sends a request for a build until the board has taken or refused it. The key makes one build of all the tries.
async fn send(board: &Client, request: impl Fn() -> RequestBuilder, key: &str) -> Result<Answer<Build>, Failed> {
    let mut tries = 1;
    loop {
        match board.send(request().header("idempotency-key", key)).await {
            Err(Failed::Unreachable { .. } | Failed::Strange(_)) if tries < TRIES => {
                tokio::time::sleep(Duration::from_millis(250) * tries).await;
                tries += 1;
            }
            taken_or_not => return taken_or_not,
        }
    }
}

async fn submitted(build: &Answer<Build>, follow: bool, board: &Client, output: Output) -> anyhow::Result<u8> {
    let id = build.value.id;
    if !follow {
        output.print(build, |_| format!("build {id} is submitted; follow it with `callboard build logs -f {id}`"))?;
        return Ok(0);
    }
    output.done(&format!("build {id} of {}", build.value.pipeline))?;
    let mut view: Box<dyn View> =
        if output.json { Box::new(Silent) } else { Box::new(Lines::new(stdout(), output.screen)) };
    let Some(ended) = followed(id, &mut *view, board).await? else { return Ok(exit::INTERRUPTED) };
    if output.json {
        output.print(&board.get::<Answer<Build>>(&format!("builds/{id}")).await?, |_| String::new())?;
    } else {
        output.done(&format!("\n{}", receipt(&ended, &[], output.screen)))?;
    }
    Ok(exit::of_build(ended.status))
}

/// Follows a build to its end; on Ctrl-C lets go of it, says how to go on, and returns nothing.
async fn followed(id: Uuid, view: &mut dyn View, board: &Client) -> anyhow::Result<Option<Build>> {
    tokio::select! {
        ended = follow::follow(board, id, view) => return ended.map(Some),
        _ = tokio::signal::ctrl_c() => {}
    }
    view.end()?;
    say::err(format_args!(
        "\nThe build goes on.\n  follow it: callboard build logs -f {id}\n  end it:    callboard build cancel {id}"
    ));
    Ok(None)
}

/// A build's log. How the build ended is not what a reader of its log asked: the exit code is 0 unless interrupted.
async fn logs(id: Uuid, follow: bool, board: &Client, output: Output) -> anyhow::Result<u8> {
    let mut view: Box<dyn View> = match output.columns {
        _ if output.json => Box::new(Json(stdout())),
        Some(_) => Box::new(Lines::new(stdout(), output.screen)),
        None => Box::new(Raw(stdout())),
    };
    if !follow {
        follow::stored(board, id, &mut *view).await?;
        return Ok(0);
    }
    Ok(if followed(id, &mut *view, board).await?.is_some() { 0 } else { exit::INTERRUPTED })
}

async fn cancel(id: Uuid, board: &Client, output: Output) -> anyhow::Result<u8> {
    let build: Answer<Build> = board.send(board.request(Method::POST, &format!("builds/{id}/cancel"))).await?;
    output.print(&build, |build| match build.status {
        Status::Running => format!("build {id} was asked to stop; its worker ends it within a minute"),
        Status::Pending | Status::Success | Status::Failed | Status::TimedOut | Status::Cancelled => {
            format!("build {id} is {}", output.paint.status(build.status))
        }
    })?;
    Ok(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_variable_is_split_at_its_first_equals_sign() {
        assert_eq!(variable("A=b=c"), Ok(("A".into(), "b=c".into())));
        assert_eq!(variable("A="), Ok(("A".into(), String::new())));
        assert!(variable("A").is_err() && variable("=b").is_err());
    }

    #[test]
    fn a_state_is_one_that_there_is() {
        assert_eq!(status("timed_out"), Ok(Status::TimedOut));
        assert!(status("done").unwrap_err().contains("pending, running, success"));
    }
}
