//! `callboard pipeline`.

use crate::answer::Answer;
use crate::output::Output;
use anyhow::{Context as _, anyhow, bail};
use clap::Subcommand;
use localstack::clean::{exact, plain};
use localstack::client::Client;
use localstack::input::{self, PIPELINE_MAX_BYTES};
use localstack::spell::{ago, now};
use protocol::pipeline::{Pipeline, Pipelines};
use protocol::pipeline_file::{self, Given};
use reqwest::Method;
use std::io;
use std::path::{Path, PathBuf};

/// `pipeline`.
#[derive(Debug, Subcommand)]
pub enum PipelineCommand {
    /// Set up or change a pipeline from a file.
    #[command(after_help = "Examples:
  callboard pipeline apply
  callboard pipeline apply -f ci/nightly.yaml --name nightly
  callboard pipeline show app | sed 's/ref: main/ref: next/' | callboard pipeline apply -f - --name app-next")]
    Apply {
        /// The file; - is standard input.
        #[arg(short, long, default_value = "callboard.yaml")]
        file: PathBuf,
        /// Its name, instead of the file's.
        #[arg(long)]
        name: Option<String>,
    },
    /// All pipelines.
    #[command(after_help = "Example:\n  callboard pipeline list --json | jq -r '.pipelines[].slug'")]
    List,
    /// A pipeline, as a file.
    #[command(after_help = "Example:\n  callboard pipeline show app > callboard.yaml")]
    Show {
        /// Its name.
        name: String,
    },
    /// Delete a pipeline; its builds that wait will fail.
    #[command(after_help = "Example:\n  callboard pipeline delete app")]
    Delete {
        /// Its name.
        name: String,
    },
}

/// Does it.
///
/// # Errors
///
/// What is wrong with the file, line by line; or what the board says.
pub async fn run(command: PipelineCommand, board: &Client, output: Output) -> anyhow::Result<u8> {
    match command {
        PipelineCommand::Apply { file, name } => apply(&file, name.as_deref(), board, output).await?,
        PipelineCommand::List => {
            let pipelines: Answer<Pipelines> = board.get("pipelines").await?;
            output.print(&pipelines, |pipelines| table(&pipelines.pipelines, output))?;
        }
        PipelineCommand::Show { name } => {
            let pipeline: Answer<Pipeline> = board.get(&format!("pipelines/{}", segment(&name)?)).await?;
            output.print(&pipeline, |pipeline| pipeline_file::write(&pipeline.slug, &pipeline.spec))?;
        }
        PipelineCommand::Delete { name } => {
            let request = board.request(Method::DELETE, &format!("pipelines/{}", segment(&name)?));
            board.send::<()>(request).await?;
            output.done(&format!("pipeline {name} is deleted"))?;
        }
    }
    Ok(0)
}

/// A name as a part of an address.
///
/// # Errors
///
/// If it can't be one.
pub fn segment(name: &str) -> anyhow::Result<&str> {
    let fine = !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_'));
    if fine { Ok(name) } else { bail!("{:?} is not a name: letters, digits, - and _", plain(name)) }
}

async fn apply(file: &Path, name: Option<&str>, board: &Client, output: Output) -> anyhow::Result<()> {
    let shown = file.display().to_string();
    let text = read(file).with_context(|| format!("{shown} can't be read as a pipeline"))?;
    let parsed = pipeline_file::parse(&text, Given { name, repository: None });
    let parsed = parsed.map_err(|faults| anyhow!("{shown} can't be a pipeline\n{}", faults.of_file(&shown)))?;
    let path = format!("pipelines/{}", segment(&parsed.slug)?);
    let pipeline: Answer<Pipeline> = board.give(Method::PUT, &path, &parsed.spec).await?;
    output.print(&pipeline, |Pipeline { slug, version, .. }| {
        let done = if *version == 1 { "set up" } else { "changed" };
        format!("pipeline {slug} is {done} (version {version}); build it with `callboard build submit {slug} --follow`")
    })?;
    Ok(())
}

fn read(file: &Path) -> io::Result<String> {
    match file.to_str() {
        Some("-") => input::standard(PIPELINE_MAX_BYTES),
        Some(_) | None => input::file(file, PIPELINE_MAX_BYTES),
    }
}

fn table(pipelines: &[Pipeline], output: Output) -> String {
    if pipelines.is_empty() {
        return "no pipelines yet; set one up with `callboard pipeline apply -f callboard.yaml`".into();
    }
    let row = |pipeline: &Pipeline| {
        let spec = &pipeline.spec;
        let (steps, changed) = (spec.steps.len().to_string(), ago(pipeline.updated_at, now()));
        vec![pipeline.slug.clone(), plain(&spec.repository), exact(&spec.default_ref), steps, changed]
    };
    let rows: Vec<_> = pipelines.iter().map(row).collect();
    output.table(&["NAME", "REPOSITORY", "REF", "STEPS", "CHANGED"], &rows)
}
