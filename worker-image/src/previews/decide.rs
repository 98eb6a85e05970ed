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
    /// How it was lost if no keeper lives.
    pub lost: Lost,
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
    Lost(Lost),
    /// Its log and its directory.
    Stop,
    /// Its directory.
    Destroy,
    /// Nothing.
    Forget,
}

/// How a preview was lost.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Lost {
    /// This worker has never heard its keeper.
    #[default]
    Missing,
    /// Its keeper was there, and then it was not.
    Killed,
    /// Its keeper is there, and does not answer any more.
    Silent,
    /// This worker ended it, since nothing of it is to outlive the worker.
    Left,
}

impl Lost {
    fn stage(self) -> Stage {
        match self {
            Self::Killed | Self::Silent => Stage::Run,
            Self::Missing | Self::Left => Stage::Recovery,
        }
    }

    /// What is told to people.
    fn why(self) -> &'static str {
        match self {
            Self::Killed => "the process that kept it was killed, and its service with it",
            Self::Silent => "the process that kept it did not answer any more, and was ended with its service",
            Self::Missing => "a restart of its host found nothing of it running",
            Self::Left => "it ended with the worker of its host, which was stopped",
        }
    }
}

/// How one is lost whose keeper is gone without having said so.
fn lost(found: &Found) -> Option<Lost> {
    let is_lost =
        found.lives.is_none() && found.busy.is_none() && matches!(found.said.state, Seen::Starting | Seen::Running);
    is_lost.then_some(found.lost)
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
        Some(lost) => failed(now, lost),
        None => PreviewReport { state, url: now.url.clone().filter(|_| state == Seen::Running), ..now.clone() },
    }
}

/// The report of one that was lost.
#[must_use]
pub fn failed(said: &PreviewReport, lost: Lost) -> PreviewReport {
    let (stage, message) = (Some(lost.stage()), Some(lost.why().to_owned()));
    PreviewReport { state: Seen::Failed, stage, url: None, no_port: false, message, ..said.clone() }
}

/// What there is to do before anybody says so: a preview without its keeper is ended, and so is what was ended by half.
#[must_use]
pub fn due(found: &Found) -> Option<Deed> {
    if found.busy.is_some() || found.lives.is_some() {
        return None;
    }
    if let Some(lost) = lost(found) {
        return Some(Deed::End(End::Lost(lost)));
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
