//! SIGKILL at every fail point of a preview's way, to the functions, to the worker, and to Postgres: real processes all, and a
//! preview that somebody uses meanwhile.

mod house;
mod life;
mod postgres;
mod scene;

use house::{House, Victim};
use http::Method;

/// From the end of a build: whatever is killed, the build has ended with its preview or without.
const COMPLETES: [&str; 2] = ["finish.decided", "finish.written"];

/// While a preview runs, which none of it may disturb.
const RUNS: [(&str, Method, &str); 5] = [
    ("preview.extending", Method::POST, "/extend"),
    ("preview.extended", Method::POST, "/extend"),
    ("reconcile.removed", Method::POST, "/api/v1/admin/previews/reconcile"),
    ("cleanup.lost", Method::POST, "/api/v1/admin/sweep"),
    ("cleanup.purged", Method::POST, "/api/v1/admin/sweep"),
];

/// The points of a sync, each in a start, and those of what ends a preview.
const LIVES: [(&str, &str); 4] = [
    ("sync.asked", "cleanup.expired"),
    ("sync.noted", "cleanup.destroying"),
    ("sync.decided", "preview.destroying"),
    ("sync.written", "preview.destroyed"),
];

#[tokio::test]
async fn functions_that_are_killed_anywhere_are_missed_by_no_preview() {
    at_every_fail_point(Victim::Functions).await;
}

#[tokio::test]
async fn a_worker_that_is_killed_anywhere_is_missed_by_no_preview() {
    at_every_fail_point(Victim::Worker).await;
}

// Each time the board asks for a pause of seconds, so these are side by side.

#[tokio::test]
async fn a_postgres_that_is_killed_as_a_build_ends_is_missed_by_no_preview() {
    let Some(mut house) = House::set(Victim::Postgres).await else { return };
    completes(&mut house).await;
    house.leaves_nothing().await;
}

#[tokio::test]
async fn a_postgres_that_is_killed_while_a_preview_runs_is_not_missed_by_it() {
    let Some(mut house) = House::set(Victim::Postgres).await else { return };
    runs(&mut house).await;
    house.leaves_nothing().await;
}

#[tokio::test]
async fn a_postgres_that_is_killed_as_a_preview_starts_or_ends_is_missed_by_none() {
    let Some(mut house) = House::set(Victim::Postgres).await else { return };
    starts_and_ends(&mut house).await;
    house.leaves_nothing().await;
}

async fn at_every_fail_point(victim: Victim) {
    let Some(mut house) = House::set(victim).await else { return };
    completes(&mut house).await;
    runs(&mut house).await;
    starts_and_ends(&mut house).await;
    house.leaves_nothing().await;
}

async fn completes(house: &mut House) {
    for point in COMPLETES {
        house.arm(point).await;
        let build = house.board.submit().await;
        house.is_struck(point).await;
        if house.has_succeeded(build).await {
            let mut life = house.lives(build).await;
            house.goes_on(&mut life, point).await;
            house.destroys(life).await;
        }
    }
}

async fn runs(house: &mut House) {
    let build = house.board.submit().await;
    let mut life = house.lives(build).await;
    for (point, method, what) in &RUNS {
        house.is_asked_while_struck(&life, point, (method, what)).await;
        house.goes_on(&mut life, point).await;
    }
    house.destroys(life).await;
}

async fn starts_and_ends(house: &mut House) {
    for (sync, end) in LIVES {
        let build = house.starts_while_struck(sync).await;
        let mut life = house.lives(build).await;
        house.goes_on(&mut life, sync).await;
        house.ends(life, end, sync).await;
    }
}
