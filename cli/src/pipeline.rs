//! `callboard pipeline`.

use crate::args::PipelineCommand;
use crate::output::{Output, ago, now, plain};
use anyhow::{Context as _, bail};
use localstack::client::Client;
use protocol::pipeline::{Pipeline, Pipelines};
use protocol::pipeline_file::{self, Given};
use reqwest::Method;
use std::fs;
use std::path::Path;

/// Does it.
///
/// # Errors
///
/// What is wrong with the file, line by line; or what the board says.
pub async fn run(command: PipelineCommand, board: &Client, output: Output) -> anyhow::Result<u8> {
    match command {
        PipelineCommand::Apply { file, name } => apply(&file, name.as_deref(), board, output).await?,
        PipelineCommand::List => {
            let pipelines: Pipelines = board.get("pipelines").await?;
            output.print(&pipelines, |pipelines| table(&pipelines.pipelines, output))?;
        }
        PipelineCommand::Show { name } => {
            let pipeline: Pipeline = board.get(&format!("pipelines/{}", segment(&name)?)).await?;
            output.print(&pipeline, |pipeline| pipeline_file::write(&pipeline.slug, &pipeline.spec))?;
        }
        PipelineCommand::Delete { name } => {
            let request = board.request(Method::DELETE, &format!("pipelines/{}", segment(&name)?));
            board.send::<()>(request).await?;
            println!("pipeline {name} is deleted");
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
    let text = fs::read_to_string(file).with_context(|| format!("{} can't be read", file.display()))?;
    let parsed = pipeline_file::parse(&text, Given { name, repository: None });
    let parsed = parsed.map_err(|faults| anyhow::anyhow!(faults.of_file(&file.display().to_string())))?;
    let pipeline = board.apply(&parsed.slug, &parsed.spec).await?;
    output.print(&pipeline, |pipeline| {
        let done = if pipeline.version == 1 { "set up" } else { "changed" };
        let slug = &pipeline.slug;
        format!(
            "pipeline {slug} is {done} (version {}); build it with `callboard build submit {slug}`",
            pipeline.version
        )
    })
}

fn table(pipelines: &[Pipeline], output: Output) -> String {
    if pipelines.is_empty() {
        return "no pipelines yet; set one up with `callboard pipeline apply -f callboard.yaml`".into();
    }
    let row = |pipeline: &Pipeline| {
        let spec = &pipeline.spec;
        let (steps, changed) = (spec.steps.len().to_string(), ago(pipeline.updated_at, now()));
        vec![pipeline.slug.clone(), plain(&spec.repository), plain(&spec.default_ref), steps, changed]
    };
    let rows: Vec<_> = pipelines.iter().map(row).collect();
    output.table(&["NAME", "REPOSITORY", "REF", "STEPS", "CHANGED"], &rows)
}
