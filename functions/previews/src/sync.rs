//! `POST /internal/worker/previews/sync`: one statement reads what the board has for the host; the rule decides on each report;
//! one statement writes what changes, if anything does; others keep what services wrote and read what is to be started, if there
//! is any of it.

use axum::extract::State;
use edge::{Json, Rejection, Shell, WorkerToken};
use protocol::Problem;
use protocol::preview::{
    LOG_TAIL_MAX_BYTES, PreviewOrder, PreviewOrders, PreviewReport, PreviewRun, PreviewSync, REPORTS_MAX,
};
use rules::preview::{Next, Order, Said, Seen, order, take_in};
use rules::variables::{Origin, winners};
use std::collections::{BTreeMap, BTreeSet};
use store::preview_syncs::{self, Change, Host, Known, Run};
use uuid::Uuid;

/// The longest message kept, in bytes.
const MESSAGE_MAX_BYTES: usize = 1024;
/// The longest address kept, in bytes.
const URL_MAX_BYTES: usize = 2048;

/// Takes in how a host's previews are, and tells it what each is to become.
#[utoipa::path(
    post,
    path = "/internal/worker/previews/sync",
    tag = "worker",
    request_body = PreviewSync,
    responses(
        (status = 200, description = "what each of the host's previews is to become", body = PreviewOrders),
        (status = 401, description = "token unknown or revoked", body = Problem),
        (status = 422, description = "a field that can't be", body = Problem),
    )
)]
pub(crate) async fn sync(
    State(shell): State<Shell>,
    token: WorkerToken,
    Json(mut sync): Json<PreviewSync>,
) -> Result<Json<PreviewOrders>, Rejection> {
    check(&sync)?;
    sync.previews.iter_mut().for_each(tidy);
    let host = Host { token: token.parts(), id: &sync.host_id };
    let noted =
        preview_syncs::note(&shell.store, host, &sync, &shell.config.timing).await?.ok_or(Rejection::Unauthorized)?;
    let reports: BTreeMap<Uuid, &PreviewReport> =
        sync.previews.iter().map(|report| (report.build_id, report)).collect();
    let mut previews = noted.previews;
    let written = write(&shell, host, &mut previews, &reports).await?;
    note_tails(&shell, host, &previews, &reports, &written).await?;
    let mut orders = of_known(&previews, &reports, &written);
    orders.extend(of_unknown(&previews, &reports, &noted.running));
    let previews = with_runs(&shell, host, &previews, orders).await?;
    let sync_every_ms = u64::try_from(shell.config.timing.preview_sync_every.as_millis()).unwrap_or(u64::MAX);
    Ok(Json(PreviewOrders { previews, sync_every_ms }))
}

/// Refuses what no host says. Values are not repeated.
fn check(sync: &PreviewSync) -> Result<(), Rejection> {
    if !(1..=255).contains(&sync.host_id.len()) || sync.host_id.contains('\0') {
        return Err(Rejection::invalid("host_id", "1 to 255 bytes, no NUL"));
    }
    if sync.ports.first == 0 || sync.ports.first > sync.ports.last {
        return Err(Rejection::invalid("ports", "a first port from 1 on, and a last one that is not before it"));
    }
    if sync.previews.len() > REPORTS_MAX {
        return Err(Rejection::invalid(
            "previews",
            format!("at most {REPORTS_MAX}: send the others with the next sync"),
        ));
    }
    let builds: BTreeSet<Uuid> = sync.previews.iter().map(|report| report.build_id).collect();
    if builds.len() < sync.previews.len() {
        return Err(Rejection::invalid("previews", "a build stands here twice"));
    }
    for (at, report) in sync.previews.iter().enumerate() {
        if report.port == Some(0) {
            return Err(Rejection::invalid(format!("previews[{at}].port"), "1 to 65535"));
        }
        if !report.url.as_deref().map_or(report.state != Seen::Running, is_url) {
            let detail = "where a running preview is reached: http or https, visible ASCII characters, at most 2,048";
            return Err(Rejection::invalid(format!("previews[{at}].url"), detail));
        }
    }
    Ok(())
}

/// Whether people may be sent to `url`.
fn is_url(url: &str) -> bool {
    let rest = url.strip_prefix("http://").or_else(|| url.strip_prefix("https://"));
    rest.is_some_and(|rest| !rest.is_empty() && rest.bytes().all(|byte| byte.is_ascii_graphic()))
        && url.len() <= URL_MAX_BYTES
}

/// A report is never refused for what it says to people: that is cut to what can be stored, of a log its end.
fn tidy(report: &mut PreviewReport) {
    if let Some(message) = &mut report.message {
        message.retain(|letter| letter != '\0');
        message.truncate(message.floor_char_boundary(MESSAGE_MAX_BYTES));
    }
    if let Some(log) = &mut report.log_tail {
        log.retain(|letter| letter != '\0');
        let start = log.ceil_char_boundary(log.len().saturating_sub(LOG_TAIL_MAX_BYTES));
        log.drain(..start);
    }
}

fn said(report: &PreviewReport) -> Said {
    Said {
        seen: report.state,
        version: report.version,
        stage: report.stage,
        port: report.port,
        no_port: report.no_port,
        message: report.message.clone(),
    }
}

