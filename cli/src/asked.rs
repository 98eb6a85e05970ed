//! What a command is about, so that a person is told what was not found, and where to look for it.

use crate::args::Command;
use crate::build::BuildCommand;
use crate::operator::TokenCommand;
use crate::pipeline::PipelineCommand;
use crate::plan::PlanCommand;
use crate::preview::PreviewCommand;
use crate::secret::SecretCommand;
use localstack::clean::plain;
use localstack::client::Failed;
use protocol::{Code, Problem};

/// One thing that the board is asked for by its name or id.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sought {
    thing: &'static str,
    name: String,
}

impl Sought {
    /// What `command` is about, if it is about one thing.
    #[must_use]
    pub fn of(command: &Command) -> Option<Self> {
        let (thing, name) = match command {
            Command::Build(BuildCommand::Submit { pipeline, .. }) => ("pipeline", pipeline.clone()),
            Command::Build(command) => ("build", build(command)?),
            Command::Pipeline(PipelineCommand::Show { name } | PipelineCommand::Delete { name }) => {
                ("pipeline", name.clone())
            }
            Command::Preview(command) => ("preview", preview(command)?),
            Command::Secret(SecretCommand::Delete { name }) => ("secret", name.clone()),
            Command::Plan(PlanCommand::Set { workspace, .. } | PlanCommand::Show { workspace }) => {
                ("workspace", workspace.clone())
            }
            Command::Token(TokenCommand::Revoke { id }) => ("token", id.clone()),
            Command::Pipeline(PipelineCommand::Apply { .. } | PipelineCommand::List)
            | Command::Secret(SecretCommand::Set { .. } | SecretCommand::List)
            | Command::Token(TokenCommand::Create { .. } | TokenCommand::List)
            | Command::Up(_)
            | Command::Demo(_)
            | Command::Migrate(_)
            | Command::Workspace(_)
            | Command::Worker(_)
            | Command::Reap
            | Command::Completions { .. } => return None,
        };
        Some(Self { thing, name })
    }

    /// The error with what was sought in it, where the board says that there is no such thing. An address that is none of a
    /// board's is another trouble.
    #[must_use]
    pub fn told(&self, error: anyhow::Error) -> anyhow::Error {
        let Some(Failed::Refused(problem)) = error.downcast_ref::<Failed>() else { return error };
        let (Self { thing, name }, said) = (self, problem.detail.as_deref().unwrap_or(""));
        let is_missing = problem.code == Code::NotFound && !said.starts_with("no such address");
        let is_named =
            problem.code == Code::Invalid && problem.field.as_deref() == Some(thing) && said.contains("has no");
        if !is_missing && !is_named {
            return error;
        }
        let or_plan = if said.contains("without a plan") { ", or it has no plan yet" } else { "" };
        let detail =
            format!("there is no {thing} {}{or_plan}; `callboard {thing} list` shows those there are", plain(name));
        Failed::Refused(Box::new(Problem { detail: Some(detail), field: None, ..(**problem).clone() })).into()
    }
}

fn build(command: &BuildCommand) -> Option<String> {
    match command {
        BuildCommand::Show { id }
        | BuildCommand::Logs { id, .. }
        | BuildCommand::Cancel { id }
        | BuildCommand::Retry { id, .. } => Some(id.to_string()),
        BuildCommand::Submit { .. } | BuildCommand::List { .. } => None,
    }
}

fn preview(command: &PreviewCommand) -> Option<String> {
    match command {
        PreviewCommand::Show { id }
        | PreviewCommand::Open { id }
        | PreviewCommand::Extend { id, .. }
        | PreviewCommand::Destroy { id, .. }
        | PreviewCommand::Logs { id } => Some(id.to_string()),
        PreviewCommand::List { .. } | PreviewCommand::Reconcile => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::Cli;
    use clap::Parser as _;
    use serde_json::json;

    const ID: &str = "01a2308a-c2ff-7509-a0e1-a6168fbb6d21";

    fn told(line: &str, detail: &str) -> String {
        told_of(line, json!({ "title": "Not Found", "status": 404, "code": "not_found", "detail": detail }))
    }

    fn told_of(line: &str, problem: serde_json::Value) -> String {
        let command = Cli::try_parse_from(line.split(' ')).unwrap().command;
        let failed: Problem = serde_json::from_value(problem).unwrap();
        Sought::of(&command).expect("it is about one thing").told(Failed::Refused(Box::new(failed)).into()).to_string()
    }

    #[test]
    fn what_is_missing_is_named_with_the_command_that_lists_the_others() {
        for (line, words) in [
            (format!("callboard build show {ID}"), format!("there is no build {ID}; `callboard build list`")),
            (format!("callboard build logs -f {ID}"), format!("there is no build {ID}; `callboard build list`")),
            ("callboard pipeline delete app".into(), "there is no pipeline app; `callboard pipeline list`".into()),
            ("callboard secret delete KEY".into(), "there is no secret KEY; `callboard secret list`".into()),
            ("callboard token revoke 1a2b3c4d".into(), "there is no token 1a2b3c4d; `callboard token list`".into()),
            (format!("callboard preview show {ID}"), format!("there is no preview {ID}; `callboard preview list`")),
        ] {
            let said = told(&line, "no such thing");
            assert!(said.starts_with(&words), "{line}: {said}");
        }
        let plan = told("callboard plan show acme", "no such workspace, or one without a plan");
        assert!(
            plan.starts_with("there is no workspace acme, or it has no plan yet; `callboard workspace list`"),
            "{plan}"
        );
    }

    #[test]
    fn a_submit_says_which_pipeline_there_is_not() {
        let invalid = |field: &str, detail: &str| {
            let problem = json!({ "title": "", "status": 422, "code": "invalid", "field": field, "detail": detail });
            told_of("callboard build submit app", problem)
        };
        let said = invalid("pipeline", "the workspace has no pipeline of that name; GET /api/v1/pipelines lists");
        assert!(said.starts_with("there is no pipeline app; `callboard pipeline list`"), "{said}");
        assert!(invalid("ref", "the workspace has no such ref").starts_with("ref: the workspace"));
    }

    #[test]
    fn an_address_that_is_no_boards_is_told_as_it_is() {
        let said = told(&format!("callboard build show {ID}"), "no such address; /openapi.json lists them");
        assert!(said.starts_with("no such address"), "{said}");
    }
}
