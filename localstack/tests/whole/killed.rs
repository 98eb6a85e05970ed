//! A live preview whose whole stack is killed, or whose keeper is stopped.

use crate::previews::{called, destroy, end, get, is_gone, is_quiet, running};
use crate::up::{Up, User};
use localstack::leftovers;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use rules::preview::{Stage, State};

fn signal(pids: &[i32], signal: Signal) {
    pids.iter().for_each(|pid| kill(Pid::from_raw(*pid), signal).expect("signalled"));
}

#[tokio::test]
async fn a_stack_that_is_killed_at_one_stroke_is_missed_by_no_user_and_the_next_finds_its_preview() {
    let Some(mut up) = Up::set().await else { return };
    let before = up.running().await;
    let (url, keepers) = (before.url.clone().expect("an address"), up.called("keep"));
    let mut user = User::of(before.port.expect("a port")).await;
    let all = up.processes();
    assert!(all.len() >= 3, "the stack, its worker and its Postgres: {all:?}");
    // Stopped first, none sees the others go.
    signal(&all, Signal::SIGSTOP);
    signal(&all, Signal::SIGKILL);
    up.has_ended().await;
    user.is_answered("while it is down").await;
    assert_eq!(get(&url).await, "hello from first\n");
    up.start().await;
    up.until_worker_is_ready(2).await;
    let after = up.preview(before.build_id, |preview| preview.status == State::Running).await;
    assert_eq!((after.version, &after.url, up.called("keep")), (before.version, &before.url, keepers));
    user.is_answered("and after").await;
    up.destroy(&before).await;
    up.preview(before.build_id, |preview| preview.status == State::Destroyed).await;
    user.sees_its_end().await;
    up.stop().await;
}

#[tokio::test]
async fn a_stack_that_is_killed_before_its_worker_has_its_previews_ended_and_tells_the_next() {
    let Some(mut up) = Up::set().await else { return };
    let before = up.running().await;
    up.kill();
    up.until_nothing_runs().await;
    up.start().await;
    let failed = up.preview(before.build_id, |preview| preview.status == State::Failed && preview.port.is_none()).await;
    assert_eq!(failed.stage, Some(Stage::Recovery));
    assert_eq!(failed.message.as_deref(), Some("it ended with the worker of its host, which was stopped"));
    up.stop().await;
}

#[tokio::test]
async fn a_keeper_that_is_stopped_goes_on_where_it_was_and_does_not_keep_its_preview_from_being_destroyed() {
    let Some((scene, build, shown)) = running(&[], false, "").await else { return };
    let (url, port, keepers) =
        (shown.url.clone().expect("an address"), shown.port.expect("a port"), called(&scene, build, "keep"));
    signal(&keepers, Signal::SIGSTOP);
    let asked = tokio::spawn(async move { get(&url).await });
    signal(&keepers, Signal::SIGCONT);
    assert_eq!(asked.await.expect("asked"), "hello from first\n");
    signal(&keepers, Signal::SIGSTOP);
    destroy(&scene, &shown).await;
    scene.preview(build, |preview| preview.status == State::Destroyed).await;
    is_gone(&scene, build, port);
    scene.end_but_for_directories().await;
}

#[tokio::test]
async fn a_keeper_that_stays_stopped_fails_its_preview_whose_users_wait_no_longer() {
    let Some((scene, build, shown)) = running(&["--preview-health-every-ms", "200"], false, "").await else { return };
    let (url, port) = (shown.url.clone().expect("an address"), shown.port.expect("a port"));
    let user = User::of(port).await;
    signal(&called(&scene, build, "keep"), Signal::SIGSTOP);
    let waits = tokio::spawn(reqwest::get(url));
    let failed = scene.preview(build, |preview| preview.status == State::Failed && preview.port.is_none()).await;
    assert_eq!(failed.stage, Some(Stage::Run), "{failed:?}");
    assert!(failed.message.as_deref().is_some_and(|why| why.contains("did not answer any more")), "{failed:?}");
    user.sees_its_end().await;
    assert!(waits.await.expect("asked").is_err(), "nobody could answer");
    is_quiet(&scene, build, port);
    scene.end_but_for_directories().await;
}

#[tokio::test]
async fn a_preview_whose_keeper_is_stopped_is_not_healthy_to_the_next_worker() {
    let Some((scene, build, shown)) = running(&[], true, "").await else { return };
    signal(&called(&scene, build, "keep"), Signal::SIGSTOP);
    end(scene.stack.worker().and_then(|worker| worker.pid()).expect("a worker"));
    let failed = scene.preview(build, |preview| preview.status == State::Failed && preview.port.is_none()).await;
    assert_eq!(failed.stage, Some(Stage::Recovery), "{failed:?}");
    is_quiet(&scene, build, shown.port.expect("a port"));
    assert_eq!(leftovers::mounts(&scene.site(build)), 0);
    scene.end_but_for_directories().await;
}
