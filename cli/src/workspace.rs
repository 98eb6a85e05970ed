//! `callboard workspace`: what is used, reserved and left.

use crate::answer::Answer;
use crate::output::Output;
use crate::pipeline::segment;
use crate::plan::{self, PlanArgs};
use crate::settings::Settings;
use clap::Subcommand;
use localstack::clean::plain;
use localstack::spell::{ago, now};
use localstack::table::details;
use protocol::admin::{PutWorkspace, Workspaces};
use protocol::workspace::Workspace;
use reqwest::Method;
use time::OffsetDateTime;

/// `workspace`.
#[derive(Debug, Subcommand)]
pub enum WorkspaceCommand {
    /// The token's workspace: used, reserved and left.
    #[command(after_help = "Example:\n  callboard workspace show --json | jq .left_seconds")]
    Show,
    /// For operators: make a workspace. Without a plan nothing of it is built.
    #[command(after_help = "Examples:
  callboard workspace create acme --minutes 1000
  callboard workspace create acme --minutes 1000 --running-max 8")]
    Create {
        /// Its name.
        name: String,
        /// What it may use.
        #[command(flatten)]
        plan: PlanArgs,
    },
    /// For operators: all workspaces.
    #[command(after_help = "Example:\n  callboard workspace list")]
    List,
}

/// How wide the bar is, in characters.
const BAR: u64 = 40;

/// Does it: `show` with the workspace's token, the others with an operator's.
///
/// # Errors
///
/// What is not set, or what the board says.
pub async fn run(command: WorkspaceCommand, settings: &Settings, output: Output) -> anyhow::Result<u8> {
    match command {
        WorkspaceCommand::Show => {
            let workspace: Answer<Workspace> = settings.api()?.get("workspace").await?;
            output.print(&workspace, |workspace| shown(workspace, output))?;
        }
        WorkspaceCommand::Create { name, plan } => {
            let path = format!("admin/workspaces/{}", segment(&name)?);
            let body = PutWorkspace { plan: plan.over(None)? };
            let made: Answer<Workspace> = settings.operator()?.give(Method::PUT, &path, &body).await?;
            output.print(&made, created)?;
        }
        WorkspaceCommand::List => {
            let all: Answer<Workspaces> = settings.operator()?.get("admin/workspaces").await?;
            output.print(&all, |all| {
                let rows: Vec<_> = all.workspaces.iter().map(row).collect();
                output.table(&["NAME", "USED", "RESERVED", "LEFT", "RUNNING", "WAITING"], &rows)
            })?;
        }
    }
    Ok(0)
}

fn created(workspace: &Workspace) -> String {
    let slug = plain(&workspace.slug);
    let next = match workspace.limits {
        Some(_) => format!("its token: `callboard token create --kind api --workspace {slug}`"),
        None => format!(
            "it has no plan yet: `callboard plan set {slug} --minutes 1000`, unless a billing service gives it one"
        ),
    };
    format!("workspace {slug} is set; {next}")
}

fn minutes(seconds: u32) -> String {
    format!("{} min", seconds.div_ceil(60))
}

fn row(workspace: &Workspace) -> Vec<String> {
    vec![
        plain(&workspace.slug),
        minutes(workspace.charged_seconds),
        minutes(workspace.reserved_seconds),
        workspace.left_seconds.map_or_else(|| "no plan".into(), |left| format!("{} min", left / 60)),
        workspace.running.to_string(),
        workspace.pending.to_string(),
    ]
}

fn shown(workspace: &Workspace, output: Output) -> String {
    let Workspace { slug, charged_seconds: used, reserved_seconds: reserved, running, pending, .. } = workspace;
    let previews = workspace.limits.map(|limits| format!("{} live of {}", workspace.previews, limits.previews_max));
    let head = [
        ("workspace", Some(plain(slug))),
        ("builds", Some(format!("{running} running, {pending} waiting"))),
        ("previews", previews),
    ];
    let rest = match workspace.limits {
        None => vec![("plan", Some(unreadable(workspace.plan_fetched_at, now())))],
        Some(limits) => {
            let whole = limits.minutes_per_month.saturating_mul(60);
            let free = whole.saturating_sub(*used).saturating_sub(*reserved) / 60;
            let (used_words, reserved_words) = (minutes(*used), minutes(*reserved));
            let of = limits.minutes_per_month;
            let words = format!("{used_words} used, {reserved_words} reserved, {free} min free of {of} this month");
            let bar = output.columns.map(|_| format!("{}  █ used  ▒ reserved  · free", bar(*used, *reserved, whole)));
            let fetched =
                workspace.plan_fetched_at.map(|at| format!("by the billing service, as of {}", ago(at, now())));
            vec![("minutes", Some(words)), ("", bar), ("plan", Some(plan::words(&limits))), ("", fetched)]
        }
    };
    details(&head.into_iter().chain(rest).collect::<Vec<_>>(), output.paint)
}

/// A plan that can't be read, in words. One that a billing service gave is asked for again by the next submit.
fn unreadable(fetched_at: Option<OffsetDateTime>, now: OffsetDateTime) -> String {
    match fetched_at {
        None => "can't be read: nothing is admitted or started until it can".into(),
        Some(at) => {
            format!("not known: what the billing service gave is of {}; the next submit asks again", ago(at, now))
        }
    }
}

/// What is used and reserved of the whole; whatever is not zero is seen.
fn bar(used: u32, reserved: u32, whole: u32) -> String {
    let cells = |part: u32| {
        let share = u64::from(part) * BAR / u64::from(whole.max(1));
        if part > 0 { share.clamp(1, BAR) } else { 0 }
    };
    let used = cells(used);
    let reserved = cells(reserved).min(BAR - used);
    let repeat = |letter: &str, count: u64| letter.repeat(usize::try_from(count).unwrap_or(0));
    repeat("█", used) + &repeat("▒", reserved) + &repeat("·", BAR - used - reserved)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_plan_that_is_not_known_is_told_apart_from_one_that_is_stale() {
        let now = OffsetDateTime::UNIX_EPOCH;
        assert!(unreadable(None, now).starts_with("can't be read"));
        let stale = unreadable(Some(now - time::Duration::minutes(20)), now);
        assert_eq!(stale, "not known: what the billing service gave is of 20 min ago; the next submit asks again");
    }

    #[test]
    fn a_bar_shows_every_part_that_is_not_zero_and_is_never_longer_than_it_is() {
        let parts = |text: String| ["█", "▒", "·"].map(|letter| text.matches(letter).count());
        assert_eq!(parts(bar(0, 0, 100)), [0, 0, 40]);
        assert_eq!(parts(bar(50, 25, 100)), [20, 10, 10]);
        assert_eq!(parts(bar(1, 1, 1_000_000)), [1, 1, 38]);
        assert_eq!(parts(bar(100, 50, 100)), [40, 0, 0]);
        assert_eq!(parts(bar(5, 5, 0)), [40, 0, 0]);
    }
}
