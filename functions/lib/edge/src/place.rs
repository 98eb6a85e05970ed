//! Where a pending build stands: how many are ahead of it, and what keeps it waiting. Submit tells it as well as the calls that
//! read builds.

use crate::{Rejection, Shell};
use protocol::Status;
use protocol::build::Build;
use rules::Seconds;
use rules::routing::Needs;
use rules::waiting::{position, waiting_for};
use store::listing::{self, Listed};
use store::workers;
use store::workspaces;
use uuid::Uuid;

/// The builds of a workspace, those that wait with their place in the queue and what they wait for. Nothing is locked: another
/// call may change it a moment later.
///
/// # Errors
///
/// [`Rejection::Store`] if the database fails; [`Rejection::NotFound`] if there is no such workspace.
pub async fn placed(shell: &Shell, workspace: Uuid, listed: Vec<Listed>) -> Result<Vec<Build>, Rejection> {
    if listed.iter().all(|listed| listed.build.status != Status::Pending) {
        return Ok(listed.into_iter().map(|listed| listed.build).collect());
    }
    let standing = workspaces::standing(&shell.store, workspace, &shell.config.timing).await?;
    let standing = standing.ok_or(Rejection::NotFound)?;
    let able = workers::at_work(&shell.store, workspace).await?;
    let ids: Vec<Uuid> = listed.iter().map(|listed| listed.build.id).collect();
    let fronts = listing::fronts(&shell.store, workspace, &ids).await?;
    let place = |Listed { mut build, number, class, requires, images }: Listed| {
        if build.status == Status::Pending {
            let front = fronts.iter().find(|front| Some(front.class) == class);
            let needs = Needs::of(&requires, images.iter().map(String::as_str));
            let matched = able.iter().any(|worker| needs.covered_by(&worker.isolation, &worker.labels));
            let head = front.map_or(0, |front| u32::try_from(front.head_seconds).unwrap_or(0));
            build.position = Some(front.map_or(0, |front| position(&front.numbers, number)));
            build.waiting_for = Some(waiting_for(standing.plan, standing.usage, Seconds(head), matched));
        }
        build
    };
    Ok(listed.into_iter().map(place).collect())
}
