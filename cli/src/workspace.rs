//! `callboard workspace`: what is used, reserved and left.

use crate::args::{PlanArgs, WorkspaceCommand};
use crate::output::Output;
use crate::pipeline::segment;
use crate::settings::Settings;
use protocol::admin::{PutWorkspace, Workspaces};
use protocol::workspace::{PlanLimits, Workspace};
use reqwest::Method;

/// How wide the bar is, in characters.
const BAR: u64 = 40;

/// Does it: `show` with the workspace's token, the others with an operator's.
///
/// # Errors
///
/// What is not set, or what the board says.
pub async fn run(command: WorkspaceCommand, settings: &Settings, output: Output) -> anyhow::Result<u8> {
    match command {
        WorkspaceCommand::Show => output.print(&settings.api()?.workspace().await?, shown)?,
        WorkspaceCommand::Create { name, plan } => {
            let path = format!("admin/workspaces/{}", segment(&name)?);
            let body = PutWorkspace { plan: Some(plan.into()) };
            let made: Workspace = settings.operator()?.give(Method::PUT, &path, &body).await?;
            output.print(&made, |made| {
                let slug = &made.slug;
                format!("workspace {slug} is set; its token: `callboard token create --kind api --workspace {slug}`")
            })?;
        }
        WorkspaceCommand::List => {
            let all: Workspaces = settings.operator()?.get("admin/workspaces").await?;
            output.print(&all, |all| {
                let rows: Vec<_> = all.workspaces.iter().map(row).collect();
                output.table(&["NAME", "USED", "RESERVED", "LEFT", "RUNNING", "WAITING"], &rows)
            })?;
        }
    }
    Ok(0)
}

impl From<PlanArgs> for PlanLimits {
    fn from(plan: PlanArgs) -> Self {
        Self {
            minutes_per_month: plan.minutes,
            build_seconds_max: plan.build_seconds_max,
            running_max: plan.running_max,
            pending_max: plan.pending_max,
        }
    }
}

fn minutes(seconds: u32) -> String {
    format!("{} min", seconds.div_ceil(60))
}

fn row(workspace: &Workspace) -> Vec<String> {
    vec![
        workspace.slug.clone(),
        minutes(workspace.charged_seconds),
        minutes(workspace.reserved_seconds),
        workspace.left_seconds.map_or_else(|| "no plan".into(), |left| format!("{} min", left / 60)),
        workspace.running.to_string(),
        workspace.pending.to_string(),
    ]
}

fn shown(workspace: &Workspace) -> String {
    let Workspace { slug, charged_seconds: used, reserved_seconds: reserved, running, pending, .. } = workspace;
    let head = format!("workspace  {slug}\nbuilds     {running} running, {pending} waiting\n");
    let Some(limits) = workspace.limits else {
        return format!("{head}plan       can't be read: nothing is admitted or started until it can");
    };
    let whole = limits.minutes_per_month.saturating_mul(60);
    let free = whole.saturating_sub(*used).saturating_sub(*reserved);
    format!(
        "{head}minutes    {}\n           █ {} used   ▒ {} reserved   · {} min free, of {} this month\n\
         limits     {} at once, {} waiting, {} a build",
        bar(*used, *reserved, whole),
        minutes(*used),
        minutes(*reserved),
        free / 60,
        limits.minutes_per_month,
        limits.running_max,
        limits.pending_max,
        minutes(limits.build_seconds_max)
    )
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
    fn a_bar_shows_every_part_that_is_not_zero_and_is_never_longer_than_it_is() {
        let parts = |text: String| ["█", "▒", "·"].map(|letter| text.matches(letter).count());
        assert_eq!(parts(bar(0, 0, 100)), [0, 0, 40]);
        assert_eq!(parts(bar(50, 25, 100)), [20, 10, 10]);
        assert_eq!(parts(bar(1, 1, 1_000_000)), [1, 1, 38]);
        assert_eq!(parts(bar(100, 50, 100)), [40, 0, 0]);
        assert_eq!(parts(bar(5, 5, 0)), [40, 0, 0]);
    }
}
