//! Images of a registry that asks for a login: a real daemon pulls them, with what the pipeline named for that registry.

use crate::back_ends::ask;
use crate::board::{job, step};
use crate::fleet::{Worker, eventually};
use crate::registry::{Asks, Gives, PASSWORD, Registry, USER};
use crate::{BackEnd, Board, Forge};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use callboard_worker::proc;
use protocol::build::StepStatus;
use protocol::worker::{Complete, Job, Secret};
use protocol::{CancelReason, EndReason, Status};

/// A worker whose daemon asks a registry for what it has not got.
pub(crate) async fn set_up(asks: Asks, gives: Gives) -> Option<(Board, Forge, Worker, Registry)> {
    if !BackEnd::Docker.is_here() {
        return None;
    }
    let (board, forge) = (Board::start_for(BackEnd::Docker.image()).await, Forge::start().await);
    let registry = Registry::start(asks, gives).await;
    let worker = Worker::start_for(BackEnd::Docker, &board, &forge, &["--pull", "missing"]);
    Some((board, forge, worker, registry))
}

fn pulling(forge: &Forge, registry: &Registry, password: Option<&str>) -> Job {
    let mut pulled = step("pulled", &["echo ran in $(cat /mark)", "sleep 1"]);
    pulled.image = registry.image();
    let mut job = job(&forge.url(), vec![pulled]);
    let secret = password.map(|password| (registry.name(), Secret(format!("{USER}:{password}"))));
    job.registry_secrets = secret.into_iter().collect();
    job
}

/// Neither the password nor what is sent in its place is in `text`.
pub(crate) fn tells_nothing(what: &str, text: &str) {
    for secret in [PASSWORD.to_owned(), WRONG.to_owned()] {
        let encoded = STANDARD.encode(format!("{USER}:{secret}"));
        assert!(!text.contains(&secret) && !text.contains(&encoded), "{what}: {text}");
    }
}

pub(crate) const WRONG: &str = "a-wrong-password-of-the-test";

async fn is_pulled_with_the_secret(asks: Asks) {
    let Some((board, forge, worker, registry)) = set_up(asks, Gives::All).await else { return };
    let build = board.offer(pulling(&forge, &registry, Some(PASSWORD)));
    board.until_log(&format!("ran in {}\n", registry.name())).await;
    for container in crate::back_ends::containers(&worker.root) {
        tells_nothing("inspect", &ask("GET", &format!("/containers/{container}/json")).to_string());
    }
    for process in proc::all() {
        tells_nothing("an argument", &process.args.join(" "));
    }
    let report = board.report(build).await;
    assert_eq!(report.status, Status::Success, "{}", board.log());
    tells_nothing("the image", &ask("GET", &format!("/images/{}/json", registry.image())).to_string());
    tells_nothing("the build's log", &board.log());
    tells_nothing("the worker's log", &worker.log());
    worker.is_tidy();
    ask("DELETE", &format!("/images/{}?force=1", registry.image()));
}

#[tokio::test(flavor = "multi_thread")]
async fn an_image_is_pulled_with_name_and_password() {
    is_pulled_with_the_secret(Asks::Basic).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_image_is_pulled_with_a_token_for_name_and_password() {
    is_pulled_with_the_secret(Asks::Bearer).await;
}

/// The report of a build that was not let in, and says how to mend that.
async fn refused(asks: Asks, password: Option<&str>) -> Option<Complete> {
    let (board, forge, worker, registry) = set_up(asks, Gives::All).await?;
    let report = board.report(board.offer(pulling(&forge, &registry, password))).await;
    assert_eq!((report.status, report.end_reason), (Status::Failed, Some(EndReason::ImageFailed)), "{report:?}");
    let message = report.error_message.clone().unwrap();
    let names = format!("registry_secrets: {{{:?}: ", registry.name());
    assert!(message.contains(&registry.image()) && message.contains(&names), "{message}");
    assert!(board.log().contains(&names), "{}", board.log());
    tells_nothing("the error", &message);
    tells_nothing("the build's log", &board.log());
    tells_nothing("the worker's log", &worker.log());
    worker.is_tidy();
    Some(report)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_wrong_password_is_an_image_that_failed_and_is_told_without_it() {
    for asks in [Asks::Basic, Asks::Bearer] {
        let Some(report) = refused(asks, Some(WRONG)).await else { return };
        let message = report.error_message.unwrap();
        assert!(message.contains("did not take the secret"), "{message}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_registry_that_no_secret_is_named_for_is_told_as_that() {
    for asks in [Asks::Basic, Asks::Bearer] {
        let Some(report) = refused(asks, None).await else { return };
        let message = report.error_message.unwrap();
        assert!(message.contains("asks for a login"), "{message}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cancel_ends_a_pull_that_goes_on() {
    let Some((board, forge, worker, registry)) = set_up(Asks::Bearer, Gives::Slowly).await else { return };
    let build = board.offer(pulling(&forge, &registry, Some(PASSWORD)));
    eventually("a pull", || (registry.giving() > 0).then_some(()));
    board.heard().cancel = Some(CancelReason::User);
    let report = board.report(build).await;
    assert_eq!((report.status, report.end_reason), (Status::Cancelled, Some(EndReason::User)), "{}", board.log());
    eventually("the end of the pull", || (registry.giving() == 0).then_some(()));
    worker.is_tidy();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pull_that_stalls_ends_with_the_builds_deadline_and_keeps_no_other_waiting() {
    let Some((board, forge, worker, registry)) = set_up(Asks::Basic, Gives::Beginning).await else { return };
    let mut stalled = pulling(&forge, &registry, Some(PASSWORD));
    stalled.deadline_in_ms = 8000;
    let build = board.offer(stalled);
    eventually("a pull", || (registry.giving() > 0).then_some(()));
    let beats = board.heard().heartbeats.len();
    let report = board.report(build).await;
    assert_eq!((report.status, report.end_reason), (Status::TimedOut, Some(EndReason::Deadline)), "{}", board.log());
    assert_eq!(report.steps[0].status, StepStatus::TimedOut, "{report:?}");
    assert!(board.heard().heartbeats.len() > beats, "heartbeats go on");
    // The daemon has given the pull up, but reads on from a registry that says nothing: that is its own affair.
    board.heard().chunks.clear();
    let next = board.report(board.offer(job(&forge.url(), vec![step("next", &["true"])]))).await;
    assert_eq!(next.status, Status::Success, "{}", board.log());
    worker.is_tidy();
}
