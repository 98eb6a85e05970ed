//! Serving claims together: one statement for all that wait of one fleet, again as long as something stands in the way that can
//! be mended here.

use crate::job;
use edge::{Rejection, Shell, WorkerToken};
use futures::future::join_all;
use protocol::EndReason;
use protocol::worker::ClaimRequest;
use rules::runnable;
use store::claims::{self, Claimed, Fleet, Known, Served, Taken};
use store::submissions;
use tracing::field::display;
use uuid::Uuid;

/// How many builds one call ends that can't be run; the sweep does the rest.
const UNRUNNABLE_MAX: usize = 10;
/// How often one call asks again: for workspaces that others hold, and after builds that had to be checked.
const LOOKS_MAX: usize = 50;

/// A worker's claim.
#[derive(Clone, Debug)]
pub(crate) struct Call {
    /// Whose.
    pub(crate) token: WorkerToken,
    /// What it said.
    pub(crate) request: ClaimRequest,
}

impl Call {
    fn fleet(&self) -> Fleet<'_> {
        let worker = &self.request.worker;
        Fleet { token: self.token.parts(), isolation: &worker.isolation, labels: &worker.labels }
    }

    /// Whether both can be asked for by one statement.
    fn goes_with(&self, other: &Self) -> bool {
        self.fleet() == other.fleet() && self.request.claim_id != other.request.claim_id
    }
}

pub(crate) type Answer = Result<Option<Box<Taken>>, Rejection>;

/// Serves claims in the order in which they came; each gets a build, or nothing to do.
pub(crate) async fn serve(shell: Shell, calls: Vec<Call>) -> Vec<Answer> {
    let mut answers: Vec<Option<Answer>> = calls.iter().map(|_| None).collect();
    for group in groups(&calls) {
        let of_group: Vec<&Call> = group.iter().map(|place| &calls[*place]).collect();
        for (place, answer) in group.into_iter().zip(together(&shell, &of_group).await) {
            answers[place] = Some(answer);
        }
    }
    let missing = || Err(Rejection::Internal("a claim was in no group".into()));
    answers.into_iter().map(|answer| answer.unwrap_or_else(missing)).collect()
}

/// The places of calls that go together. The same `claim_id` twice is two groups: the second is a repeat of the first.
fn groups(calls: &[Call]) -> Vec<Vec<usize>> {
    let mut groups: Vec<Vec<usize>> = Vec::new();
    for (place, call) in calls.iter().enumerate() {
        match groups.iter_mut().find(|group| group.iter().all(|other| calls[*other].goes_with(call))) {
            Some(group) => group.push(place),
            None => groups.push(vec![place]),
        }
    }
    groups
}

/// Serves calls of one fleet. Where one's trouble would be everybody's, each is served by itself.
async fn together(shell: &Shell, calls: &[&Call]) -> Vec<Answer> {
    match Round::of(calls).serve(shell).await {
        Ok(answers) => answers,
        Err(error) if calls.len() == 1 => vec![Err(error)],
        Err(_) => join_all(calls.iter().map(|call| alone(shell, call))).await,
    }
}

async fn alone(shell: &Shell, call: &Call) -> Answer {
    Round::of(&[call]).serve(shell).await?.pop().unwrap_or(Ok(None))
}

/// Calls of one fleet, and what is known of each so far.
struct Round<'a> {
    calls: &'a [&'a Call],
    answers: Vec<Option<Answer>>,
    known: Known,
    unrunnable: usize,
}

impl<'a> Round<'a> {
    fn of(calls: &'a [&'a Call]) -> Self {
        Self { calls, answers: calls.iter().map(|_| None).collect(), known: Known::default(), unrunnable: 0 }
    }

    async fn serve(mut self, shell: &Shell) -> Result<Vec<Answer>, Rejection> {
        for _ in 0..LOOKS_MAX {
            match self.ask(shell).await {
                Ok(served) => self.take_in(shell, served).await?,
                // The same claim_id won elsewhere: asked again, the store answers with that build.
                Err(store::Error::Conflict(_)) if self.calls.len() == 1 => self.known.repeats = true,
                Err(error) => return Err(error.into()),
            }
            if self.answers.iter().all(Option::is_some) {
                break;
            }
        }
        // Held by others for longer than we look, or more builds to check than one call may: not an empty queue.
        Ok(self.answers.into_iter().map(|answer| answer.unwrap_or(Err(Rejection::TryAgain))).collect())
    }

    async fn ask(&mut self, shell: &Shell) -> Result<Served, store::Error> {
        let waiting = self.calls.iter().zip(&self.answers).filter(|(_, answer)| answer.is_none());
        let requests: Vec<&ClaimRequest> = waiting.map(|(call, _)| &call.request).collect();
        let known = std::mem::take(&mut self.known.wait);
        let known = Known { wait: known, ..self.known.clone() };
        claims::serve(&shell.store, self.calls[0].fleet(), &requests, &shell.config.timing, &known).await
    }

    async fn take_in(&mut self, shell: &Shell, served: Served) -> Result<(), Rejection> {
        let checking = !served.unverified.is_empty();
        for (claim, claimed) in served.claims {
            let Some(place) = self.calls.iter().position(|call| call.request.claim_id == claim) else { continue };
            self.answers[place] = match claimed {
                Claimed::Build(taken) => Some(Ok(Some(taken))),
                Claimed::Ended(build) => Some(Err(job::ended(shell, &self.calls[place].token, build).await?)),
                Claimed::Unauthorized => Some(Err(Rejection::Unauthorized)),
                Claimed::Nothing if checking => None,
                Claimed::Nothing => Some(Ok(None)),
                Claimed::Contended(workspace) => {
                    self.known.wait = Some(workspace);
                    None
                }
            };
        }
        for (build, workspace) in served.unverified {
            self.check(shell, build, workspace).await?;
        }
        Ok(())
    }

    /// Ends a build that can't be run, or notes that it can.
    async fn check(&mut self, shell: &Shell, build: Uuid, workspace: Uuid) -> Result<(), Rejection> {
        let facts = claims::facts(&shell.store, build).await?;
        let reason =
            facts.and_then(|facts| runnable::unrunnable(facts.has_pipeline, &facts.repository, &facts.git_ref));
        match reason {
            None => self.known.verified.push(build),
            Some(_) if self.unrunnable >= UNRUNNABLE_MAX => self.known.skip.push(workspace),
            Some(reason) => {
                end(shell, workspace, build, reason).await?;
                self.unrunnable += 1;
            }
        }
        Ok(())
    }
}

async fn end(shell: &Shell, workspace: Uuid, build: Uuid, reason: EndReason) -> Result<(), Rejection> {
    let message = runnable::explain(reason);
    for (build, traceparent) in
        submissions::end_pending(&shell.store, workspace, Some(&[build]), 1, reason, message).await?
    {
        let trace = traceparent.map(|traceparent| display(traceparent.trace_id()));
        tracing::info!(build.id = %build, trace.id = trace, end_reason = %reason, "build can't be run");
    }
    Ok(())
}