/// Writes what the reports change, and brings `previews` up to it; those that were written. Where nothing changes, nothing is.
async fn write(
    shell: &Shell,
    host: Host<'_>,
    previews: &mut [Known],
    reports: &BTreeMap<Uuid, &PreviewReport>,
) -> Result<BTreeSet<Uuid>, Rejection> {
    let decided = previews.iter().filter_map(|known| {
        let report = reports.get(&known.build)?;
        Some((known, take_in(&known.held, &said(report))?, *report))
    });
    let decided: Vec<(&Known, Next, &PreviewReport)> = decided.collect();
    if decided.is_empty() {
        return Ok(BTreeSet::new());
    }
    let changes: Vec<Change<'_>> = decided
        .iter()
        .map(|(known, next, report)| Change { id: known.id, version: known.held.version, next, report })
        .collect();
    let mut written = BTreeSet::new();
    for known in preview_syncs::write(&shell.store, host, &changes).await? {
        tracing::info!(
            preview.id = %known.id, build.id = %known.build, preview.status = %known.held.state,
            preview.version = known.held.version, host.id = host.id, "preview changed"
        );
        written.insert(known.id);
        if let Some(before) = previews.iter_mut().find(|before| before.id == known.id) {
            *before = known;
        }
    }
    Ok(written)
}

/// Keeps what those last wrote whose states stay as they are. A host sends that only where it is new.
async fn note_tails(
    shell: &Shell,
    host: Host<'_>,
    previews: &[Known],
    reports: &BTreeMap<Uuid, &PreviewReport>,
    written: &BTreeSet<Uuid>,
) -> Result<(), Rejection> {
    let stay = previews.iter().filter(|known| known.held.state.is_live() && !written.contains(&known.id));
    let tails: Vec<(Uuid, &str)> =
        stay.filter_map(|known| Some((known.build, reports.get(&known.build)?.log_tail.as_deref()?))).collect();
    if tails.is_empty() {
        return Ok(());
    }
    Ok(preview_syncs::note_tails(&shell.store, host, &tails).await?)
}

/// An order for each preview that the host holds.
fn of_known(
    previews: &[Known],
    reports: &BTreeMap<Uuid, &PreviewReport>,
    written: &BTreeSet<Uuid>,
) -> Vec<PreviewOrder> {
    let of = |known: &Known| {
        let (held, report) = (&known.held, reports.get(&known.build));
        // What was written is as the rule wants it, but for a port that another preview holds.
        let bound = report.and_then(|report| report.port);
        let refused = written.contains(&known.id) && held.state.is_live() && bound.is_some() && bound != held.port;
        let order = if refused { Order::Rebind } else { order(Some(held), report.map(|report| report.state), false) };
        PreviewOrder { build_id: known.build, order, version: Some(held.version), run: None }
    };
    previews.iter().filter(|known| known.held.adopted).map(of).collect()
}

/// An order for each build that the host named and holds no preview of. One that still runs may come to have one; so does one
/// whose preview was just about to be taken up.
fn of_unknown(previews: &[Known], reports: &BTreeMap<Uuid, &PreviewReport>, running: &[Uuid]) -> Vec<PreviewOrder> {
    let is_held = |build: Uuid| previews.iter().any(|known| known.build == build && known.held.adopted);
    let may_be_held = |known: &Known| !known.held.adopted && !known.held.state.is_final();
    let is_there = |build: Uuid| {
        running.contains(&build) || previews.iter().any(|known| known.build == build && may_be_held(known))
    };
    let of = |report: &&PreviewReport| {
        let order = order(None, Some(report.state), is_there(report.build_id));
        PreviewOrder { build_id: report.build_id, order, version: None, run: None }
    };
    reports.values().filter(|report| !is_held(report.build_id)).map(of).collect()
}

/// Puts to each `start` what is to be run.
async fn with_runs(
    shell: &Shell,
    host: Host<'_>,
    previews: &[Known],
    mut orders: Vec<PreviewOrder>,
) -> Result<Vec<PreviewOrder>, Rejection> {
    let starts: BTreeSet<Uuid> =
        orders.iter().filter(|told| told.order == Order::Start).map(|told| told.build_id).collect();
    if starts.is_empty() {
        return Ok(orders);
    }
    let ids: Vec<Uuid> = previews.iter().filter(|known| starts.contains(&known.build)).map(|known| known.id).collect();
    let mut runs: BTreeMap<Uuid, PreviewRun> = BTreeMap::new();
    for run in preview_syncs::runs(&shell.store, host, &ids).await? {
        runs.insert(run.build, opened(shell, run));
    }
    for told in orders.iter_mut().filter(|told| told.order == Order::Start) {
        told.run = runs.remove(&told.build_id);
        if told.run.is_none() {
            // Changed since it was read: the next sync says how.
            told.order = Order::Keep;
        }
    }
    Ok(orders)
}

/// As for a step. A secret that is hidden by the preview's own variable goes to the host all the same, to be masked.
fn opened(shell: &Shell, run: Run) -> PreviewRun {
    let Run { workspace, spec, env, sealed, named, registry_secrets, .. } = run;
    let mut secrets = shell.open(workspace, sealed);
    let registry_secrets = Shell::by_registry(registry_secrets, &secrets);
    secrets.retain(|name, _| named.contains(name));
    // Only that a secret wins is asked here; its value goes by itself.
    let hiding = secrets.keys().map(|name| (name.clone(), String::new())).collect();
    let won = winners([(Origin::Build, env), (Origin::Secret, hiding), (Origin::Own, spec.env)]);
    let env = won.into_iter().filter(|(_, (origin, _))| *origin != Origin::Secret);
    let env = env.map(|(name, (_, value))| (name, value)).collect();
    PreviewRun {
        image: spec.image,
        commands: spec.commands,
        port: spec.port,
        health_path: spec.health_path,
        env,
        secrets,
        registry_secrets,
        retain_failed: spec.retain_failed,
    }
}
