//! What is told of a preview, and what is done about it: decisions on what was found, without looking.

use protocol::preview::PreviewReport;
use rules::preview::{Order, Seen, Stage};

/// A preview as this host finds it.
#[derive(Clone, Debug, PartialEq)]
pub struct Found {
    /// What is on disk.
    pub said: PreviewReport,
    /// What its keeper says, if one lives.
    pub lives: Option<PreviewReport>,
    /// What this worker is doing about it just now.
    pub busy: Option<Busy>,
    /// Whether this worker has known its keeper alive.
    pub was_alive: bool,
}

/// What a worker is doing about a preview.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Busy {
    /// Starting it.
    Starts,
    /// Ending it.
    Ends,
}

/// What is done about a preview.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Deed {
    /// A keeper is started.
    Start,
    /// Its keeper binds another port than this.
    Rebind(u16),
    /// It is ended.
    End(End),
}

/// What an end leaves behind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// Its log and its directory: it failed without a word of its own.
    Lost(Stage),
    /// Its log and its directory.
    Stop,
    /// Its directory.
    Destroy,
    /// Nothing.
    Forget,
}

/// What is told to people of one whose keeper is gone.
const LOST: &str = "the process that kept it was killed, and its service with it";
const MISSING: &str = "a restart of its host found nothing of it running";

/// Why a keeper is gone that did not say so: nobody knows what ended one that this worker has never seen.
fn lost(found: &Found) -> Option<Stage> {
    let is_lost =
        found.lives.is_none() && found.busy.is_none() && matches!(found.said.state, Seen::Starting | Seen::Running);
    is_lost.then_some(if found.was_alive { Stage::Run } else { Stage::Recovery })
}

/// What the board is told of it, but for its version.
#[must_use]
pub fn report(found: &Found) -> PreviewReport {
    let now = found.lives.as_ref().unwrap_or(&found.said);
    let state = match (found.busy, now.state) {
        (Some(Busy::Starts), Seen::Kept) => Seen::Starting,
        // It is as it was until it is over; what has failed has failed.
        (Some(Busy::Ends), Seen::Starting | Seen::Running) => Seen::Destroying,
        (Some(Busy::Starts | Busy::Ends) | None, state) => state,
    };
    match lost(found) {
        Some(stage) => failed(now, stage),
        None => PreviewReport { state, url: now.url.clone().filter(|_| state == Seen::Running), ..now.clone() },
    }
}

/// The report of one that failed at `stage` without a word of its own.
#[must_use]
pub fn failed(said: &PreviewReport, stage: Stage) -> PreviewReport {
    let why = if stage == Stage::Recovery { MISSING } else { LOST };
    let message = Some(why.to_owned());
    PreviewReport { state: Seen::Failed, stage: Some(stage), url: None, no_port: false, message, ..said.clone() }
}

/// What there is to do before anybody says so: a preview without its keeper is ended, and so is what was ended by half.
#[must_use]
pub fn due(found: &Found) -> Option<Deed> {
    if found.busy.is_some() || found.lives.is_some() {
        return None;
    }
    if let Some(stage) = lost(found) {
        return Some(Deed::End(End::Lost(stage)));
    }
    let is_half_done = match found.said.state {
        Seen::Failed => found.said.port.is_some(),
        Seen::Destroying => true,
        Seen::Kept | Seen::Starting | Seen::Running | Seen::Destroyed => false,
    };
    is_half_done.then_some(Deed::End(End::Stop))
}

/// What is done because of an order. What is being done is done first; then the order comes again.
#[must_use]
pub fn deed(order: Order, found: &Found) -> Option<Deed> {
    if found.busy.is_some() {
        return None;
    }
    let state = found.lives.as_ref().map_or(found.said.state, |report| report.state);
    let is_over = found.lives.is_none() && found.said.port.is_none();
    match order {
        Order::Wait | Order::Keep => None,
        Order::Start => (found.lives.is_none() && state == Seen::Kept).then_some(Deed::Start),
        Order::Rebind => found.lives.as_ref().and_then(|report| report.port).map(Deed::Rebind),
        Order::Stop => (!is_over || !matches!(state, Seen::Failed | Seen::Destroyed)).then_some(Deed::End(End::Stop)),
        Order::Destroy => (!is_over || state != Seen::Destroyed).then_some(Deed::End(End::Destroy)),
        Order::Forget => Some(Deed::End(End::Forget)),
    }
}

/// Whether nothing can come of it any more but that it is destroyed or forgotten: the board need not hear of it each time.
#[must_use]
pub fn rests(report: &PreviewReport) -> bool {
    report.port.is_none() && matches!(report.state, Seen::Failed | Seen::Destroyed) && report.version.is_some()
}

#[cfg(test)]
#[path = "decide_tests.rs"]
mod tests;
