//! `callboard plan`: what a workspace may use; for operators.

use crate::answer::Answer;
use crate::output::Output;
use crate::pipeline::segment;
use anyhow::bail;
use clap::{Args, Subcommand};
use localstack::client::{Client, Failed};
use protocol::workspace::PlanLimits;
use reqwest::Method;

/// What a plan allows.
#[derive(Clone, Copy, Debug, Default, Args)]
pub struct PlanArgs {
    /// Build minutes a month.
    #[arg(long, value_name = "N")]
    pub minutes: Option<u32>,
    /// The longest that one build may run, in seconds; 1800 if nobody says.
    #[arg(long, value_name = "N")]
    pub build_seconds_max: Option<u32>,
    /// Builds that may run at once; 4 if nobody says.
    #[arg(long, value_name = "N")]
    pub running_max: Option<u32>,
    /// Builds that may wait at once; 1000 if nobody says.
    #[arg(long, value_name = "N")]
    pub pending_max: Option<u32>,
    /// Previews that may live at once; 4 if nobody says.
    #[arg(long, value_name = "N")]
    pub previews_max: Option<u32>,
    /// The longest that one preview may live, in seconds; 86400 if nobody says.
    #[arg(long, value_name = "N")]
    pub preview_seconds_max: Option<u32>,
}

/// `plan`.
#[derive(Debug, Subcommand)]
pub enum PlanCommand {
    /// Set a workspace's plan, or change what is named of it. It binds new builds only.
    #[command(after_help = "Examples:
  callboard plan set acme --minutes 1000
  callboard plan set acme --running-max 8        the rest stays as it is")]
    Set {
        /// The workspace.
        workspace: String,
        /// What it may use.
        #[command(flatten)]
        plan: PlanArgs,
    },
    /// A workspace's plan.
    #[command(after_help = "Example:\n  callboard plan show acme")]
    Show {
        /// The workspace.
        workspace: String,
    },
}

impl PlanArgs {
    /// The plan that there is, if any, with what is named here changed; nothing if nothing is named and there is none.
    ///
    /// # Errors
    ///
    /// If the minutes are missing.
    pub fn over(self, plan: Option<PlanLimits>) -> anyhow::Result<Option<PlanLimits>> {
        let Self { minutes, build_seconds_max, running_max, pending_max, previews_max, preview_seconds_max } = self;
        let all = [minutes, build_seconds_max, running_max, pending_max, previews_max, preview_seconds_max];
        let named = all.iter().any(Option::is_some);
        let Some(minutes_per_month) = minutes.or(plan.map(|plan| plan.minutes_per_month)) else {
            return if named {
                bail!("--minutes is missing: how many build minutes a month there are")
            } else {
                Ok(None)
            };
        };
        Ok(Some(PlanLimits {
            minutes_per_month,
            build_seconds_max: build_seconds_max.or(plan.map(|plan| plan.build_seconds_max)).unwrap_or(1800),
            running_max: running_max.or(plan.map(|plan| plan.running_max)).unwrap_or(4),
            pending_max: pending_max.or(plan.map(|plan| plan.pending_max)).unwrap_or(1000),
            previews_max: previews_max.or(plan.map(|plan| plan.previews_max)).unwrap_or(4),
            preview_seconds_max: preview_seconds_max.or(plan.map(|plan| plan.preview_seconds_max)).unwrap_or(86_400),
        }))
    }
}

/// A plan in words.
#[must_use]
pub fn words(plan: &PlanLimits) -> String {
    format!(
        "{} minutes a month, {} builds at once, {} waiting, {} s a build; {} previews at once, {} s each",
        plan.minutes_per_month,
        plan.running_max,
        plan.pending_max,
        plan.build_seconds_max,
        plan.previews_max,
        plan.preview_seconds_max
    )
}

/// `callboard plan`.
///
/// # Errors
///
/// What the board says.
pub async fn run(command: PlanCommand, board: &Client, output: Output) -> anyhow::Result<u8> {
    let (PlanCommand::Set { workspace, .. } | PlanCommand::Show { workspace }) = &command;
    let path = format!("admin/workspaces/{}/plan", segment(workspace)?);
    let plan: Answer<PlanLimits> = match command {
        PlanCommand::Show { .. } => board.get(&path).await?,
        PlanCommand::Set { plan, .. } => {
            let Some(plan) = plan.over(current(&path, board).await?)? else {
                bail!("nothing to set: name at least --minutes")
            };
            board.give(Method::PUT, &path, &plan).await?
        }
    };
    output.print(&plan, words)?;
    Ok(0)
}

/// The plan as it is; none if the workspace has none yet.
async fn current(path: &str, board: &Client) -> Result<Option<PlanLimits>, Failed> {
    match board.get(path).await {
        Ok(plan) => Ok(Some(plan)),
        Err(Failed::Refused(problem)) if problem.status == 404 => Ok(None),
        Err(failed) => Err(failed),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PLAN: PlanLimits = PlanLimits {
        minutes_per_month: 100,
        build_seconds_max: 60,
        running_max: 2,
        pending_max: 10,
        previews_max: 3,
        preview_seconds_max: 60,
    };

    #[test]
    fn what_is_not_named_of_a_plan_stays() {
        let named = PlanArgs { running_max: Some(8), ..PlanArgs::default() };
        assert_eq!(named.over(Some(PLAN)).unwrap(), Some(PlanLimits { running_max: 8, ..PLAN }));
    }

    #[test]
    fn a_first_plan_needs_minutes_and_the_rest_has_defaults() {
        let minutes = PlanArgs { minutes: Some(5), ..PlanArgs::default() };
        let plan = minutes.over(None).unwrap().unwrap();
        assert_eq!(
            (plan.minutes_per_month, plan.running_max, plan.pending_max, plan.build_seconds_max),
            (5, 4, 1000, 1800)
        );
        assert!(PlanArgs { running_max: Some(8), ..PlanArgs::default() }.over(None).is_err());
        assert_eq!(PlanArgs::default().over(None).unwrap(), None);
    }
}
