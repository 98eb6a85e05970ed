//! What a command asks for, so that a refusal is told in its words: what was not found, which token was not taken, and what
//! to do. The board's own are for programs.

use crate::args::Command;
use crate::build::BuildCommand;
use crate::operator::TokenCommand;
use crate::pipeline::PipelineCommand;
use crate::plan::PlanCommand;
use crate::preview::PreviewCommand;
use crate::secret::SecretCommand;
use crate::workspace::WorkspaceCommand;
use localstack::clean::plain;
use localstack::client::Failed;
use protocol::{Code, Problem};

/// A command, as far as its refusal is concerned.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Asked {
    token: &'static str,
    /// The kind and the name of the one thing that it is about, if it is about one.
    sought: Option<(&'static str, String)>,
    /// Whether it needs a plan to be there.
    wants_plan: bool,
}

impl Asked {
    /// What `command` asks for.
    #[must_use]
    pub fn of(command: &Command) -> Self {
        let wants_plan = matches!(command, Command::Plan(PlanCommand::Show { .. }));
        Self { token: token(command), sought: sought(command), wants_plan }
    }

    /// The error in words of the command, where the board refused it for its name, its token or its address.
    #[must_use]
    pub fn told(&self, error: anyhow::Error) -> anyhow::Error {
        let Some(Failed::Refused(problem)) = error.downcast_ref::<Failed>() else { return error };
        let Some(detail) = self.detail(problem) else { return error };
        Failed::Refused(Box::new(Problem { detail: Some(detail), field: None, ..(**problem).clone() })).into()
    }

    fn detail(&self, problem: &Problem) -> Option<String> {
        let said = problem.detail.as_deref().unwrap_or("");
        if problem.code == Code::Unauthorized {
            let token = self.token;
            return Some(format!(
                "the board does not take this {token}: it is revoked, of another kind, or another board's; an operator makes \
                 one with `callboard token create`"
            ));
        }
        if problem.code == Code::NotFound && said.starts_with("no such address") {
            return Some(
                "the board has no such address: is CALLBOARD_URL right, and the board of this release?".into(),
            );
        }
        let (thing, name) = self.sought.as_ref()?;
        let is_named =
            problem.code == Code::Invalid && problem.field.as_deref() == Some(*thing) && said.contains("has no");
        let or_plan = if self.wants_plan { ", or it has no plan yet" } else { "" };
        (problem.code == Code::NotFound || is_named).then(|| {
            format!("there is no {thing} {}{or_plan}; `callboard {thing} list` shows those there are", plain(name))
        })
    }
}

/// The variable that holds the token for a command.
fn token(command: &Command) -> &'static str {
    match command {
        Command::Workspace(WorkspaceCommand::Create { .. } | WorkspaceCommand::List)
        | Command::Plan(_)
        | Command::Token(_)
        | Command::Worker(_)
        | Command::Reap
        | Command::Preview(PreviewCommand::Reconcile) => "CALLBOARD_OPERATOR_TOKEN",
        Command::Workspace(WorkspaceCommand::Show)
        | Command::Pipeline(_)
        | Command::Build(_)
        | Command::Preview(_)
        | Command::Secret(_)
        | Command::Up(_)
        | Command::Demo(_)
        | Command::Migrate(_)
        | Command::Completions { .. } => "CALLBOARD_API_TOKEN",
    }
}

fn sought(command: &Command) -> Option<(&'static str, String)> {
    match command {
        Command::Build(BuildCommand::Submit { pipeline, .. }) => Some(("pipeline", pipeline.clone())),
        Command::Build(command) => Some(("build", build(command)?)),
        Command::Pipeline(PipelineCommand::Show { name } | PipelineCommand::Delete { name }) => {
            Some(("pipeline", name.clone()))
        }
        Command::Preview(command) => Some(("preview", preview(command)?)),
        Command::Secret(SecretCommand::Delete { name }) => Some(("secret", name.clone())),
        Command::Plan(PlanCommand::Set { workspace, .. } | PlanCommand::Show { workspace }) => {
            Some(("workspace", workspace.clone()))
        }
        Command::Token(TokenCommand::Revoke { id }) => Some(("token", id.clone())),
        Command::Pipeline(PipelineCommand::Apply { .. } | PipelineCommand::List)
        | Command::Secret(SecretCommand::Set { .. } | SecretCommand::List)
        | Command::Token(TokenCommand::Create { .. } | TokenCommand::List)
        | Command::Up(_)
        | Command::Demo(_)
        | Command::Migrate(_)
        | Command::Workspace(_)
        | Command::Worker(_)
        | Command::Reap
        | Command::Completions { .. } => None,
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
        Asked::of(&command).told(Failed::Refused(Box::new(failed)).into()).to_string()
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
        let set = told("callboard plan set acme --minutes 1", "no such workspace, or one without a plan");
        assert!(set.starts_with("there is no workspace acme; `callboard workspace list`"), "{set}");
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
        assert!(said.starts_with("the board has no such address: is CALLBOARD_URL right"), "{said}");
    }

    #[test]
    fn a_token_that_is_not_taken_is_named_by_its_variable() {
        for (line, name) in [
            ("callboard build list", "CALLBOARD_API_TOKEN"),
            ("callboard workspace show", "CALLBOARD_API_TOKEN"),
            ("callboard workspace list", "CALLBOARD_OPERATOR_TOKEN"),
            ("callboard worker list", "CALLBOARD_OPERATOR_TOKEN"),
            ("callboard preview reconcile", "CALLBOARD_OPERATOR_TOKEN"),
        ] {
            let said = told_of(line, json!({ "title": "", "status": 401, "code": "unauthorized", "detail": "send" }));
            assert!(said.starts_with(&format!("the board does not take this {name}: it is revoked")), "{said}");
        }
    }
}
